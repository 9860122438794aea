"""What the backbones of this package share: an image tower and a text tower of one space."""

from __future__ import annotations

import functools
import importlib
import re
from abc import abstractmethod
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Self

import torch
from torch import Tensor, nn

from fsframework.errors import install_hint
from fsframework.interfaces import Backbone, OptionError

__all__ = ["ImageTextTower", "needed", "trained_on"]

_TEXTS_AT_ONCE = 256
_WORDS = ("a", "7")
"""Two words whose first tokens differ."""

_TRAINED_ON = (
    (r"openai", "wit-400m"),
    (r"laion-?2b", "laion-2b"),
    (r"laion-?400m", "laion-400m"),
    (r"datacomp-?(1b|xl)", "datacomp-1b"),
    (r"datacompdr", "datacomp-dr"),
    (r"dfn-?2b", "dfn-2b"),
    (r"dfn-?5b", "dfn-5b"),
    (r"metaclip_400m", "metaclip-400m"),
    (r"siglip|webli", "webli"),
)
"""Pattern in a published name and the data that it means; names are those that timm's tags have."""


class ImageTextTower(Backbone):
    """A frozen model that embeds images and texts in one space.

    Maps are what the image tower computes before it pools: the patch tokens of a transformer, each
    at the position of its patch, or the last map of a convolutional network. Vectors are the image
    features in the space of the text features. Both towers are frozen.
    """

    keeps_weights = True
    reads_text = True

    net: Any
    """The model of another library."""

    def train(self, mode: bool = True) -> Self:
        """Set training or evaluation mode; the frozen towers stay in evaluation mode."""
        super().train(mode)
        self.net.eval()
        return self

    @property
    @abstractmethod
    def logit_scale(self) -> Tensor:
        """The factor of cosines that was learned with the model, a scalar."""

    @abstractmethod
    def _ids(self, texts: Sequence[str], room: int = 0, length: int | None = None) -> Tensor:
        """Return int64 ``(n, r, L)``: token ids, padded, and any mask of the attention.

        Args:
            room: number of positions to leave free of those that the text tower has; a text that is
                too long is truncated.
            length: L, where the model takes texts padded to any length; ``None`` for that of the
                longest.
        """

    @abstractmethod
    def _features(self, tokens: Tensor) -> Tensor:
        """Return the features ``(n, D)`` of tokens ``(n, r, L)``."""

    def text_features(self, texts: Sequence[str]) -> Tensor:
        """Map texts to float ``(n, D)``, not normalised, without gradients; long ones are cut."""
        with torch.no_grad():
            parts = [
                self._features(self._ids(texts[start : start + _TEXTS_AT_ONCE]).to(self._device))
                for start in range(0, len(texts), _TEXTS_AT_ONCE)
            ]
        return torch.cat(parts)

    def tokens(self, texts: Sequence[str], context: Tensor, length: int) -> Tensor:
        """Return the tokens of texts, with those of a context before the first word.

        Args:
            context: int64 ``(M,)``, ids of tokens, as ``word_ids`` returns them.
            length: L; a model that takes texts of one length only has its own.

        Returns:
            int64 ``(n, r, M + L)`` on the model's device: token ids and, of models that need one, a
            mask of the attention.

        Raises:
            OptionError: the text tower has too few positions, or a text is too long.
        """
        found = self._ids(texts, len(context), length)
        more = self._ids([f"{text} a" for text in texts], len(context), length)
        cut = (found[:, 0] == more[:, 0]).all(dim=1).tolist()
        if True in cut:
            raise OptionError(
                f"room must be larger: {length} tokens are too few for {texts[cut.index(True)]!r}"
            )
        begin, end = found[..., : self._start], found[..., self._start :]
        rows = torch.ones_like(end[..., :1]).expand(-1, -1, len(context)).clone()
        rows[:, 0] = context.to(rows.device)
        return torch.cat([begin, rows, end], dim=2).to(self._device)

    def word_ids(self, text: str) -> Tensor:
        """Return the ids of the tokens of a text, int64 ``(M,)``, without special ones."""
        return self._ids([text])[0, 0, self._start : self._common(f"{text} ")]

    def contexts(self, tokens: Tensor, size: int) -> Tensor:
        """Return the embeddings of the contexts of tokens ``(n, r, M + L)``: float ``(n, M, E)``.

        Args:
            size: M, the number of tokens of the context.
        """
        found: Tensor = self._embedding(tokens[:, 0, self._start : self._start + size])
        return found.detach()

    def features_in_context(self, tokens: Tensor, context: Tensor) -> Tensor:
        """Return the features of texts whose context has given embeddings.

        Gradients reach ``context``.

        Args:
            tokens: int64 ``(n, r, M + L)``, result of ``tokens`` with a context of M tokens.
            context: float ``(n, M, E)``, embeddings of tokens, before positions are added.

        Returns:
            float ``(n, D)``, not normalised.
        """
        start, size = self._start, context.shape[1]

        def placed(module: nn.Module, given: Any, found: Tensor) -> Tensor:
            del module, given
            parts = (found[:, :start], context.to(found.dtype), found[:, start + size :])
            return torch.cat(parts, dim=1)

        handle = self._embedding.register_forward_hook(placed)
        try:
            return self._features(tokens)
        finally:
            handle.remove()

    @property
    def context_width(self) -> int:
        """The length of the embedding of a token."""
        return int(self._embedding.embedding_dim)

    @property
    def _device(self) -> torch.device:
        return self._embedding.weight.device

    @property
    def _embedding(self) -> nn.Embedding:
        """The embedding of tokens: a vocabulary is larger than any number of positions."""
        found = [one for one in self.net.modules() if isinstance(one, nn.Embedding)]
        if not found:
            raise OptionError(f"{self.net.__class__.__name__} has no embedding of tokens")
        return max(found, key=lambda one: one.num_embeddings)

    @functools.cached_property
    def _start(self) -> int:
        """Number of tokens before the first word, such as a start of text."""
        return self._common("")

    def _common(self, text: str) -> int:
        """Return with how many equal tokens two texts begin that begin with a text."""
        first, second = self._ids([text + word for word in _WORDS])[:, 0]
        return int((first == second).long().cumprod(dim=0).sum())

    def _map(self, tokens: Tensor, height: int, width: int) -> Tensor:
        """Return the patch tokens of ``(n, T, C)`` as maps ``(n, C, height, width)``."""
        patches: Tensor = tokens[:, tokens.shape[1] - height * width :]
        return patches.reshape(-1, height, width, patches.shape[2]).permute(0, 3, 1, 2)


def needed(module: str, package: str) -> ModuleType:
    """Import a module of a package that is not always installed.

    Raises:
        OptionError: it cannot be imported.
    """
    from fsf_detectors.hub import mend_torchvision

    try:
        mend_torchvision()  # both libraries import it wherever it is installed
        return importlib.import_module(module)
    except ImportError as error:
        extra = "fsf-clip-methods[open-clip]" if module == "open_clip" else package
        raise OptionError(
            f"{package} cannot be imported ({error}); install it: {install_hint(extra)}"
        ) from error


def trained_on(published: str) -> str:
    """Return the data that a published name stands for; ``unknown`` where it says nothing.

    >>> trained_on("openai/clip-vit-base-patch32"), trained_on("ViT-B-32/laion2b_s34b_b79k")
    ('wit-400m', 'laion-2b')
    >>> trained_on("someone/clip-of-birds")
    'unknown'
    """
    name = published.lower()
    return next((data for pattern, data in _TRAINED_ON if re.search(pattern, name)), "unknown")
