"""The groups of training images, by class and words, and steps in which they weigh differently."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor, nn

from fsframework.interfaces import Batch, FewShotMethod, OptionError, check_at_least

__all__ = [
    "MOST_WORDS",
    "WordGroups",
    "balanced_weights",
    "check_words",
    "need_labels",
    "padded",
    "redrawn",
    "words_of_items",
    "words_of_queries",
]

MOST_WORDS = 512


class WordGroups(nn.Module):
    """Groups of class and words, counted while the images of training steps go by.

    A word is tied to a class if its share in the class exceeds the mean of its shares in all
    classes, and if some images of the class lack it (FewSTAB, definition 1). Of these, a class has
    the ``n_words`` with the largest excess. The group of an image is its class and how many of the
    tied words of its class it has; with one tied word, whether it has that word.

    Args:
        n_classes: base classes.
        n_words: tied words per class, at least 1.
        most_words: columns for words.
    """

    having: Tensor
    seen: Tensor
    members: Tensor

    def __init__(self, n_classes: int, n_words: int, most_words: int) -> None:
        super().__init__()
        self.n_words, self.per_class = n_words, n_words + 1
        self.register_buffer("having", torch.zeros(n_classes, most_words))
        self.register_buffer("seen", torch.zeros(n_classes))
        self.register_buffer("members", torch.zeros(n_classes * self.per_class))

    @torch.no_grad()
    def observe(self, classes: Tensor, words: Tensor) -> None:
        """Count images.

        Args:
            classes: int64 ``(n,)``.
            words: bool ``(n, w)``.
        """
        ones = torch.ones_like(classes, dtype=self.seen.dtype)
        self.having.index_add_(0, classes, padded(words, self.having))
        self.seen.index_add_(0, classes, ones)
        self.members.index_add_(0, self.of(classes, words), ones)

    def tied(self) -> tuple[Tensor, Tensor]:
        """Return the tied words of each class, int64 ``(n_classes, n_words)``, and which exist."""
        share = self.having / self.seen.clamp(min=1)[:, None]
        excess = share - share.mean(dim=0)
        excess = torch.where((share > 0) & (share < 1), excess, torch.zeros_like(excess))
        best = excess.topk(self.n_words, dim=1)
        return best.indices, best.values > 0

    def of(self, classes: Tensor, words: Tensor) -> Tensor:
        """Return the group of images, int64 ``(n,)``, below ``n_classes * per_class``."""
        tied, exists = self.tied()
        own = padded(words, self.having).gather(1, tied[classes]) * exists[classes]
        return classes * self.per_class + own.sum(dim=1).long()

    def share(self) -> Tensor:
        """Return the share of each group in all images so far, float ``(groups,)``."""
        return self.members / self.members.sum().clamp(min=1)


def balanced_weights(groups: WordGroups, classes: Tensor, words: Tensor, *, count: bool) -> Tensor:
    """Return weights with which the groups of a class weigh the same, and so do classes.

    An image weighs 1 / (G n), with n the images of its group so far and G the groups of its class
    that have any.

    Args:
        groups: of the images so far.
        classes: int64 ``(*shape)``.
        words: bool ``(*shape, w)``.
        count: whether to count these images first.

    Returns:
        float ``(*shape)``.
    """
    flat, shown = classes.flatten(), words.reshape(-1, words.shape[-1])
    if count:
        groups.observe(flat, shown)
    own = groups.of(flat, shown)
    exist = (groups.members.unflatten(0, (-1, groups.per_class)) > 0).sum(dim=1).clamp(min=1)
    weights = 1 / (exist[flat] * groups.members[own].clamp(min=1))
    return weights.reshape(classes.shape)


def check_words(n_words: int, most_words: int) -> None:
    """Check the options that groups have.

    Raises:
        OptionError: one is outside its range.
    """
    check_at_least(1, n_words=n_words, most_words=most_words)
    if n_words > most_words:
        raise OptionError(f"n_words must be at most most_words, {most_words}, got {n_words}")


def need_labels(base: FewShotMethod) -> None:
    """Check that a base learns from labelled episodes or batches, without views.

    Raises:
        OptionError: it does not.
    """
    name = type(base).__name__
    if base.learns_from == "nothing":
        raise OptionError(
            f"base must be a method that learns, as protonet does, but {name} does not"
        )
    if base.views is not None or not base.uses_labels:
        raise OptionError(
            f"base must learn from labels, without views of the images, but {name} does not"
        )


def padded(words: Tensor, like: Tensor) -> Tensor:
    """Return words ``(n, w)`` as floats, with columns of zeros up to those of another table.

    Raises:
        OptionError: there are more words.
    """
    most, own = like.shape[1], words.shape[1]
    if own > most:
        raise OptionError(f"most_words must be at least the number of words, {own}, got {most}")
    return nn.functional.pad(words.to(like.dtype), (0, most - own))


def words_of_items(batch: Batch, user: FewShotMethod) -> Tensor:
    """Return the words of the ``items`` of a step, bool ``(n, w)``.

    Raises:
        OptionError: the step has none.
    """
    if batch.words is None:
        raise OptionError(f"{type(user).__name__} needs the words of the training images")
    return batch.words


def words_of_queries(batch: Batch, user: FewShotMethod) -> Tensor:
    """Return the words of the queries of a step, bool ``(tasks, n, w)``.

    Raises:
        OptionError: the step has none.
    """
    if batch.query_words is None:
        raise OptionError(f"{type(user).__name__} needs the words of the training images")
    return batch.query_words


def redrawn(
    batch: Batch,
    *,
    items: Tensor | None = None,
    support: Tensor | None = None,
    query: Tensor | None = None,
) -> Batch:
    """Draw the images of a step again, with replacement, in proportion to weights.

    An image of ``items`` is replaced by any of them, a support image or a query by one of the same
    way of its task, so that each way keeps its numbers. For a loss that is a mean over images, the
    expected loss is that with these weights.

    Args:
        items: float ``(n,)``, positive; ``None`` leaves the images as they are.
        support: float ``(tasks, way, shot)``.
        query: float ``(tasks, n)``.
    """
    drawn: dict[str, Tensor | None] = {}
    if items is not None:
        index = _drawn(items, len(items))
        for name in ("items", "classes", "words", "teacher_logits"):
            rows = getattr(batch, name)
            drawn[name] = None if rows is None else rows.index_select(0, index)
    if support is not None:
        index = _drawn(support, support.shape[-1])
        for name in ("support", "support_classes", "support_words"):
            drawn[name] = _taken(getattr(batch, name), index)
    if query is not None:
        labels = batch.query_labels
        assert labels is not None
        same = labels[:, :, None] == labels[:, None, :]
        index = _drawn(query[:, None, :] * same, 1)[..., 0]
        for name in ("query", "query_classes", "query_words"):
            drawn[name] = _taken(getattr(batch, name), index)
    return dataclasses.replace(batch, **drawn)


def _drawn(weights: Tensor, count: int) -> Tensor:
    """Draw columns in each row of weights ``(..., n)``, int64 ``(..., count)``."""
    ends = weights.cumsum(dim=-1)
    at = torch.rand(*weights.shape[:-1], count, dtype=ends.dtype, device=ends.device)
    found = torch.searchsorted(ends, at * ends[..., -1:], right=True)
    return found.clamp(max=weights.shape[-1] - 1)


def _taken(rows: Tensor | None, index: Tensor) -> Tensor | None:
    """Return entries of the dimension that an index ``(..., m)`` ends with."""
    if rows is None:
        return None
    leading, n = index.shape[:-1].numel(), rows.shape[index.ndim - 1]
    first = n * torch.arange(leading, device=index.device)[:, None]
    flat = rows.reshape(leading * n, *rows.shape[index.ndim :])
    found = flat.index_select(0, (index.reshape(leading, -1) + first).flatten())
    return found.reshape(*index.shape, *rows.shape[index.ndim :])
