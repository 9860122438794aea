"""What every attribute detector must keep."""

from __future__ import annotations

import numpy as np

from fsframework.interfaces.detector import AttributeDetector
from fsframework.testing._suite import Make, Suite, require
from fsframework.testing.toys import toy_images

suite = Suite(AttributeDetector)


@suite.check()
def check_one_set_an_image(make: Make) -> None:
    """``detect`` gives a list with one frozenset an image."""
    images = toy_images()
    found = make().detect(images)
    require(isinstance(found, list), f"it must be a list, not {type(found).__name__}")
    require(len(found) == len(images), f"{len(images)} images must give as many, not {len(found)}")
    for words in found:
        require(
            isinstance(words, frozenset),
            f"the words of an image must be a frozenset, not {type(words).__name__}",
        )


@suite.check(after=[check_one_set_an_image])
def check_words(make: Make) -> None:
    """Words are strings, not empty and without space around them."""
    for word in frozenset().union(*make().detect(toy_images())):
        require(isinstance(word, str), f"a word must be a string, not {word!r}")
        require(word and word == word.strip(), f"{word!r} is no word: empty or with space around")


@suite.check()
def check_no_images(make: Make) -> None:
    """No images give an empty list."""
    found = make().detect([])
    require(found == [], f"no images must give [], not {found!r}")


@suite.check(after=[check_one_set_an_image])
def check_mixed_sizes(make: Make) -> None:
    """The images of one call may each have its own size."""
    images = [*toy_images(1, 48, 48), *toy_images(1, 40, 64), *toy_images(1, 96, 33)]
    count = len(make().detect(images))
    require(count == len(images), f"{len(images)} images must give as many sets, not {count}")


@suite.check(after=[check_one_set_an_image])
def check_images_independent(make: Make) -> None:
    """The words of an image do not depend on the images beside it."""
    together = make().detect(toy_images())
    for index, image in enumerate(toy_images()):
        [alone] = make().detect([image])
        require(
            alone == together[index],
            f"image {index} has the words {sorted(alone)} alone, "
            f"{sorted(together[index])} in a batch",
        )


@suite.check(after=[check_one_set_an_image])
def check_no_memory(make: Make) -> None:
    """Earlier images leave no trace: asked again, the words are the same."""
    detector = make()
    first = detector.detect(toy_images())
    detector.detect(toy_images()[::-1])
    again = detector.detect(toy_images())
    require(again == first, "the same images give other words the second time")


@suite.check(after=[check_one_set_an_image])
def check_images_unchanged(make: Make) -> None:
    """The images are not changed."""
    images = toy_images()
    make().detect(images)
    same = all(map(np.array_equal, images, toy_images()))
    require(same, "detect changes the pixels it is given")
