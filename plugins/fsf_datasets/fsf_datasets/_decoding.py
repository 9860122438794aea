"""Decoding image files within limits on their formats and sizes."""

from __future__ import annotations

import warnings
from typing import BinaryIO

import numpy as np
from PIL import Image, ImageOps

__all__ = ["MOST_BYTES", "decode"]

MOST_BYTES = 1 << 29
"""Size of an encoded image."""

_MOST_PIXELS = 89_478_485
"""The number of pixels above which Pillow suspects a decompression bomb."""

_FORMATS = ("PNG", "JPEG", "BMP", "WEBP", "GIF", "PPM", "TIFF")
"""The formats of the file extensions, and TIFF, which some files with these extensions contain.
Pillow knows others, of which some start another program."""

# Images above the limit are refused below, with the reason.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning, append=True)


def decode(stream: BinaryIO, min_size: int | None = None) -> Image.Image:
    """Return an image in RGB, rotated according to its EXIF orientation.

    Transparent pixels are blended with white, 16-bit grey is scaled to 8 bits, and the first frame
    of an animation is used.

    Args:
        stream: the encoded image.
        min_size: decode JPEG files at any scale of at least so many pixels, if it is given.

    Raises:
        ValueError: the image is too large.
        Exception: it is damaged; the type depends on the format.
    """
    with Image.open(stream, formats=_FORMATS) as image:
        if image.width * image.height > _MOST_PIXELS:
            raise ValueError(
                f"it has {image.width:,} x {image.height:,} pixels; at most {_MOST_PIXELS:,} are "
                "read"
            )
        if min_size is not None:
            image.draft(None, (min_size, min_size))  # no effect on other formats
        return _to_rgb(image)


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # 16-bit grey, which Pillow would clip at 255
        grey = np.asarray(image, dtype=np.int64)
        image = Image.fromarray(((grey + 128) // 257).clip(0, 255).astype(np.uint8))
    image.load()
    ImageOps.exif_transpose(image, in_place=True)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image)
    return image if image.mode == "RGB" else image.convert("RGB")
