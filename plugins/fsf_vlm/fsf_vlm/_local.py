"""A vision-language model of Transformers, and how likely it finds the labels of a task."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fsf_detectors.hub import (
    DtypeName,
    ModelFolder,
    load_config,
    load_model,
    load_processor,
    pictures,
    resolve_dtype,
    shut_up,
)
from fsf_vlm._few_shot import Task, Turn
from fsframework.interfaces import DataError
from fsframework.values import UInt8Array, digest_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = ["LocalModel"]

_MOST_BYTES = 2 << 30
"""Of the features of images that are kept."""
_FEATURES = ("pooler_output", "deepstack_features")
"""Outputs of the image encoder that the language model reads."""
_PER_TOKEN = ("token_type_ids", "mm_token_type_ids")
_CLOSE = {"float32": 1e-3, "float16": 0.05, "bfloat16": 0.3}
"""Differences of log-likelihoods that rounding explains, by the number format."""


class LocalModel:
    """A model with its processor; the weights are loaded when they are first needed.

    Args:
        name: name on the hub or path of a folder.
        revision: branch, tag or commit on the hub.
        dtype: number format of the weights.
        rows: number of sequences per forward pass.
        shared: whether the keys and values of a task's support are computed once.
        offline: make no network call.

    Raises:
        DataError: the model is missing, or does not answer questions about images.
    """

    def __init__(
        self,
        name: str,
        revision: str | None,
        *,
        dtype: DtypeName,
        rows: int,
        shared: bool,
        offline: bool,
    ) -> None:
        self.folder = ModelFolder.find(name, revision, offline=offline)
        self.config = load_config(self.folder)
        with shut_up():
            from transformers import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
        if type(self.config) not in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING:
            raise DataError(
                f"{self.folder}: must produce text from images, which a {self.config.model_type} "
                "model does not"
            )
        self.processor = load_processor(self.folder)
        if not getattr(self.processor, "chat_template", None):
            raise DataError(
                f"{self.folder}: must have a chat template, because the support is shown to it as "
                "a conversation"
            )
        self.dtype, self.rows, self.shared = dtype, rows, shared
        self.tokens = 0
        """Number of tokens that the language model has read."""
        self._model: Any = None
        self._tails: dict[str, list[int]] = {}
        self._images: dict[str, dict[str, Any]] = {}
        self._windows: dict[Any, tuple[list[int], list[int], dict[str, list[int]]]] = {}

    def __deepcopy__(self, memo: object) -> LocalModel:
        """Return itself: scoring changes nothing that decides a score."""
        return self

    def likelihoods(self, task: Task, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return the log-likelihood of each label after each query, and the labels' lengths.

        Returns:
            float32 ``(n, way)``, and the numbers of tokens int64 ``(way,)``.
        """
        import torch

        self._load(device, task)
        tails = [self._tail(label) for label in task.labels]
        lengths = torch.tensor([len(tail) for tail in tails], device=device)
        with torch.inference_mode(), shut_up():
            found = self._shared(task, tails) if self.shared else self._whole(task, tails)
        return found.clone(), lengths

    def _load(self, device: torch.device, task: Task) -> None:
        if self._model is not None and self._model.device == device:
            return
        import torch

        with shut_up():
            from transformers import AutoModelForImageTextToText
        dtype = resolve_dtype(self.dtype, str(device))
        self._model, self._images = None, {}
        auto = AutoModelForImageTextToText
        self._model = load_model(self.folder, auto, self.config, dtype, str(device))
        if not self.shared:
            return
        with torch.inference_mode(), shut_up():
            self.shared = self._agrees(task, _CLOSE[str(dtype).removeprefix("torch.")])
        if not self.shared:
            warnings.warn(
                f"{self.folder}: computes keys and values of the support for every query, because "
                f"a {self.config.model_type} model cannot continue from those of an earlier one",
                stacklevel=2,
            )

    def _agrees(self, task: Task, close: float) -> bool:
        """Return whether the shared form has the values of the plain one, on random images."""
        noise = np.random.default_rng(0).integers(0, 256, (4, *task.query.shape[1:]), np.uint8)
        turns: list[Turn] = [
            ("user", ["red or light blue?", noise[0]]),
            ("assistant", ["red"]),
            ("user", [noise[1]]),
            ("assistant", ["light blue"]),
        ]
        example = Task(turns, ["red", "light blue"], noise[2:])
        tails = [self._tail(label) for label in example.labels]
        try:
            found = self._shared(example, tails)
        # What a class does not support, it says in many ways.
        except Exception:
            return False
        return bool((found - self._whole(example, tails)).abs().max() <= close)

    def _shared(self, task: Task, tails: Sequence[list[int]]) -> Tensor:
        """Read the support once, then each query once, then all labels."""
        import torch

        model, device = self._model, self._model.device
        features = self._features([*task.images, *task.query])
        shown, asked = features[: len(task.images)], features[len(task.images) :]
        ids, types, start = self._expanded(task)
        row = torch.tensor([ids], device=device)
        kinds = {name: torch.tensor([one], device=device) for name, one in types.items()}
        position = self._positions(row, kinds, shown + asked[:1])
        kinds = {k: v for k, v in kinds.items() if k in inspect.signature(model.forward).parameters}

        def read(tokens: Tensor, at: Tensor | None, **others: Any) -> Any:
            self.tokens += tokens.numel()
            where = {} if at is None else {"position_ids": at.expand(-1, len(tokens), -1)}
            return model(input_ids=tokens, use_cache=True, **where, **others)

        known = read(
            row[:, :start],
            None if position is None else position[..., :start],
            mm_encoder_outputs={"image": self._joined(shown)},
            logits_to_keep=1,
            **{name: one[:, :start] for name, one in kinds.items()},
        ).past_key_values
        longest = max(map(len, tails))
        ends = torch.tensor([tail + [0] * (longest - len(tail)) for tail in tails], device=device)
        real = torch.tensor([[i < len(tail) for i in range(1, longest)] for tail in tails])
        real = real.to(device)
        after = None if position is None else position[..., -1:] + torch.arange(1, longest).to(row)
        found = []
        at_once = max(1, self.rows // (1 if longest == 1 else len(tails)))
        for part in (asked[i : i + at_once] for i in range(0, len(asked), at_once)):
            cache = copy.deepcopy(known)
            # Every kind of cache can be reordered, for beam search; that repeats rows too.
            cache.reorder_cache(row.new_zeros(len(part)))
            out = read(
                row[:, start:].expand(len(part), -1),
                None if position is None else position[..., start:],
                past_key_values=cache,
                mm_encoder_outputs={"image": self._joined(part)},
                logits_to_keep=1,
                **{name: one.expand(len(part), -1) for name, one in kinds.items()},
            )
            score = out.logits[:, -1].float().log_softmax(-1)[:, ends[:, 0]]
            if longest > 1:
                cache.reorder_cache(torch.arange(len(part)).to(row).repeat_interleave(len(tails)))
                out = read(ends[:, :-1].repeat(len(part), 1), after, past_key_values=cache)
                rest = out.logits.float().log_softmax(-1).unflatten(0, (len(part), len(tails)))
                next_ = ends[None, :, 1:, None].expand(len(part), -1, -1, -1)
                score = score + (rest.gather(-1, next_).squeeze(-1) * real).sum(-1)
            found.append(score)
        return torch.cat(found)

    def _whole(self, task: Task, tails: Sequence[list[int]]) -> Tensor:
        """Read the whole conversation for each query and label, as the model's authors do."""
        import torch

        model, device = self._model, self._model.device
        found = []
        for image in task.query:
            text = self._rendered([*task.support, ("user", [image])])
            inputs = {**self._processed(text, [*task.images, image])}
            for tail in tails:
                more = torch.tensor([tail])
                other = torch.zeros_like(more)
                extended = {
                    "input_ids": more,
                    "attention_mask": other + 1,
                    **dict.fromkeys(_PER_TOKEN, other),
                }
                given = {
                    name: torch.cat([one, extended[name]], 1) if name in extended else one
                    for name, one in inputs.items()
                }
                moved = {
                    name: one.to(device, model.dtype if one.is_floating_point() else None)
                    for name, one in given.items()
                }
                self.tokens += moved["input_ids"].numel()
                logits = model(**moved, use_cache=False).logits[0, -len(tail) - 1 : -1]
                each = logits.float().log_softmax(-1).gather(-1, more.T.to(device))
                found.append(each.sum())
        return torch.stack(found).view(len(task.query), len(tails))

    def _rendered(self, turns: Sequence[Turn], *, answered: bool = False) -> str:
        """Return a conversation in the model's own form."""
        talk = [
            {
                "role": role,
                "content": [
                    {"type": "text", "text": part} if isinstance(part, str) else {"type": "image"}
                    for part in parts
                ],
            }
            for role, parts in turns
        ]
        text: str = self.processor.apply_chat_template(talk, add_generation_prompt=not answered)
        return text

    def _special(self, text: str) -> dict[str, bool]:
        bos = self.processor.tokenizer.bos_token
        return {"add_special_tokens": not (bos and text.startswith(bos))}

    def _ids(self, text: str) -> list[int]:
        found: list[int] = self.processor.tokenizer(text, **self._special(text))["input_ids"]
        return found

    def _processed(self, text: str, images: Sequence[UInt8Array]) -> Mapping[str, Tensor]:
        """Return the inputs of the model for a conversation with these images."""
        shown = [pictures(images)]
        inputs: Mapping[str, Tensor] = self.processor(
            text=[text], images=shown, return_tensors="pt", **self._special(text)
        )
        return inputs

    def _tail(self, label: str) -> list[int]:
        """Return the tokens of a label where the model answers."""
        if label not in self._tails:
            asked: list[Turn] = [("user", [None])]
            head = self._rendered(asked)
            whole = self._rendered([*asked, ("assistant", [label])], answered=True)
            start = _alike(head, whole)
            at = whole.find(label, start) if start == len(head) else -1
            text = whole[start:at] + label if at >= 0 else label
            before, both = self._ids(head), self._ids(head + text)
            fits = both[: len(before)] == before
            self._tails[label] = both[len(before) :] if fits else self._bare(text)
        return self._tails[label]

    def _bare(self, text: str) -> list[int]:
        found: list[int] = self.processor.tokenizer(text, add_special_tokens=False)["input_ids"]
        return found

    def _features(self, images: Sequence[UInt8Array]) -> list[dict[str, Any]]:
        """Return what the language model reads of each image; each is encoded once."""
        digests = [digest_of(np.ascontiguousarray(image)) for image in images]
        new = {d: i for d, i in zip(digests, images, strict=True) if d not in self._images}
        kept = {d: self._images[d] for d in digests if d in self._images}
        for begin in range(0, len(new), self.rows):
            some = list(new)[begin : begin + self.rows]
            kept.update(zip(some, self._encoded([new[d] for d in some]), strict=True))
        self._images.update(kept)
        one = next(iter(kept.values()))
        while len(self._images) > max(len(kept), _MOST_BYTES // one["bytes"]):
            del self._images[next(d for d in self._images if d not in kept)]
        return [kept[digest] for digest in digests]

    def _encoded(self, images: Sequence[UInt8Array]) -> list[dict[str, Any]]:
        model, n = self._model, len(images)
        text = self._rendered([("user", list(images))])
        inputs = self._processed(text, images)
        encode = model.base_model.get_image_features
        wanted = inspect.signature(encode).parameters
        given = {
            name: one.to(model.device, model.dtype if one.is_floating_point() else None)
            for name, one in inputs.items()
            if name in wanted
        }
        out = encode(**given, return_dict=True)
        self._kind = type(out)
        fields = {name: getattr(out, name, None) for name in _FEATURES}
        self._lists = isinstance(fields["pooler_output"], (list, tuple))
        pooled = _pieces(fields["pooler_output"], n)
        deep = [_pieces(layer, n) for layer in fields["deepstack_features"] or ()]
        grid = inputs.get("image_grid_thw")
        size = sum(one.nbytes for one in (pooled[0], *(layer[0] for layer in deep)))
        return [
            {
                "pooled": pooled[i],
                "deep": [layer[i] for layer in deep],
                "grid": None if grid is None else grid[i],
                "bytes": size,
            }
            for i in range(n)
        ]

    def _joined(self, features: Sequence[Mapping[str, Any]]) -> Any:
        """Return the output of the image encoder for several images."""
        import torch

        layers = zip(*([one["pooled"], *one["deep"]] for one in features), strict=True)
        pooled, *deep = (list(one) if self._lists else torch.cat(one) for one in layers)
        fields: dict[str, Any] = {"pooler_output": pooled}
        if deep:
            fields["deepstack_features"] = deep
        return self._kind(**fields)

    def _window(self, image: UInt8Array) -> tuple[list[int], list[int], dict[str, list[int]]]:
        """Return the tokens that stand for an image before and after it is known, and their kinds.

        The kinds are those that the processor tells apart, by their name.
        """
        if image.shape not in self._windows:
            text = self._rendered([("user", [image])])
            before, inputs = self._ids(text), self._processed(text, [image])
            after = inputs["input_ids"][0].tolist()
            begin = _alike(before, after)
            end = _alike(before[begin:][::-1], after[begin:][::-1])
            begin = min(begin, len(before) - end - 1)  # a placeholder that stays is in both
            new = slice(begin, len(after) - end)
            kinds = {name: inputs[name][0].tolist()[new] for name in _PER_TOKEN if name in inputs}
            self._windows[image.shape] = before[begin : len(before) - end], after[new], kinds
        return self._windows[image.shape]

    def _expanded(self, task: Task) -> tuple[list[int], dict[str, list[int]], int]:
        """Return the tokens of a conversation that ends with a query, and their kinds.

        The tokens are the same for all queries, since all images have one size. The last number is
        where the query's image begins.
        """
        old, new, kinds = self._window(task.query[0])
        plain = self._ids(self._rendered([*task.support, ("user", [task.query[0]])]))
        ids: list[int] = []
        types: dict[str, list[int]] = {name: [] for name in kinds}
        starts: list[int] = []
        place = 0
        while place < len(plain):
            image = plain[place : place + len(old)] == old
            if image:
                starts.append(len(ids))
            ids += new if image else plain[place : place + 1]
            for name, one in types.items():
                one += kinds[name] if image else [0]
            place += len(old) if image else 1
        if len(starts) != len(task.images) + 1:
            raise DataError(f"{self.folder}: the tokens of its images depend on their place")
        return ids, types, starts[-1]

    def _positions(
        self, row: Tensor, kinds: Mapping[str, Tensor], features: Sequence[Mapping[str, Any]]
    ) -> Tensor | None:
        """Return positions ``(axes, 1, tokens)`` of a model that gives images two-dimensional ones.

        ``None`` of other models, which count.
        """
        import torch

        index = getattr(self._model.base_model, "get_rope_index", None)
        if index is None:
            return None
        grid = torch.stack([one["grid"] for one in features]).to(row.device)
        found: Tensor = index(row, image_grid_thw=grid, **kinds)[0]
        return found


def _alike(first: Sequence[Any], second: Sequence[Any]) -> int:
    """Return how many items two sequences have in common from their beginning on."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(first), len(second)))


def _pieces(features: Any, n: int) -> list[Tensor]:
    """Return the features of each of n images of one size."""
    import torch

    if isinstance(features, (list, tuple)):
        features = torch.cat(tuple(features))
    if len(features) % n:
        raise DataError(f"{len(features)} features cannot be those of {n} images of one size")
    # Copies, so that one image does not keep the memory of all.
    return [piece.clone() for piece in features.chunk(n)]
