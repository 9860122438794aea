"""What tells a run from others, in the words of users."""

from __future__ import annotations

from fsframework.records import RunRecord
from fsframework.statistics.facts import called, text_of

__all__ = ["dataset_of", "intervals_of", "words_of"]


_DROPPING = {
    "drop_class_words": False, "drop_words": [], "drop_words_in_classes": None, "min_count": 1
}  # fmt: skip
"""Options that drop words, with their defaults."""


def dataset_of(record: RunRecord) -> str:
    """Return the data set as users name it, with the folder or file it is read from."""
    if (component := record.components.get("dataset")) is None:
        return record.data.name
    if component.added_as in (None, component.name):
        return component.called
    return f"{component.added_as} ({component.called})"


def words_of(record: RunRecord) -> str:
    """Return where the words of the images come from, and which were dropped."""
    detector, settings = record.components.get("detector"), record.settings
    usual = "those of the tasks" if settings.get("task_file") else "the data set's own"
    source = f"detected by {detector.called}" if detector else settings.get("attributes") or usual
    dropped = {
        name: text_of(settings[name])
        for name, usual in _DROPPING.items()
        if settings.get(name, usual) != usual
    }
    return ", ".join(filter(None, (str(source), called(dropped))))


def intervals_of(record: RunRecord) -> str:
    """Return level, scope and estimator of the intervals; a slash separates different ones."""
    told = [(f"{100 * e.level:g} %", e.scope, e.estimator) for e in record.estimates.values()]
    return " ".join("/".join(dict.fromkeys(part)) for part in zip(*told, strict=True))
