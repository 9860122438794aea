"""What a method asks to know of tasks besides their images: class names and words."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fsframework._calls import checked, named, seeded
from fsframework.engine.learning.model import FewShotModel, on_device
from fsframework.engine.learning.scoring import check_tensor
from fsframework.errors import OptionError
from fsframework.interfaces.method import Known
from fsframework.values import ImagePool, IntArray

__all__ = ["Knowledge", "embedded_texts"]


@torch.no_grad()
def embedded_texts(
    model: FewShotModel, embed: Callable[[Sequence[str]], Tensor], texts: Sequence[str]
) -> Tensor:
    """Return what ``embed_names`` or ``embed_words`` makes of texts, float32 ``(n, *E)``.

    Raises:
        PluginError: it returns something else.
    """
    model.eval()
    device, how = model.mean.device, (model.method, embed.__name__)
    with seeded(0):
        found = checked(*how, embed(texts), Tensor).to(device)
    check_tensor(*how, found, (len(texts), -1), device)
    return found.float()


class Knowledge:
    """What the method of a model asks to know of the tasks of a pool, embedded once.

    Args:
        model: with the weights that embed the images too.
        pool: of the tasks; its words are those of its attributes.
        names: what each class is called; by default its own name.

    Raises:
        OptionError: the method needs words, and the pool has none.
    """

    def __init__(self, model: FewShotModel, pool: ImagePool, names: Sequence[str] = ()) -> None:
        method, self._device = model.method, model.mean.device
        self._labels, self._table = pool.labels, pool.attributes if method.needs_words else None
        self._names = self._vectors = None
        if method.needs_class_names:
            self._names = embedded_texts(model, method.embed_names, names or pool.class_names)
        if method.needs_words:
            if self._table is None:
                raise OptionError(
                    f"{named(method)} needs the words of the support images; give a pool with words"
                )
            self._vectors = embedded_texts(model, method.embed_words, self._table.words)

    def bytes_of(self, way: int, shot: int) -> int:
        """Return how much memory what is known of a task takes."""
        names = 0 if self._names is None else way * self._names[0].numel() * 4
        return names + (0 if self._table is None else way * shot * len(self._table.words))

    def of(self, support: IntArray) -> Known:
        """Return what is known of tasks by their support images, ``(tasks, way, shot)``."""
        names = words = None
        if self._names is not None:
            names = self._names[on_device(self._labels[support[:, :, 0]], self._device)]
        if self._table is not None:
            words = on_device(self._table.rows(support), self._device)
        return Known(names, words, self._vectors)
