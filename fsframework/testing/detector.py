"""Checks of attribute detectors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fsframework.errors import FsfError
from fsframework.interfaces.detector import AttributeDetector, Captioner, ImageTextModel
from fsframework.interfaces.selector import WordSelector
from fsframework.testing._example import given_pool, note_call, size
from fsframework.testing._suite import (
    ConformanceError,
    Make,
    NotApplicable,
    Suite,
    check_options_stored,
    require,
    variants,
)
from fsframework.testing._words import (
    ToldExactly,
    require_one_spelling,
    require_same_words,
    require_words,
)
from fsframework.testing.toys import toy_images, toy_records
from fsframework.values import ImagePool, ImageRecord

suite = Suite(AttributeDetector, takes_pool=True)


_MANY = 40


def _toys(detector: AttributeDetector, count: int = 4) -> Sequence[Any]:
    """Return images or records, of the author's pool if there is one; it may have fewer."""
    count, pool = size("images", count), given_pool()
    note_call(f"detect({'records' if detector.consumes == 'records' else 'images'}[:{count}])")
    if detector.consumes != "records":
        return toy_images(count)
    return toy_records(count) if pool is None else _records(pool)[:count]


def _records(pool: ImagePool) -> list[ImageRecord]:
    """Return what is known of each image of a pool."""
    columns = {name: [*column] for name, column in pool.metadata.items()}
    return [
        ImageRecord(key, {name: column[place] for name, column in columns.items()})
        for place, key in enumerate(pool.keys)
    ]


@suite.check()
def check_consumes(make: Make) -> None:
    """``consumes`` is "pixels" or "records"."""
    found = make().consumes
    require(found in ("pixels", "records"), f"it must be 'pixels' or 'records', not {found!r}")


@suite.check(after=[check_consumes])
def check_one_set_an_image(make: Make) -> None:
    """``detect`` returns a list with one frozenset per image, the same again each time."""
    detector = make()
    images = _toys(detector)
    found = detector.detect(images)
    require(isinstance(found, list), f"it must be a list, not {type(found).__name__}")
    require(
        len(found) == len(images),
        f"{len(images)} images must give {len(images)} sets, not {len(found)}",
    )
    for words in found:
        require(
            isinstance(words, frozenset),
            f"the words of an image must be a frozenset, not {type(words).__name__}",
        )
    for place, (words, again) in enumerate(zip(found, make().detect(_toys(detector)), strict=True)):
        require(
            words == again,
            f"image {place} has the words {sorted(words)}, a second time {sorted(again)}",
        )


@suite.check(after=[check_one_set_an_image])
def check_words(make: Make) -> None:
    """Words are non-empty strings without surrounding spaces, semicolons or line breaks.

    No two words differ in case, hyphens or spaces only.
    """
    detector = make()
    found = detector.detect(_toys(detector, _MANY))
    require_words(found)
    require_one_spelling(found)


@suite.check(after=[check_words])
def check_records_spelling(make: Make) -> None:
    """The order of a record's words, and white space around them, change nothing."""
    detector = make()
    if detector.consumes != "records":
        raise NotApplicable("it does not read records")
    records = [record for record in _toys(detector) if "words" in record.metadata]
    expected = detector.detect(records)
    for what, respelt in (
        ("another order of words", lambda text: ";".join(text.split(";")[::-1])),
        ("white space around words", lambda text: text.replace(";", " ; ")),
        ("a separator at the end", lambda text: f"{text};"),
    ):
        changed = [
            ImageRecord(r.key, {**r.metadata, "words": respelt(r.metadata["words"])})
            for r in records
        ]
        found = detector.detect(changed)
        require(found == expected, f"{what} changes the words to {[*map(sorted, found)]}")


@suite.check()
def check_no_images(make: Make) -> None:
    """No images give an empty list."""
    found = make().detect([])
    require(found == [], f"no images must give [], not {found!r}")


@suite.check(after=[check_one_set_an_image])
def check_images_independent(make: Make) -> None:
    """The words of an image do not depend on the other images."""
    detector = make()
    images = _toys(detector, _MANY)
    together, count = detector.detect(images), len(images)
    for part in (*(slice(i, i + 1) for i in (0, 1, 2, count - 1)), slice(14, 6, -1)):
        places = range(count)[part]
        for index, words in zip(places, make().detect(_toys(detector, _MANY)[part]), strict=True):
            require(
                words == together[index],
                f"image {index} has the words {sorted(words)} apart from the others, "
                f"{sorted(together[index])} among {count}",
            )


@suite.check(after=[check_images_independent])
def check_mixed_sizes(make: Make) -> None:
    """The images of one call may have different sizes; one pixel or a line is an image too.

    A detector that needs more pixels refuses an image with an error for the user.
    """
    detector = make()
    if detector.consumes == "records":
        raise NotApplicable("it does not read pixels")
    shapes = (48, 48), (96, 33), (40, 64), (64, 64), (33, 96), (40, 64), (24, 24), (48, 48)
    images = [toy_images(place + 1, *shape)[place] for place, shape in enumerate(shapes)]
    together = detector.detect([image.copy() for image in images])
    alone = [words for image in images for words in make().detect([image])]
    require(together == alone, f"images of the sizes {shapes} have other words apart from others")
    for height, width in ((1, 1), (1, _MANY), (_MANY, 1)):
        what = f"an image of {height} x {width} pixels"
        note_call(f"detect([{what}])")
        try:
            found = make().detect(toy_images(1, height, width))
        except FsfError:
            continue
        except Exception as error:
            raise ConformanceError(
                f"{what} must have words or be refused with a DataError; it raises "
                f"{type(error).__name__}: {error}"
            ) from None
        require(len(found) == 1, f"{what} must give one set of words, not {found!r}")


