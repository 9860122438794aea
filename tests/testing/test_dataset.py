"""Each check of data sets rejects the one broken component made for it, and nothing else does."""

import itertools

import numpy as np
import pytest

from fsframework.interfaces import Dataset
from fsframework.testing import check_component, checks_for, parametrize_with_checks
from tests.misdeclared import hashed, misdeclared

COUNT = itertools.count()


class Plain(Dataset):
    """Twelve images of one colour each, in six classes."""

    argument = "size"
    native_size = 24

    def __init__(self, *, size: int = 24):
        self.size = size
        self.keys = tuple(f"{i:02}.png" for i in range(12))
        self.labels = np.arange(12) % 6
        self.class_names = ("ant", "bee", "cat", "dog", "eel", "fox")
        self.splits = {"train": ("ant", "cat", "eel"), "val": ("bee",), "test": ("dog", "fox")}
        self.metadata = {"context": tuple("snow" if i % 2 else "sand" for i in range(12))}
        self.fingerprint = f"plain-{size}"

    def image(self, index):
        side = self.size + (0 if index % 3 else 8)
        ramp = np.arange(side * side).reshape(side, side, 1) + index * 20
        return np.repeat(ramp % 256, 3, axis=2).astype(np.uint8)


class NoDataset:
    """It has the methods but not the interface."""


class Untyped(Plain):
    """An option without a type."""

    def __init__(self, *, size=24):
        super().__init__(size=size)


class Unstored(Plain):
    """An option that is not stored."""

    argument = "colours"

    def __init__(self, *, colours: int = 3):
        super().__init__()


class Silent(Plain):
    pass


class Fixed(Plain):
    """Without an option."""

    argument = None

    def __init__(self):
        super().__init__()


class TwiceKey(Fixed):
    """A key appears twice."""

    def __init__(self):
        super().__init__()
        self.keys = (*self.keys[:-1], self.keys[0])


class TwiceClass(Fixed):
    """A class name appears twice."""

    def __init__(self):
        super().__init__()
        self.class_names = (*self.class_names[:5], "ant")
        self.splits = {"train": ("cat", "eel")}


class FromOne(Fixed):
    """Labels count from one."""

    def __init__(self):
        super().__init__()
        self.labels = self.labels + 1


class Overlapping(Fixed):
    """A class in two splits."""

    def __init__(self):
        super().__init__()
        self.splits = {"train": ("ant", "bee"), "test": ("bee", "cat")}


class ShortColumn(Fixed):
    """A metadata column that is too short."""

    def __init__(self):
        super().__init__()
        self.metadata = {"context": ("snow",)}


class Placeless(Plain):
    """Images whose location no option sets."""

    location = "path"


class Grey(Plain):
    """Images without channels."""

    def image(self, index):
        return super().image(index)[:, :, 0]


class Noisy(Plain):
    """Images with noise of the global generator."""

    def image(self, index):
        image = super().image(index)
        return image + np.random.randint(0, 9, image.shape, np.uint8)  # noqa: NPY002 - the fault


class Buffered(Plain):
    """Every image is in one buffer, which the next one overwrites."""

    def image(self, index):
        found = super().image(index)
        buffer = vars(self).setdefault(f"_{found.shape}", found)
        buffer[:] = found
        return buffer


class Sorting(Plain):
    """Its splits grow when images are read."""

    def images(self, indices, size, interpolation="bilinear"):
        self.splits = {**self.splits, "read": ()}
        return super().images(indices, size, interpolation)


class Untold(Plain):
    """An option changes the pixels, but not the fingerprints."""

    def __init__(self, *, size: int = 24):
        super().__init__(size=size)
        self.fingerprint = "plain"


class Hashed(Plain):
    """The pixels depend on the hashes of the process."""

    def image(self, index):
        return super().image(index) + np.uint8(hashed())


class Channels(Plain):
    """Images with the channels first."""

    def images(self, indices, size, interpolation="bilinear"):
        return super().images(indices, size, interpolation).transpose(0, 3, 1, 2)


class Ascending(Plain):
    """Images in the order of the file."""

    def images(self, indices, size, interpolation="bilinear"):
        return super().images(sorted(indices), size, interpolation)


class Darker(Plain):
    """Different decoders for one image and for many."""

    def images(self, indices, size, interpolation="bilinear"):
        return super().images(indices, size, interpolation) // 2


class Negative(Plain):
    """Scaled decoding that gives another picture."""

    def scaled_images(self, indices, size, interpolation="bilinear"):
        return 255 - super().scaled_images(indices, size, interpolation)


class Forgetful(Plain):
    """A state of each file that differs at every look."""

    def local_states(self, indices):
        return [f"{next(COUNT)}" for _ in indices]


class Reversed(Plain):
    """A pool whose order differs from its indices."""

    def pool(self, split):
        pool = super().pool(split)
        return type(pool)(pool.keys[::-1], pool.labels[::-1], pool.class_names)


class Unstable(Plain):
    """A fingerprint that differs for every instance."""

    def __init__(self, *, size: int = 24):
        super().__init__(size=size)
        self.fingerprint = f"plain-{next(COUNT)}"


class Restless(Plain):
    """A pixels fingerprint that differs for every instance."""

    @property
    def pixels_fingerprint(self):
        return f"{next(COUNT)}"


class Nearest(Plain):
    """It resizes without interpolation."""

    def images(self, indices, size, interpolation="bilinear"):
        return super().images(indices, size, "nearest")


BROKEN = {
    "check_construction": NoDataset,
    "check_options_typed": Untyped,
    "check_options_stored": Unstored,
    "check_summary": Silent,
    **misdeclared(Plain),
    "check_keys": TwiceKey,
    "check_class_names": TwiceClass,
    "check_labels": FromOne,
    "check_splits": Overlapping,
    "check_metadata": ShortColumn,
    "check_declarations": Placeless,
    "check_image": Grey,
    "check_images_kept": Buffered,
    "check_images": Channels,
    "check_images_in_place": Ascending,
    "check_images_are_image": Darker,
    "check_images_resized": Nearest,
    "check_scaled_images": Negative,
    "check_local_states": Forgetful,
    "check_pool": Reversed,
    "check_fingerprint": Unstable,
    "check_pixels_fingerprint": Restless,
    "check_facts_kept": Sorting,
    "check_fingerprints_decide": Untold,
    "check_fresh_process": Hashed,
}


@parametrize_with_checks([Plain])
def test_a_sound_data_set_passes(make, check):
    check(make)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", BROKEN)
def test_only_its_check_rejects(name, failing):
    assert failing(BROKEN[name], "dataset") == {name}


def test_an_image_that_draws_random_numbers_is_one_failure_which_asks():
    [failed] = [result for result in check_component(Noisy) if not result.passed]
    assert failed.name == "check_image"
    assert "random" in failed.message


def test_every_check_has_its_broken_data_set():
    assert list(BROKEN) == [check.__name__ for check in checks_for("dataset")]


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"declared_by": "file"}, "declared_by names 'file', which is not an option of Wrong"),
        ({"layout": None}, "layout must be a string, not None"),
        ({"native_size": 0}, "native_size must be a positive number of pixels or None, not 0"),
    ],
)
def test_a_wrong_declaration_is_named(declared, message):
    wrong = type("Wrong", (Plain,), {"__doc__": "Wrong.", **declared})
    [failed] = [result for result in check_component(wrong) if not result.passed]
    assert failed.name == "check_declarations"
    assert message in failed.message
