"""Checks of data sets, which read at most forty images."""

from __future__ import annotations

import functools

import numpy as np

from fsframework.errors import FsfError
from fsframework.interfaces.dataset import Dataset
from fsframework.testing._suite import (
    Make,
    Suite,
    check_options_stored,
    require,
    require_option,
    variants,
)
from fsframework.values import IntArray, Texts, digest_of

suite = Suite(Dataset)

_MOST = 40
_SIZE = 24
_SCALED_APART, _RESIZED_APART = 6, 1


def _sample(dataset: Dataset) -> IntArray:
    count = len(dataset.keys)
    return np.unique(np.linspace(0, count - 1, min(_MOST, count)).astype(np.int64))


def _require_strings(values: object, what: str) -> None:
    kind = type(values).__name__
    require(isinstance(values, (tuple, Texts)), f"{what} must be a tuple or Texts, not {kind}")
    assert isinstance(values, (tuple, Texts))
    odd = [value for value in values if not isinstance(value, str)]
    require(not odd, f"{what} must hold strings, not {odd[:1]}")


@suite.check()
def check_keys(make: Make) -> None:
    """Every image has a unique, non-empty key."""
    keys = make().keys
    _require_strings(keys, "keys")
    require(keys, "the data set has no image")
    require("" not in keys, "a key must not be empty")
    require(len(set(keys)) == len(keys), f"{len(keys) - len(set(keys))} keys appear more than once")


@suite.check()
def check_class_names(make: Make) -> None:
    """Class names are unique strings."""
    names = make().class_names
    _require_strings(names, "class_names")
    require(len(set(names)) == len(names), "a class name appears twice")


@suite.check(after=[check_keys, check_class_names])
def check_labels(make: Make) -> None:
    """Every image has a label, an index into ``class_names``."""
    dataset = make()
    labels, count = dataset.labels, len(dataset.class_names)
    require(
        isinstance(labels, np.ndarray) and np.issubdtype(labels.dtype, np.integer),
        f"labels must be an array of integers, not {getattr(labels, 'dtype', type(labels))}",
    )
    expected = (len(dataset.keys),)
    require(labels.shape == expected, f"labels must have shape {expected}, not {labels.shape}")
    require(
        labels.min() >= 0 and labels.max() < count,
        f"labels must be in 0..{count - 1}, not {labels.min()}..{labels.max()}",
    )


@suite.check(after=[check_class_names])
def check_splits(make: Make) -> None:
    """Splits name existing classes, and no class is in two of them."""
    dataset = make()
    require(dataset.splits, "a data set needs at least one split")
    seen: dict[str, str] = {}
    for split, classes in dataset.splits.items():
        _require_strings(classes, f"the split {split!r}")
        for name in classes:
            require(
                name in dataset.class_names,
                f"the split {split!r} names {name!r}, which is not a class",
            )
            other = seen.setdefault(name, split)
            require(other == split, f"the class {name!r} is in the splits {other} and {split}")
        require(len(set(classes)) == len(classes), f"the split {split!r} names a class twice")


@suite.check(after=[check_keys])
def check_metadata(make: Make) -> None:
    """Metadata columns have one string per image."""
    dataset = make()
    for name, column in dataset.metadata.items():
        _require_strings(column, f"metadata {name!r}")
        require(
            len(column) == len(dataset.keys),
            f"metadata {name!r} has {len(column)} entries for {len(dataset.keys)} images",
        )


@suite.check()
def check_declarations(make: Make) -> None:
    """``location`` and ``declared_by`` name options, ``native_size`` is a number of pixels.

    Each of them may be None; ``layout`` is a string.
    """
    dataset = make()
    for name in ("location", "declared_by"):
        option = getattr(dataset, name)
        if option is not None:
            require_option(type(dataset), name, option)
    layout = dataset.layout
    require(isinstance(layout, str), f"layout must be a string, not {layout!r}")
    size = dataset.native_size
    require(
        size is None or (isinstance(size, int) and size > 0),
        f"native_size must be a positive number of pixels or None, not {size!r}",
    )


@suite.check(after=[check_keys])
def check_image(make: Make) -> None:
    """``image`` returns RGB uint8 ``(H, W, 3)``, the same again each time."""
    dataset = make()
    for index in _sample(dataset):
        image = dataset.image(int(index))
        require(
            isinstance(image, np.ndarray) and image.dtype == np.uint8,
            f"image {index} must be an array of uint8, not {getattr(image, 'dtype', type(image))}",
        )
        require(
            image.ndim == 3 and image.shape[2] == 3 and image.size,
            f"image {index} must have shape (H, W, 3), not {image.shape}",
        )
        require(
            np.array_equal(image, dataset.image(int(index))),
            f"image {index} is another when it is read again (does it draw random numbers?)",
        )


