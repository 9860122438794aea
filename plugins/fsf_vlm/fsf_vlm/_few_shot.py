"""Few-shot tasks as conversations: what both in-context methods share."""

from __future__ import annotations

import string
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from fsframework.interfaces import Backbone, FewShotMethod, Known, OptionError, check_at_least
from fsframework.values import UInt8Array, digest_of

__all__ = ["INSTRUCTION", "InContextMethod", "Labels", "Task", "Turn"]

Labels = Literal["names", "letters", "permuted"]
"""What the classes of a task are called."""

INSTRUCTION = (
    "Each image shows one of these classes: {labels}. Answer with the label of its class and "
    "nothing else."
)

_LONGEST = 256
"""Characters of a class name, so that names are rows of a tensor."""

Turn = tuple[str, list[Any]]
"""A role, ``user`` or ``assistant``, and texts and uint8 images ``(H, W, 3)`` as they are shown."""


@dataclass(frozen=True)
class Task:
    """A task as a model is asked about it.

    Args:
        support: the turns up to the query: after the instruction, each image and its label.
        labels: the label by which each way is scored.
        query: uint8 images ``(n, H, W, 3)``; each ends a conversation of its own.
    """

    support: list[Turn]
    labels: list[str]
    query: UInt8Array

    @property
    def images(self) -> list[UInt8Array]:
        """The images of the support, as they are shown."""
        return [part for _, parts in self.support for part in parts if not isinstance(part, str)]


class InContextMethod(FewShotMethod):
    """Shows the support to a vision-language model as a conversation, then asks about a query.

    Each image of the support is a turn of the user, which its label answers. The order of the
    images, that of the labels in the instruction, the letters and the permutation of labels are
    drawn for each task from its seed and the content of its support: neither the order of ways and
    shots nor other tasks and queries change them.

    Args:
        labels: ``names`` of the classes; ``letters``, which tell nothing about them; or
            ``permuted`` names: each way has the name of the next one in a random cycle of the ways.
        instruction: begins the conversation; ``{labels}`` stands for the labels of the task.
        seed: of orders, letters and permutations.

    Raises:
        OptionError: an option is outside its range.
    """

    consumes = "images"
    learns_from = "nothing"
    weightless = True
    needs_class_names = True

    mean: Tensor
    std: Tensor
    offline: bool = False
    """Whether no other machine may be reached."""

    def __init__(self, *, labels: Labels, instruction: str, seed: int) -> None:
        super().__init__()
        if labels not in get_args(Labels):
            raise OptionError(f"labels must be one of {', '.join(get_args(Labels))}, not {labels}")
        if not instruction.strip():
            raise OptionError("instruction must say what the model is to answer, not be empty")
        check_at_least(0, seed=seed)
        self.labels = labels
        self.instruction = instruction
        self.seed = seed
        self.needs_class_names = labels != "letters"

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Note how the backbone's images are normalised; the model gets them as they were.

        A run with ``--offline`` tells this the backbone ``pixels``, which tells the method.
        """
        from fsf_vlm._pixels import Pixels

        del item_shape, n_base_classes
        self.offline = isinstance(backbone, Pixels) and backbone.offline
        for name in ("mean", "std"):
            values = torch.tensor(getattr(backbone.preprocessing, name)).view(3, 1, 1)
            self.register_buffer(name, values, persistent=False)

    def embed_names(self, names: Sequence[str]) -> Tensor:
        """Return the code points of names, float ``(n, 256)``, filled with zeros.

        Raises:
            OptionError: a name is longer than 256 characters.
        """
        if long := [name for name in names if len(name) > _LONGEST]:
            raise OptionError(f"a class name must have at most {_LONGEST} characters: {long[0]!r}")
        points = [[*map(ord, name.ljust(_LONGEST, "\0"))] for name in names]
        return torch.tensor(points).float().view(-1, _LONGEST)

    @property
    def remarks(self) -> Sequence[str]:
        """That the labels were permuted, if they were."""
        if self.labels != "permuted":
            return ()
        return ("labels permuted: a control, in which each class had the name of another",)

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Score as ``scores_with`` does, with letters as labels."""
        return self.scores_with(support, query, Known())

    def scores_with(self, support: Tensor, query: Tensor, known: Known) -> Tensor:
        """Score every query for every way by the label of the way.

        Args:
            support: normalised images ``(tasks, way, shot, 3, H, W)``.
            query: normalised images ``(tasks, n, 3, H, W)``.
            known: with what ``embed_names`` made of the names; labels are letters without it.

        Returns:
            float ``(tasks, n, way)``.

        Raises:
            OptionError: there are more ways than letters.
        """
        names: list[list[str]] | list[None] = [None] * len(support)
        if known.names is not None and self.needs_class_names:
            points = known.names.long().cpu().tolist()
            names = [["".join(map(chr, way)).rstrip("\0") for way in task] for task in points]
        shown, asked = self._pixels(support), self._pixels(query)
        tasks = [self._task(*one) for one in zip(shown, asked, names, strict=True)]
        return torch.stack(self._answered(tasks, support.device)).to(support)

    @abstractmethod
    def _answered(self, tasks: Sequence[Task], device: torch.device) -> list[Tensor]:
        """Return the scores of each task, float ``(n, way)``."""

    def _pixels(self, images: Tensor) -> UInt8Array:
        """Return uint8 images ``(..., H, W, 3)`` of normalised ones ``(..., 3, H, W)``."""
        plain = (images * self.std + self.mean).mul(255).round().clamp(0, 255)
        return np.asarray(plain.to(torch.uint8).movedim(-3, -1).cpu())

    def _task(self, support: UInt8Array, query: UInt8Array, names: list[str] | None) -> Task:
        """Return a task as it is shown, whatever the order of its ways and shots."""
        n_way, n_shot = support.shape[:2]
        if names is None and n_way > len(string.ascii_uppercase):
            raise OptionError(f"letters are labels of at most 26 ways, not {n_way}")
        digests = [[digest_of(np.ascontiguousarray(image)) for image in way] for way in support]
        shots = [sorted(range(n_shot), key=way.__getitem__) for way in digests]
        content = [(sorted(digests[w]), names[w] if names else "") for w in range(n_way)]
        ways = sorted(range(n_way), key=content.__getitem__)
        parts = [text for w in ways for text in (*content[w][0], content[w][1])]
        rng = np.random.default_rng([self.seed, int(digest_of(parts)[:16], 16)])
        images = [(ways[w], shots[ways[w]][s]) for w in range(n_way) for s in range(n_shot)]
        images = [images[i] for i in rng.permutation(len(images))]
        cycle = [ways[i] for i in rng.permutation(n_way)]
        labels = list(names or ())
        if names is None:
            labels = [string.ascii_uppercase[cycle.index(w)] for w in range(n_way)]
        elif self.labels == "permuted":
            labels = [names[cycle[(cycle.index(w) + 1) % n_way]] for w in range(n_way)]
        listed = [labels[ways[i]] for i in rng.permutation(n_way)] if names else sorted(labels)
        text = self.instruction.replace("{labels}", ", ".join(dict.fromkeys(listed)))
        turns: list[Turn] = []
        for way, shot in images:
            turns += [("user", [support[way, shot]]), ("assistant", [labels[way]])]
        turns[0][1].insert(0, text)
        return Task(turns, labels, query)
