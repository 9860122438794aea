"""Base of the data sets of image files: reading, parallel resizing and fingerprints."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import numpy as np
from PIL import Image

from fsf_datasets._decoding import MOST_BYTES, PixelRange, RangeError, decode
from fsf_datasets._messages import reason
from fsf_datasets._trees import Tree
from fsframework.interfaces import DataError, Dataset, OptionError
from fsframework.values import IntArray, UInt8Array, digest_of

__all__ = ["ImageFileDataset", "files_digest"]

_MAX_THREADS = 8


class ImageFileDataset(Dataset):
    """A data set whose image ``i`` is the file ``_files[i]`` of ``_tree``."""

    _tree: Tree
    _files: Sequence[str]
    _pixel_range: PixelRange | None = None
    _takes_pixel_range: ClassVar[bool] = False
    """Whether the user can give the range of pixels, as ``pixel_range``."""

    def image(self, index: int) -> UInt8Array:
        """Return one image, RGB uint8 ``(H, W, 3)``, rotated according to its EXIF orientation.

        Transparent pixels are blended with white, values of more than 8 bits are scaled to 8, and
        the first frame of an animation is used.

        Raises:
            DataError: the image cannot be read, or the range of its values is not known; the
                message names its file.
        """
        return np.asarray(self._rgb(index))

    def images(
        self, indices: Sequence[int] | IntArray, size: int, interpolation: str = "bilinear"
    ) -> UInt8Array:
        """Return images resized to a square, RGB uint8 ``(n, size, size, 3)``.

        Raises:
            DataError: an image cannot be read; the message names its file.
            OptionError: Pillow does not have the interpolation.
        """
        return self._squares(indices, size, interpolation, scaled=False)

    def scaled_images(
        self, indices: Sequence[int] | IntArray, size: int, interpolation: str = "bilinear"
    ) -> UInt8Array:
        """Return approximately the result of ``images``, decoding JPEG files at a reduced scale.

        The scale is the smallest of 1/2, 1/4 and 1/8 that is not smaller than ``size``; the
        discrete cosine transform of 8 x 8 blocks gives it without the fine detail. Other formats
        are decoded as usual. Resizing would remove the omitted detail too, but with another filter.

        Raises:
            DataError: an image cannot be read; the message names its file.
            OptionError: Pillow does not have the interpolation.
        """
        return self._squares(indices, size, interpolation, scaled=True)

    def local_states(self, indices: Sequence[int] | IntArray) -> list[str]:
        """Return for each image a text that changes with any edit of its file."""
        return self._tree.local_states([self._files[i] for i in indices])

    def _squares(
        self, indices: Sequence[int] | IntArray, size: int, interpolation: str, scaled: bool
    ) -> UInt8Array:
        method = _resampling(interpolation)
        out = np.empty((len(indices), size, size, 3), dtype=np.uint8)

        def fill(place: int) -> None:
            image = self._rgb(int(indices[place]), size if scaled else None)
            if image.size != (size, size):
                image = image.resize((size, size), method)
            out[place] = np.asarray(image)

        # Decoding and resizing release the interpreter's lock.
        with ThreadPoolExecutor(_workers()) as pool:
            for _ in pool.map(fill, range(len(indices))):
                pass
        return out

    def _rgb(self, index: int, min_size: int | None = None) -> Image.Image:
        """Return an image, decoded at any scale of at least ``min_size`` pixels if it is given."""
        try:
            with self._tree.open(self._files[index], MOST_BYTES) as stream:
                return decode(stream, min_size, self._pixel_range)
        except FileNotFoundError:
            raise self._unreadable(index, "no such file") from None
        except RangeError as error:
            advice = ""
            if self._takes_pixel_range:
                low, high = error.likely
                advice = (
                    ", or give the data set's option pixel_range, the values of black and white in "
                    f"all images, such as pixel_range={low:g},{high:g}"
                )
            raise self._unreadable(index, f"not a readable image ({error})", advice) from None
        except Exception as error:  # the type of a decoder's error depends on the format
            raise self._unreadable(index, f"not a readable image ({reason(error)})") from error

    def _unreadable(self, index: int, why: str, advice: str = "") -> DataError:
        return DataError(f"{self._place(index)}: {why}{advice}", reason=why)

    def _place(self, index: int) -> str:
        """Return the location of an image for messages: its file."""
        return self._tree.place(self._files[index])


def _workers() -> int:
    """Return the number of decoding threads: ``FSF_WORKERS``, or the number of usable cores."""
    if asked := os.environ.get("FSF_WORKERS", ""):
        if not asked.isdecimal() or int(asked) < 1:
            raise OptionError(f"FSF_WORKERS must be an integer of at least 1, not {asked!r}")
        return int(asked)
    # Not every system reports how many cores this process may use.
    usable = getattr(os, "sched_getaffinity", None)
    return min(_MAX_THREADS, len(usable(0)) if usable is not None else os.cpu_count() or 1)


def _resampling(interpolation: str) -> Image.Resampling:
    try:
        return Image.Resampling[interpolation.upper()]
    except KeyError:
        known = ", ".join(method.name.lower() for method in Image.Resampling)
        raise OptionError(f"interpolation must be one of {known}, not {interpolation!r}") from None


def files_digest(tree: Tree, files: Sequence[str]) -> str:
    """Return a digest of the state of all files: size and modification time, or checksum."""
    return digest_of(tree.states(files))
