"""Decoding image files within limits on their formats and sizes, and the range of their values."""

from __future__ import annotations

import io
import math
import warnings
from typing import BinaryIO

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError, __version__

from fsframework.interfaces import OptionError

__all__ = ["MOST_BYTES", "PixelRange", "RangeError", "check_pixel_range", "decode"]

PixelRange = tuple[float, float]
"""The values that are shown as black and as white."""

MOST_BYTES = 1 << 29
"""Size of an encoded image."""

_MOST_PIXELS = 89_478_485
"""The number of pixels above which Pillow suspects a decompression bomb."""

_FORMATS = ("PNG", "JPEG", "BMP", "DIB", "WEBP", "GIF", "PPM", "TIFF", "JPEG2000") + (
    ("AVIF",) if tuple(map(int, __version__.split(".")[:2])) >= (11, 3) else ()
)
"""The formats of the file extensions. Pillow knows others, of which some start another program."""

_SCALED_FORMATS = ("PPM", "JPEG2000")
"""The formats that state the range of their values, which Pillow scales to 16 bits."""

_WHITE = 65535
_LEAST_HIGHEST = 1 << 14
"""What the highest 16-bit value must reach; cameras give 10, 12 or 14 bits."""

_PNG = b"\x89PNG\r\n\x1a\n"
_TEXT_CHUNKS = (b"tEXt", b"zTXt", b"iTXt", b"iCCP")

# Images above the limit are refused below, with the reason; of damaged metadata, such as EXIF, only
# the orientation is used.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning, append=True)
warnings.filterwarnings("ignore", module=r"PIL\.", append=True)


class RangeError(ValueError):
    """The values of an image have more than 8 bits and no known range.

    Args:
        message: what is wrong.
        likely: the range that the values of this image suggest.
    """

    def __init__(self, message: str, likely: PixelRange) -> None:
        super().__init__(message)
        self.likely = likely


def check_pixel_range(pixel_range: PixelRange | None) -> PixelRange | None:
    """Return the range unchanged.

    Raises:
        OptionError: it is not two finite numbers, the lower first.
    """
    if pixel_range is not None:
        low, high = pixel_range
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise OptionError(
                "pixel_range must be two numbers, that of black and a higher one of white, not "
                f"{low:g}, {high:g}"
            )
    return pixel_range


def decode(
    stream: BinaryIO, min_size: int | None = None, pixel_range: PixelRange | None = None
) -> Image.Image:
    """Return an image in RGB, rotated according to its EXIF orientation.

    Transparent pixels are blended with white, and the first frame of an animation or the first
    page of a TIFF is used. Values of 16 bits are scaled from 0..65535. No rule depends on the
    values of one image, which would change its brightness relative to the others of its data set.

    Args:
        stream: the encoded image; seekable.
        min_size: decode JPEG files at any scale of at least so many pixels, if it is given.
        pixel_range: the values that are black and white in images of more than 8 bits; values
            outside are clipped.

    Raises:
        RangeError: ``pixel_range`` is not given, and the values are floats, 32-bit integers, or of
            16 bits and all below 16384.
        ValueError: the image is too large, or in another format.
        Exception: it is damaged; the type depends on the format.
    """
    try:
        return _decoded(stream, min_size, pixel_range)
    except RangeError:
        raise
    except UnidentifiedImageError:
        raise ValueError(f"none of the formats {', '.join(_FORMATS)}") from None
    except ValueError:
        # Pillow refuses sound PNG files whose texts or profile are larger than its limits.
        stream.seek(0)
        if stream.read(len(_PNG)) != _PNG:
            raise
        return _decoded(io.BytesIO(_without_texts(stream.read())), min_size, pixel_range)


def _decoded(stream: BinaryIO, min_size: int | None, pixel_range: PixelRange | None) -> Image.Image:
    with Image.open(stream, formats=_FORMATS) as image:
        if image.width * image.height > _MOST_PIXELS:
            raise ValueError(
                f"it has {image.width:,} x {image.height:,} pixels; at most {_MOST_PIXELS:,} are "
                "read"
            )
        if min_size is not None:
            image.draft(None, (min_size, min_size))  # no effect on other formats
        return _to_rgb(image, pixel_range)


def _without_texts(chunks: bytes) -> bytes:
    """Return a PNG file without its texts and colour profile; ``chunks`` follow its signature."""
    kept, start = [_PNG], 0
    while start < len(chunks):
        end = start + 12 + int.from_bytes(chunks[start : start + 4], "big")
        if chunks[start + 4 : start + 8] not in _TEXT_CHUNKS:
            kept.append(chunks[start:end])
        start = end
    return b"".join(kept)


def _to_rgb(image: Image.Image, pixel_range: PixelRange | None) -> Image.Image:
    # Pillow reads 16-bit colours as their upper 8 bits; once loaded, an image does not tell.
    halved = ";16" in str(image.tile) and not image.mode.startswith("I")
    inverted = getattr(image, "tag_v2", {}).get(262) == 0  # "white is zero", which Pillow ignores
    image.load()
    ImageOps.exif_transpose(image, in_place=True)
    if image.mode == "F" or image.mode.startswith("I"):
        image = _scaled(image, pixel_range, inverted=inverted)
    elif halved:
        _require_full_range(image, pixel_range)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image)
    return image if image.mode == "RGB" else image.convert("RGB")


def _scaled(image: Image.Image, pixel_range: PixelRange | None, *, inverted: bool) -> Image.Image:
    """Return an image of 16-bit or 32-bit values as 8-bit grey."""
    values = np.asarray(image, np.float64 if image.mode == "I" else np.float32)
    lowest, highest = float(values.min()), float(values.max())
    if not math.isfinite(lowest + highest):
        raise ValueError("it has values that are not finite numbers")
    is_16_bit = image.mode.startswith("I;16") or image.format in ("PNG", "PPM")
    if pixel_range is None and is_16_bit and image.mode != "F":
        if 0 < highest < _LEAST_HIGHEST and image.format not in _SCALED_FORMATS:
            raise _too_dark(int(highest), (1 << int(highest).bit_length()) - 1)
        pixel_range = (0, _WHITE)
    elif pixel_range is None:
        kind = "floats" if image.mode == "F" else "32-bit integers"
        raise RangeError(
            f"its values are {kind} from {lowest:g} to {highest:g}, which do not tell what black "
            "and white are; save it with 8 bits",
            (min(lowest, 0), max(highest, 1)),
        )
    low, high = pixel_range
    grey = np.rint(((values - low) * (255 / (high - low))).clip(0, 255)).astype(np.uint8)
    return Image.fromarray(255 - grey if inverted else grey)


def _require_full_range(image: Image.Image, pixel_range: PixelRange | None) -> None:
    """Refuse 16-bit colours that are too dark, or of which another range is to be shown."""
    if pixel_range not in (None, (0, _WHITE)):
        raise ValueError(
            f"colours of 16 bits are read only from 0 to {_WHITE:,}; save it with 8 bits"
        )
    colours = image.convert("RGB").getextrema() if "A" in image.getbands() else image.getextrema()
    highest = int(np.max(colours)) * 257
    if pixel_range is None and 0 < highest < _LEAST_HIGHEST:
        raise _too_dark(highest, _WHITE)  # of colours, no other range can be read


def _too_dark(highest: int, white: int) -> RangeError:
    return RangeError(
        f"its 16-bit values end at {highest:,} of {_WHITE:,}, as of a camera with fewer bits, and "
        "would be dark; save it with 8 bits",
        (0, white),
    )