@suite.check(after=[check_image])
def check_images_kept(make: Make) -> None:
    """An image stays as it is, whatever else is read and whatever its reader does to it."""
    dataset = make()
    indices = [int(index) for index in _sample(dataset)]
    other = make()
    for index in indices[::-1]:
        other.image(index)
    for index in indices:
        same = np.array_equal(other.image(index), make().image(index))
        require(same, f"image {index} depends on which was read first")
    for read in (dataset.image, lambda index: dataset.images([index], _SIZE)):
        kept = [read(index) for index in indices]
        copies = [image.copy() for image in kept]
        for index, image, copied in zip(indices, kept, copies, strict=True):
            require(
                np.array_equal(image, copied) and np.array_equal(read(index), copied),
                f"image {index} changes when others are read",
            )
            if image.flags.writeable:
                image[:] = 255 - image
            require(
                np.array_equal(read(index), copied),
                f"image {index} is other when it is read again, after its reader changed it",
            )


@suite.check(after=[check_image])
def check_images(make: Make) -> None:
    """``images`` returns uint8 ``(n, size, size, 3)`` for any indices, or for none."""
    dataset = make()
    for indices in (_sample(dataset), _sample(dataset)[:0]):
        found = dataset.images(indices, _SIZE)
        expected = (indices.size, _SIZE, _SIZE, 3)
        require(
            found.dtype == np.uint8 and found.shape == expected,
            f"it must be uint8 of shape {expected}, not {found.dtype} of {found.shape}",
        )


@suite.check(after=[check_images])
def check_images_in_place(make: Make) -> None:
    """The result of ``images`` for an index does not depend on the other indices or their order."""
    dataset = make()
    indices = _sample(dataset)
    together = dataset.images(indices, _SIZE)
    backwards = dataset.images(indices[::-1], _SIZE)[::-1]
    require(np.array_equal(together, backwards), "in reverse order, the images differ")
    for place, index in enumerate(indices):
        alone = dataset.images([int(index)], _SIZE)[0]
        require(
            np.array_equal(alone, together[place]), f"image {index} differs when read separately"
        )


@suite.check(after=[check_images])
def check_images_are_image(make: Make) -> None:
    """Where no resizing is needed, ``images`` returns what ``image`` returns."""
    dataset = make()
    for index in _sample(dataset):
        image = dataset.image(int(index))
        height, width = image.shape[:2]
        if height == width:
            same = np.array_equal(dataset.images([int(index)], height)[0], image)
            require(same, f"images([{index}], {height}) differs from image({index})")


@suite.check(after=[check_images_are_image])
def check_images_resized(make: Make) -> None:
    """``images`` resizes with the interpolation that it is told, as Pillow does.

    Pixels differ by at most 1 of 255 levels on average, and by 6 where the images are ``rendered``.
    """
    dataset = make()
    indices = _sample(dataset)
    most = _SCALED_APART if dataset.rendered else _RESIZED_APART  # a program may render any size
    for interpolation in ("bilinear", "bicubic"):
        found = dataset.images(indices, _SIZE, interpolation)
        expected = Dataset.images(dataset, indices, _SIZE, interpolation)
        apart = float(np.abs(expected.astype(np.int16) - found).mean())
        require(
            apart <= most,
            f"pixels differ by {apart:.1f} levels on average from {interpolation} resizing",
        )


@suite.check(after=[check_images])
def check_scaled_images(make: Make) -> None:
    """``scaled_images`` returns nearly what ``images`` returns, in the same form.

    Pixels differ by at most 6 of 255 levels on average.
    """
    dataset = make()
    indices = _sample(dataset)
    exact, scaled = dataset.images(indices, _SIZE), dataset.scaled_images(indices, _SIZE)
    require(
        scaled.dtype == np.uint8 and scaled.shape == exact.shape,
        f"it must be uint8 of shape {exact.shape}, not {scaled.dtype} of {scaled.shape}",
    )
    apart = float(np.abs(exact.astype(np.int16) - scaled).mean())
    require(
        apart <= _SCALED_APART,
        f"pixels differ from those of images by {apart:.0f} levels on average; at most "
        f"{_SCALED_APART} are allowed",
    )


