"""Counts and agreement of attributes as text for the terminal."""

from __future__ import annotations

from fsf_tools.attributes.agreement import Agreement, DetectorAgreement
from fsf_tools.attributes.statistics import AttributeStatistics
from fsframework.cli.render import print_table

__all__ = ["print_agreement", "print_statistics"]

_UNUSABLE_SHOWN = 10


def print_statistics(statistics: AttributeStatistics) -> None:
    """Print what ``fsf attributes stats`` found."""
    s, per_image = statistics, statistics.words_per_image
    print(
        f"{_counted(s.images, 'image')} in {_counted(s.classes, 'class', 'classes')}; "
        f"{_part(s.images_without_words, s.images)} without a word, "
        f"{_part(s.images_with_class_words, s.images)} with a word that names its class"
        + (" (--drop-class-words removes such words)" if s.images_with_class_words else "")
    )
    print(
        f"{_counted(s.unique_words, 'unique word')}, {s.words_per_class:,.2f} per class on "
        f"average; words per image: mean {per_image.mean:,.2f}, median {per_image.median:,g}, "
        f"from {per_image.min:,} to {per_image.max:,}"
    )
    _print_pairs(s)
    print()
    tasks = (
        f"tasks of {_counted(s.n_way, 'way')}, {_counted(s.n_shot, 'shot')} and "
        f"{_counted(s.n_query, 'query', 'queries')}"
    )
    if min(s.usable_classes, s.usable_words) < s.n_way:
        print(
            f"No attribute-biased {tasks} can be drawn: they need {s.n_way} classes, each with a "
            f"different word; only {_counted(s.usable_classes, 'class', 'classes')} and "
            f"{_counted(s.usable_words, 'word')} are usable."
        )
    if not s.unusable:
        if s.usable_words >= s.n_way <= s.usable_classes:
            whole = _counted(s.classes, "class", "classes")
            print(f"All {whole} can form attribute-biased {tasks}.")
        return
    print(f"{s.usable_classes:,} of {s.classes:,} classes can form attribute-biased {tasks}:")
    for unusable in s.unusable[:_UNUSABLE_SHOWN]:
        print(f"  {unusable.class_name}: {unusable.reason}")
    if len(s.unusable) > _UNUSABLE_SHOWN:
        print(f"  and {len(s.unusable) - _UNUSABLE_SHOWN:,} more; --json names them all")


def _print_pairs(s: AttributeStatistics) -> None:
    if not s.spurious_pairs:
        print("No word is spurious: none is present in only some images of a class.")
        return
    print(
        f"{_counted(s.spurious_pairs, 'spurious pair')} of class and word: only some images of "
        "the class have the word"
    )
    if s.commonest:
        print()
        print_table(
            ("class", "word", "images", "share of the class"),
            [
                (pair.class_name, pair.word, f"{pair.images:,}", _percent(pair.share))
                for pair in s.commonest
            ],
        )


def print_agreement(found: Agreement, name_a: str, name_b: str) -> None:
    """Print what ``fsf attributes agree`` found for two tables with the given names."""
    print(f"{_counted(found.images, 'image')} in both tables")
    for name, side in ((name_a, found.a), (name_b, found.b)):
        if side.images_only:
            print(f"{_counted(side.images_only, 'image')} only in {name}, left out")
    print(
        f"{_counted(found.shared_words, 'word')} in both vocabularies, "
        f"{_percent(found.jaccard)} of all words of either (Jaccard)"
    )
    print()
    print_table(
        ("table", "detection accuracy", "against", "words", "shared", "only here"),
        [
            (
                name,
                _percent(side.accuracy),
                other,
                f"{side.words:,}",
                _percent(side.shared_share),
                f"{side.unique_words:,}",
            )
            for name, other, side in ((name_a, name_b, found.a), (name_b, name_a, found.b))
        ],
    )
    print()
    print(
        "Detection accuracy: the mean share, over images, of the words of the table 'against' "
        "that the table has too (FewSTAB, Eq. 9)."
    )
    for other, side in ((name_b, found.a), (name_a, found.b)):
        if side.images_without_reference:
            print(
                f"{_counted(side.images_without_reference, 'image')} without a word in {other} "
                f"cannot be evaluated against it and {'is' if _one(side) else 'are'} left out."
            )
    for name, side in ((name_a, found.a), (name_b, found.b)):
        if side.unique:
            words = ", ".join(f"{word.word} ({word.images:,})" for word in side.unique)
            print(f"Most common words that only {name} has, with numbers of images: {words}")


def _one(side: DetectorAgreement) -> bool:
    return side.images_without_reference == 1


def _counted(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _part(number: int, whole: int) -> str:
    share = number / whole
    # A share that rounds to 0 or 100 % must not be shown as such.
    text = (
        f"{100 * share:.1f} %"
        if number in (0, whole) or 0.001 <= share < 0.9995
        else ("under 0.1 %" if share < 0.5 else "over 99.9 %")
    )
    return f"{number:,} ({text})" if number else "none"


def _percent(share: float | None) -> str:
    return "undefined" if share is None else f"{100 * share:.2f} %"
