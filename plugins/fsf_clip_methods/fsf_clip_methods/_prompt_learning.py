"""Contexts of tokens that are learned through the text tower: CoOp and CoCoOp."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from fsf_clip_methods._fit import Parameters, Sgd, fitted, support_loss
from fsf_clip_methods._named import Named
from fsf_clip_methods._prompts import plain
from fsf_clip_methods._random import uniform_weights
from fsf_clip_methods._tower import ImageTextTower
from fsframework.interfaces import Backbone, OptionError, check_above, check_at_least

__all__ = ["CoCoOp", "CoOp"]

_SPREAD = 0.02
_DECAY = 5e-4
_BATCH = 32
_PASSES = ((8, 200), (2, 100), (1, 50))
"""The least number of shots for a number of passes over the support."""
_REDUCTION = 16
_TEXTS_AT_ONCE = 256
"""Texts in a pass through the text tower. A step of the fit keeps the activations of each, about
17 MB for 40 tokens through the text tower of CLIP ViT-B."""


class _PromptLearning(Named):
    """A method that replaces the words before the name of a class by learned embeddings."""

    context: str
    length: int
    room: int
    seed: int

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Remember the backbone and draw what starts at random.

        Raises:
            OptionError: embeddings cannot be put into the backbone's text tower.
        """
        super().build(item_shape, n_base_classes, backbone)
        if not isinstance(backbone, ImageTextTower):
            raise OptionError(
                f"{type(self).__name__} learns embeddings of words, which {type(backbone).__name__}"
                " does not take; use the backbone clip:MODEL or open-clip:MODEL/PRETRAINED"
            )
        # Here, because tokenizers work on the CPU.
        ids = backbone.word_ids(self.context or "a")
        self._context_ids = ids if self.context else ids[:1].expand(self.length)
        generator = torch.Generator().manual_seed(self.seed)
        drawn = _SPREAD * torch.randn(self.length, backbone.context_width, generator=generator)
        self.drawn: Tensor
        self.register_buffer("drawn", drawn, persistent=False)
        self._draw(item_shape[0], backbone.context_width, generator)

    def _draw(self, dim: int, width: int, generator: torch.Generator) -> None:
        """Draw what else starts at random, for vectors ``(dim,)`` and embeddings ``(width,)``."""

    @property
    def _tower(self) -> ImageTextTower:
        tower = self._towers[0]
        assert isinstance(tower, ImageTextTower)
        return tower

    def embed_names(self, names: Sequence[str]) -> Tensor:
        """Return the tokens of each name with a context before it, as float ``(n, r, M + L)``."""
        # With a space, as some tokenizers read the first word of a text in another way.
        texts = [f" {plain(name)}." for name in names]
        return self._tower.tokens(texts, self._context_ids, self.room).float()

    def _logits(self, support: Tensor, query: Tensor, names: Tensor) -> Tensor:
        support, query = functional.normalize(support, dim=3), functional.normalize(query, dim=2)
        group = max(1, _TEXTS_AT_ONCE // self._texts_of_a_step(support))
        parts = zip(*(part.split(group) for part in (support, query, names.long())), strict=True)
        return torch.cat([self._of_group(*part) for part in parts])

    def _start(self, tokens: Tensor, like: Tensor) -> Tensor:
        """Return the initial context of each task, ``(tasks, M, E)``."""
        if not self.context:
            return self.drawn.to(like).expand(len(tokens), -1, -1)
        return self._tower.contexts(tokens[:, 0], len(self._context_ids)).to(like.dtype)

    @abstractmethod
    def _texts_of_a_step(self, support: Tensor) -> int:
        """Return how many texts a step of the fit reads for each task."""

    @abstractmethod
    def _of_group(self, support: Tensor, query: Tensor, tokens: Tensor) -> Tensor:
        """Return the logits of some tasks, whose items have length 1."""


class CoOp(_PromptLearning):
    """Learn the words before the classes' names, the same for all classes, in each task.

    Source: Zhou, Yang, Loy and Liu 2022, "Learning to Prompt for Vision-Language Models" (IJCV),
    section 3.2 (unified context, the name at the end), and the authors' code: embeddings of the
    context start at random with deviation 0.02 or as those of ``context``; logits are the scaled
    cosines of Eq. 1; the fit to the support's cross-entropy is by SGD with momentum 0.9 and weight
    decay 5e-4, whose rate falls along half a cosine. Gradients pass through the text tower.

    The authors take batches of 32 augmented views and a first pass at a rate of 1e-5; here each
    step takes the whole support without augmentation, from the first rate on, and there are as many
    steps as they take: those of 200 passes from 8 shots on, 100 from 2, 50 for 1. All tasks start
    from the same context. The backbone must be one of this package.

    Args:
        length: number of tokens of the context, at least 1.
        context: words that the context starts from and takes its length from; empty for a random
            start.
        room: number of tokens that a text has besides its context, at least 4: a name, a full stop,
            and what begins and ends a text. Time grows with it; a longer name is refused. Models
            that read texts of one length only, as SigLIP and those of open_clip, have their own.
        steps: of the fit, at least 1; ``None`` for the authors' number.
        lr: rate of the first step, above 0.
        seed: of the random start, at least 0.
        logit_scale: factor of cosines, above 0; ``None`` for the model's own.

    Raises:
        OptionError: an option is outside its range.
    """

    def __init__(
        self,
        *,
        length: int = 16,
        context: str = "",
        room: int = 24,
        steps: int | None = None,
        lr: float = 0.002,
        seed: int = 0,
        logit_scale: float | None = None,
    ) -> None:
        super().__init__(logit_scale=logit_scale)
        check_at_least(1, length=length)
        check_at_least(4, room=room)
        if steps is not None:
            check_at_least(1, steps=steps)
        check_above(0, lr=lr)
        check_at_least(0, seed=seed)
        self.length = length
        self.room = room
        self.context = context
        self.steps = steps
        self.lr = lr
        self.seed = seed

    def _texts_of_a_step(self, support: Tensor) -> int:
        return support.shape[1]

    def _of_group(self, support: Tensor, query: Tensor, tokens: Tensor) -> Tensor:
        items, (way, shot), scale = support.flatten(1, 2), support.shape[1:3], self._scale

        def logits(context: Tensor, of: Tensor) -> Tensor:
            placed = context[:, None].expand(-1, way, -1, -1).flatten(0, 1)
            texts = self._tower.features_in_context(tokens.flatten(0, 1), placed)
            texts = functional.normalize(texts, dim=1).to(of.dtype)
            return scale * of @ texts.reshape(-1, way, texts.shape[1]).mT

        passes = next(number for least, number in _PASSES if shot >= least)
        found = fitted(
            {"context": self._start(tokens, items)},
            lambda one: support_loss(logits(one["context"], items), shot),
            Sgd(weight_decay=_DECAY),
            steps=self.steps or passes * -(-way * shot // _BATCH),
            lr=self.lr,
        )
        return logits(found["context"], query)


class CoCoOp(_PromptLearning):
    """Learn the words before the classes' names, shifted by what each image shows, in each task.

    Source: Zhou, Yang, Loy and Liu 2022, "Conditional Prompt Learning for Vision-Language Models"
    (CVPR), section 3.2, and the authors' code: a network of two layers, with a bottleneck of a 16th
    of the image feature's length, maps the unit feature of an image to a vector that is added to
    every token of the context; an image is compared with the texts of its own context (Eq. 3). The
    fit to the support's cross-entropy is by SGD with momentum 0.9 and weight decay 5e-4, whose rate
    falls along half a cosine. Gradients pass through the text tower.

    The authors take 10 passes of one augmented view per step. Here a pass is one step without
    augmentation, by the sum of the gradients of its images: to first order that is their steps one
    after another, and the order of the images does not matter. All tasks start from the same
    weights. A text is read for every image and class, so this is by far the slowest method here.
    The backbone must be one of this package.

    Args:
        context: words that the context starts from; empty for a random start.
        length: number of tokens of a context that starts at random, at least 1.
        room: number of tokens that a text has besides its context, at least 4, see ``coop``.
        passes: passes over the support, at least 1.
        lr: rate of the first step per image, above 0.
        seed: of the random start, at least 0.
        logit_scale: factor of cosines, above 0; ``None`` for the model's own.

    Raises:
        OptionError: an option is outside its range.
    """

    def __init__(
        self,
        *,
        context: str = "a photo of a",
        length: int = 4,
        room: int = 24,
        passes: int = 10,
        lr: float = 0.002,
        seed: int = 0,
        logit_scale: float | None = None,
    ) -> None:
        super().__init__(logit_scale=logit_scale)
        check_at_least(1, length=length, passes=passes)
        check_at_least(4, room=room)
        check_above(0, lr=lr)
        check_at_least(0, seed=seed)
        self.context = context
        self.length = length
        self.room = room
        self.passes = passes
        self.lr = lr
        self.seed = seed

    def _draw(self, dim: int, width: int, generator: torch.Generator) -> None:
        inner = max(1, dim // _REDUCTION)
        for name, n_in, n_out in (("down", dim, inner), ("up", inner, width)):
            weight = uniform_weights(n_in, n_out, generator)
            bias = uniform_weights(n_in, n_out, generator)[:1]
            self.register_buffer(name, weight, persistent=False)
            self.register_buffer(f"{name}_bias", bias, persistent=False)

    def _texts_of_a_step(self, support: Tensor) -> int:
        return support.shape[1] * support.shape[1:3].numel()

    def _of_group(self, support: Tensor, query: Tensor, tokens: Tensor) -> Tensor:
        items, (way, shot) = support.flatten(1, 2), support.shape[1:3]
        start = {"context": self._start(tokens, items)}
        for name in ("down", "down_bias", "up", "up_bias"):
            start[name] = self.get_buffer(name).to(items).expand(len(items), -1, -1)
        found = fitted(
            start,
            lambda one: support_loss(self._conditional(one, items, tokens), shot),
            Sgd(weight_decay=_DECAY),
            steps=self.passes,
            lr=self.lr * way * shot,
        )
        size = max(1, _TEXTS_AT_ONCE // (len(query) * way))
        parts = [self._conditional(found, part, tokens) for part in query.split(size, dim=1)]
        return torch.cat(parts, dim=1)

    def _conditional(self, found: Parameters, items: Tensor, tokens: Tensor) -> Tensor:
        """Return the logits of unit items ``(tasks, n, D)``, each by texts of its own context."""
        (tasks, n), way = items.shape[:2], tokens.shape[1]
        hidden = (items @ found["down"] + found["down_bias"]).relu()
        shift = hidden @ found["up"] + found["up_bias"]
        contexts = found["context"][:, None] + shift[:, :, None]
        placed = contexts[:, :, None].expand(-1, -1, way, -1, -1).flatten(0, 2)
        read = tokens[:, None].expand(-1, n, -1, -1, -1).flatten(0, 2)
        texts = functional.normalize(self._tower.features_in_context(read, placed), dim=1)
        texts = texts.to(items.dtype).reshape(tasks, n, way, -1)
        return self._scale * (texts @ items[..., None]).squeeze(3)
