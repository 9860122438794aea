"""A method that holds another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from torch import Tensor

from fsframework.errors import OptionError
from fsframework.interfaces.backbone import Backbone
from fsframework.interfaces.method import Batch, FewShotMethod, Known

__all__ = ["MethodWrapper"]

_NOT_COPIED = {"carried"}
"""What changes in each step, so that it is asked of the base when it is needed."""


class MethodWrapper(FewShotMethod):
    """Declares what its base declares, and does everything as its base does.

    A subclass overrides only what is its own: methods as usual, declarations in its class body or,
    where an option or the base decides, after ``super().__init__``. What a later version adds to
    the contract of methods is forwarded, too. Copies of the base that learn beside it are named by
    ``bases``.

    Args:
        base: the method within it.

    >>> from torch.nn import functional
    >>> class OnSphere(MethodWrapper):
    ...     '''Give another method embedded items of unit length.'''
    ...     def embed(self, items):
    ...         return functional.normalize(self.base.embed(items), dim=1)
    """

    argument: ClassVar[str | None] = "base"

    def __init__(self, *, base: FewShotMethod) -> None:
        super().__init__()
        self.base = base
        for name in FewShotMethod.__annotations__.keys() - _NOT_COPIED - _declared_by(type(self)):
            setattr(self, name, getattr(base, name))
        own, known = (
            getattr(type(self), name) is not getattr(MethodWrapper, name)
            for name in ("scores", "scores_with")
        )
        if own and not known and (base.needs_class_names or base.needs_words):
            what = "class names" if base.needs_class_names else "words of images"
            raise OptionError(
                f"base must not need {what}, which {type(self).__name__} does not pass on, but "
                f"{type(base).__name__} does"
            )

    @property
    def bases(self) -> Sequence[FewShotMethod]:
        """The methods that ``loss`` trains: the base, and copies of it that a subclass adds."""
        return (self.base,)

    @property
    def carried(self) -> Mapping[str, Tensor]:
        """What ``loss`` of each of the ``bases`` leaves for ``after_step``, as ``NUMBER.NAME``."""
        return {
            f"{number}.{name}": rows
            for number, base in enumerate(self.bases)
            for name, rows in base.carried.items()
        }

    @carried.setter
    def carried(self, carried: Mapping[str, Tensor]) -> None:
        for number, base in enumerate(self.bases):
            base.carried = _carried_by(carried, number)

    def read_with(self, backbone: Backbone) -> None:
        """Let the base remember whose text tower embeds names and words."""
        self.base.read_with(backbone)

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Build the base."""
        self.base.build(item_shape, n_base_classes, backbone)

    @property
    def embeds(self) -> bool:
        """Whether ``embed`` is its own or the base's, and is computed once per image."""
        return type(self).embed is not MethodWrapper.embed or self.base.embeds

    def embed(self, items: Tensor) -> Tensor:
        """Embed items as the base does."""
        return self.base.embed(items)

    @property
    def needs_text(self) -> bool:
        """Whether the base needs a backbone that reads text."""
        return self.base.needs_text

    def embed_names(self, names: Sequence[str]) -> Tensor:
        """Embed the names of classes as the base does."""
        return self.base.embed_names(names)

    def embed_words(self, words: Sequence[str]) -> Tensor:
        """Embed words as the base does."""
        return self.base.embed_words(words)

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return the scores of the base, float ``(tasks, n, way)``."""
        return self.base.scores(support, query)

    def scores_with(self, support: Tensor, query: Tensor, known: Known) -> Tensor:
        """Return the scores of the base, or its own ``scores`` if only that is overridden."""
        if type(self).scores is not MethodWrapper.scores:
            return self.scores(support, query)
        return self.base.scores_with(support, query, known)

    @property
    def usage(self) -> Mapping[str, float]:
        """What the base has used."""
        return self.base.usage

    @property
    def remarks(self) -> Sequence[str]:
        """What a reader must know of the base's scores."""
        return self.base.remarks

    def class_logits(self, items: Tensor) -> Tensor:
        """Return the logits of the base for the base classes."""
        return self.base.class_logits(items)

    def view_vectors(self, views: Tensor) -> Tensor:
        """Return the base's vectors of views, as a teacher."""
        return self.base.view_vectors(views)

    def loss(self, batch: Batch) -> Tensor:
        """Return the loss of the base."""
        return self.base.loss(batch)

    def after_step(self, carried: Mapping[str, Tensor]) -> None:
        """Let each of the ``bases`` act after a step, on what its own ``loss`` has left."""
        for number, base in enumerate(self.bases):
            base.after_step(_carried_by(carried, number))


def _declared_by(cls: type[MethodWrapper]) -> set[str]:
    """Return the names in the bodies of a class and its parents, up to ``MethodWrapper``."""
    parents = cls.__mro__[: cls.__mro__.index(MethodWrapper)]
    return {name for one in parents for name in (*vars(one), *vars(one).get("__annotations__", ()))}


def _carried_by(carried: Mapping[str, Tensor], number: int) -> dict[str, Tensor]:
    """Return what one of the bases carries, by its own names."""
    start = f"{number}."
    return {name.removeprefix(start): v for name, v in carried.items() if name.startswith(start)}
