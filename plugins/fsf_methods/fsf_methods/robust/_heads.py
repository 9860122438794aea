"""What the methods of this package ask of, and share for, the head of the method within them."""

from __future__ import annotations

from fsframework.interfaces import FewShotMethod, MethodWrapper

__all__ = ["has_class_logits"]


def has_class_logits(method: FewShotMethod) -> bool:
    """Return whether a method, or the one that it forwards to, has a classifier of base classes."""
    own = type(method).class_logits
    if own is MethodWrapper.class_logits and isinstance(method, MethodWrapper):
        return has_class_logits(method.base)
    return own is not FewShotMethod.class_logits