@suite.check(after=[check_images])
def check_local_states(make: Make) -> None:
    """``local_states`` returns a string per image, the same as long as nothing is edited."""
    dataset = make()
    indices = _sample(dataset)
    found = dataset.local_states(indices)
    require(
        len(found) == len(indices) and all(isinstance(state, str) for state in found),
        f"it must return {len(indices)} strings for {len(indices)} images, not {found!r}",
    )
    require(make().local_states(indices) == found, "two calls differ although nothing was edited")


@suite.check(after=[check_labels, check_splits, check_metadata])
def check_pool(make: Make) -> None:
    """``pool`` holds the images of its split, in the order of ``split_indices``."""
    dataset = make()
    for split, classes in dataset.splits.items():
        indices = dataset.split_indices(split)
        require(np.all(np.diff(indices) > 0), f"split_indices({split!r}) must ascend")
        pool = dataset.pool(split)
        expected = tuple(dataset.keys[i] for i in indices)
        require(
            pool.keys == expected, f"the keys of pool({split!r}) are not those of split_indices"
        )
        found = [pool.class_names[label] for label in pool.labels]
        named = [dataset.class_names[label] for label in dataset.labels[indices]]
        require(found == named, f"pool({split!r}) assigns its images to other classes")
        outside = set(named) - set(classes)
        require(not outside, f"pool({split!r}) has images of {sorted(outside)[:3]}")
        missing = {n for n in classes if np.any(dataset.labels == dataset.class_names.index(n))}
        missing -= set(named)
        require(not missing, f"pool({split!r}) lacks the images of {sorted(missing)[:3]}")


@suite.check()
def check_fingerprint(make: Make) -> None:
    """The fingerprint is a string, the same for two instances."""
    first, second = make().fingerprint, make().fingerprint
    require(first and isinstance(first, str), f"fingerprint must be a string, not {first!r}")
    require(first == second, f"two instances have the fingerprints {first!r} and {second!r}")


@suite.check(after=[check_fingerprint])
def check_pixels_fingerprint(make: Make) -> None:
    """``pixels_fingerprint`` is a string, the same for two instances."""
    first, second = make().pixels_fingerprint, make().pixels_fingerprint
    require(first and isinstance(first, str), f"pixels_fingerprint must be a string, not {first!r}")
    require(first == second, f"two instances have the pixels_fingerprints {first!r} and {second!r}")


@suite.check(
    after=[check_image, check_labels, check_splits, check_metadata, check_pixels_fingerprint]
)
def check_facts_kept(make: Make) -> None:
    """Reading images changes no key, label, split, metadata or fingerprint."""
    dataset = make()
    before = _facts(dataset)
    dataset.images(_sample(dataset), _SIZE)
    for split in dataset.splits:
        dataset.pool(split)
    after = _facts(dataset)
    changed = [name for name in before if before[name] != after[name]]
    require(not changed, f"reading images changes its {' and '.join(changed)}")


@suite.check(after=[check_facts_kept, check_images, check_options_stored])
def check_fingerprints_decide(make: Make) -> None:
    """An option that changes images, labels or splits changes the fingerprints of these."""
    before = _answers(make)
    for option, other in variants(make):
        try:
            after = _answers(functools.partial(_given, other))
        except FsfError:
            continue  # the data have no such form
        changed = {name for name in before if before[name] != after[name]}
        for print_, of in (("pixels fingerprint", {"keys", "images"}), ("fingerprint", _DECIDE)):
            require(
                print_ in changed or not changed & of,
                f"the option {option!r} changes its {' and '.join(sorted(changed & of))}, but the "
                f"{print_} is the same",
            )


def _given(dataset: Dataset) -> Dataset:
    return dataset


_DECIDE = {"keys", "labels", "classes", "splits", "images"}


def _facts(dataset: Dataset) -> dict[str, str]:
    return {
        "keys": digest_of(dataset.keys),
        "labels": digest_of(dataset.labels),
        "classes": digest_of(dataset.class_names),
        "splits": repr({name: tuple(classes) for name, classes in dataset.splits.items()}),
        "metadata": repr(sorted(dataset.metadata.items())),
        "fingerprint": dataset.fingerprint,
        "pixels fingerprint": dataset.pixels_fingerprint,
    }


@suite.answers(after=[check_facts_kept, check_images_kept, check_images_in_place])
def _answers(make: Make) -> dict[str, str]:
    dataset = make()
    return {**_facts(dataset), "images": digest_of(dataset.images(_sample(dataset), _SIZE))}
