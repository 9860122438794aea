"""Each check of detectors rejects the one broken component made for it, and nothing else does."""

import numpy as np
import pytest

from fsframework.interfaces import AttributeDetector, Captioner, ImageTextModel, WordSelector
from fsframework.testing import check_component, checks_for, parametrize_with_checks
from tests.misdeclared import hashed, misdeclared

CHANNELS = "red", "green", "blue"


class Brightest(AttributeDetector):
    """Name the channels whose mean exceeds a level."""

    def __init__(self, *, level: float = 100.0):
        self.level = level

    def detect(self, images):
        return [self.words(image) for image in images]

    def provenance(self):
        return {"level": repr(self.level)}

    def words(self, image):
        means = image.reshape(-1, 3).mean(axis=0)
        return frozenset(n for n, m in zip(CHANNELS, means, strict=True) if m > self.level)


class NoDetector:
    """It has the methods but not the interface."""

    def detect(self, images):
        return [frozenset() for _ in images]


class Positional(Brightest):
    """A positional option."""

    def __init__(self, level: float = 100.0):
        super().__init__(level=level)


class Doubled(Brightest):
    """An option that is stored as another value."""

    def __init__(self, *, level: float = 100.0):
        super().__init__(level=2 * level)


class Silent(Brightest):
    pass


class Lists(Brightest):
    """Words in lists."""

    def words(self, image):
        return sorted(super().words(image))


class Joined(Brightest):
    """Words with the space after a comma."""

    def words(self, image):
        return frozenset({" grey"}) | super().words(image)


class NeedsImages(Brightest):
    """No images raise an error."""

    def detect(self, images):
        self.words(images[0])
        return super().detect(images)


class Stacked(Brightest):
    """All images in one array."""

    def detect(self, images):
        return super().detect(np.stack(images) if images else images)


class Edged(Brightest):
    """It compares neighbours, which one line of pixels lacks."""

    def words(self, image):
        return super().words(image) | {f"edges {np.abs(np.diff(image, axis=0)).max() > 0}"}


class Rounding(Brightest):
    """Provenance rounds an option."""

    def provenance(self):
        return {"level": f"{self.level:.0f}"}


class Relative(Brightest):
    """Brighter than the other images."""

    def detect(self, images):
        level = np.mean([image.mean() for image in images]) if images else 0
        return [frozenset({"bright"} if image.mean() > level else ()) for image in images]


class Flat(Brightest):
    """Reads bytes in the order of memory."""

    def words(self, image):
        pixels = np.frombuffer(image.tobytes("A"), np.uint8)
        return super().words(pixels[: max(3, len(pixels) // 6 * 3)].reshape(-1, 1, 3))


class Growing(Brightest):
    """Words of earlier images are repeated."""

    def __init__(self, *, level: float = 100.0):
        super().__init__(level=level)
        self._calls = 0

    def words(self, image):
        return super().words(image) | {"again"} if self._calls > 1 else super().words(image)

    def detect(self, images):
        self._calls += 1
        return super().detect(images)


class InPlace(Brightest):
    """Blackens its input."""

    def detect(self, images):
        found = super().detect(images)
        for image in images:
            image[:] = 0
        return found


class Sounds(Brightest):
    """It declares an unknown input."""

    consumes = "sounds"


class Known(AttributeDetector):
    """The words in the records."""

    consumes = "records"

    def detect(self, images):
        return [
            frozenset(map(str.strip, image.metadata["words"].split(";"))) - {""} for image in images
        ]


class Literal(Known):
    """The white space of the records is kept within words."""

    def detect(self, images):
        return [
            frozenset(f"word {word}" for word in image.metadata["words"].split(";"))
            for image in images
        ]


class Untold(Brightest):
    """Its provenance does not tell of an option."""

    def provenance(self):
        return {}


class Hashed(Brightest):
    """The words depend on the hashes of the process."""

    def words(self, image):
        return frozenset(f"{word}{hashed()}" for word in super().words(image))


class Capitals(WordSelector):
    """Words in capital letters."""

    def select(self, captions):
        return [frozenset(w for w in c.split() if w.isupper()) for c in captions]


class Telling(Captioner):
    """Name the brightest channel."""

    def __init__(self, *, selector: WordSelector | None = None):
        self.selector = selector or Capitals()

    def describe(self, images):
        brightest = [CHANNELS[int(image.mean(axis=(0, 1)).argmax())] for image in images]
        return [f"an image that is mostly {channel.upper()}" for channel in brightest]


class Sorter:
    """Selects words but is not a WordSelector."""

    def select(self, captions):
        return [frozenset(caption.split()) for caption in captions]


class Sorted(Telling):
    """A captioner whose selector is not a plugin."""

    def __init__(self):
        super().__init__()
        self.selector = Sorter()


class Deaf(Telling):
    """Its words are not those of its captions."""

    def detect(self, images):
        return [frozenset({"image"}) for _ in images]


class Seeing(Brightest, ImageTextModel):
    """Features from the amount of each channel."""

    def image_features(self, images):
        means = np.array([image.reshape(-1, 3).mean(axis=0) + 1 for image in images])
        return means / np.linalg.norm(means, axis=1, keepdims=True)

    def text_features(self, texts):
        found = np.array([[1 + text.count(letter) for letter in "rgb"] for text in texts])
        return found / np.linalg.norm(found, axis=1, keepdims=True)


class Centred(Seeing):
    """Features minus their mean, which depends on the others."""

    def image_features(self, images):
        found = super().image_features(images)
        found = found - found.mean(axis=0) / 2
        return found / np.linalg.norm(found, axis=1, keepdims=True)


class Numbers(Brightest):
    """Provenance that is not strings."""

    def provenance(self):
        return {"level": self.level}


BROKEN = {
    "check_construction": NoDetector,
    "check_options_typed": Positional,
    "check_options_stored": Doubled,
    "check_summary": Silent,
    **misdeclared(Brightest),
    "check_consumes": Sounds,
    "check_one_set_an_image": Lists,
    "check_words": Joined,
    "check_records_spelling": Literal,
    "check_no_images": NeedsImages,
    "check_images_independent": Relative,
    "check_mixed_sizes": Stacked,
    "check_memory_order": Flat,
    "check_no_memory": Growing,
    "check_images_unchanged": InPlace,
    "check_selector": Sorted,
    "check_captions": Deaf,
    "check_features": Centred,
    "check_provenance": Numbers,
    "check_options_told": Untold,
    "check_fresh_process": Hashed,
}


@parametrize_with_checks([Brightest, Known, Telling, Seeing])
def test_a_sound_detector_passes(make, check):
    check(make)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", BROKEN)
def test_only_its_check_rejects(name, failing):
    assert failing(BROKEN[name], "detector") == {name}


@pytest.mark.parametrize(
    ("detector", "check"), [(Edged, "check_mixed_sizes"), (Rounding, "check_options_told")]
)
def test_small_images_and_small_differences_are_tried(detector, check, failing):
    assert failing(detector, "detector") == {check}


def test_every_check_has_its_broken_detector():
    assert list(BROKEN) == [check.__name__ for check in checks_for("detector")]


def test_a_captioner_without_a_selector_is_told_so():
    class Unsorted(Telling):
        """A captioner that forgets its selector."""

        def __init__(self):
            pass

    found = {result.name: result.message for result in check_component(Unsorted)}
    assert found["check_selector"] == "a captioner must set self.selector"