@suite.check(after=[check_one_set_an_image])
def check_memory_order(make: Make) -> None:
    """How an image lies in memory does not matter."""
    detector = make()
    if detector.consumes == "records":
        raise NotApplicable("it does not read pixels")
    found = detector.detect([np.asfortranarray(image) for image in toy_images()])
    require(found == make().detect(toy_images()), "the same pixels give other words")


@suite.check(after=[check_one_set_an_image])
def check_no_memory(make: Make) -> None:
    """The words do not depend on earlier calls."""
    detector = make()
    first = detector.detect(_toys(detector))
    detector.detect(_toys(detector)[::-1])
    again = detector.detect(_toys(detector))
    require(again == first, "the same images give different words the second time")


@suite.check(after=[check_one_set_an_image])
def check_images_unchanged(make: Make) -> None:
    """The images are not changed."""
    detector = make()
    if detector.consumes == "records":
        raise NotApplicable("it does not read pixels")
    images = toy_images()
    detector.detect(images)
    same = all(map(np.array_equal, images, toy_images()))
    require(same, "detect changes its input pixels")


@suite.check()
def check_selector(make: Make) -> None:
    """A captioner has a ``selector`` that is a ``WordSelector``."""
    detector = make()
    if not isinstance(detector, Captioner):
        raise NotApplicable("it is not a captioner")
    try:
        found = detector.selector
    except AttributeError:
        raise ConformanceError("a captioner must set self.selector") from None
    require(
        isinstance(found, WordSelector),
        f"selector must be a WordSelector, not a {type(found).__name__}",
    )


@suite.check(after=[check_one_set_an_image, check_selector])
def check_captions(make: Make) -> None:
    """A captioner gives one string per image; its words are selected from that string."""
    detector = make()
    if not isinstance(detector, Captioner):
        raise NotApplicable("it is not a captioner")
    captions = detector.describe(_toys(detector))
    require(
        isinstance(captions, list) and all(isinstance(c, str) for c in captions),
        f"captions must be a list of strings, not {captions!r}",
    )
    found = detector.detect(_toys(detector))
    require(
        detector.selector.select(captions) == found,
        "the words are not those that its selector selects from its captions",
    )


_TEXTS = (
    *("a photo of a dog", "grass", "a photo of a dog on the grass"),
    *(f"a photo of {number} birds" for number in range(2, 39)),
)
_OFF = 1e-3


@suite.check(after=[check_consumes])
def check_features(make: Make) -> None:
    """An ``ImageTextModel`` gives unit vectors of one length for images and texts.

    Each depends only on its image or text.
    """
    detector = make()
    if not isinstance(detector, ImageTextModel):
        raise NotApplicable("it does not compare texts with images")
    widths = []
    cases: list[tuple[str, Callable[[Sequence[Any]], Any], Sequence[Any]]] = [
        ("images", detector.image_features, toy_images()),
        ("texts", detector.text_features, _TEXTS),
    ]
    for what, give, of in cases:
        found = np.asarray(give(of))
        require(
            found.ndim == 2 and len(found) == len(of),
            f"{len(of)} {what} must give {len(of)} vectors, not an array of shape {found.shape}",
        )
        lengths = np.linalg.norm(found, axis=1)
        require(
            bool(np.all(np.abs(lengths - 1) < _OFF)),
            f"vectors of {what} must have norm 1, not {lengths}",
        )
        for index, one in enumerate(of):
            alone = np.asarray(give([one]))[0]
            off = float(np.abs(alone - found[index]).max())
            require(
                off < _OFF, f"one of the {what} has a different vector separately, by {off:.2g}"
            )
        widths.append(found.shape[1])
    require(
        widths[0] == widths[1],
        f"vectors of images have {widths[0]} numbers and those of texts {widths[1]}",
    )


@suite.check(after=[check_consumes])
def check_provenance(make: Make) -> None:
    """``provenance`` maps names to strings, once the detector is prepared."""
    detector = make()
    detector.prepare(device="cpu", offline=True)
    found = detector.provenance()
    plain = all(isinstance(text, str) for pair in dict(found).items() for text in pair)
    require(plain, f"its keys and values must be strings, not {found!r}")


@suite.check(after=[check_provenance, check_one_set_an_image, check_options_stored])
def check_options_told(make: Make) -> None:
    """``provenance`` differs where an option changes the words, and tells options exactly."""
    detector = make()
    detector.prepare(device="cpu", offline=True)
    images = _toys(detector, _MANY)
    told = dict(detector.provenance())
    expected: list[frozenset[str]] = []
    exact = ToldExactly()
    for option, other in variants(make):
        try:
            other.prepare(device="cpu", offline=True)
            same = dict(other.provenance()) == told
        except FsfError:
            continue  # what this value needs is not here
        exact.note(option, getattr(other, option), same=same)
        if same:
            expected = expected or detector.detect(images)
            require_same_words(option, expected, functools.partial(other.detect, images))


@suite.answers(after=[check_no_memory])
def _answers(make: Make) -> dict[str, Any]:
    detector = make()
    detector.prepare(device="cpu", offline=True)
    words = [sorted(one) for one in detector.detect(_toys(detector))]
    return {"the words": words, "provenance": dict(detector.provenance())}
