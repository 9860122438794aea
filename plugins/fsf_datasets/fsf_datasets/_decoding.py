"""Decoding image files within limits on their formats and sizes, and the range of their values."""

from __future__ import annotations

import io
import math
import warnings
from typing import BinaryIO

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError, __version__

from fsf_datasets._messages import kind_of
from fsframework.interfaces import OptionError

__all__ = ["MOST_BYTES", "PixelRange", "RangeError", "check_pixel_range", "decode"]

PixelRange = tuple[float, float]
"""The values that are shown as black and as white."""

MOST_BYTES = 1 << 29
"""Size of an encoded image."""

_MOST_PIXELS = 178_956_970
"""The number of pixels above which Pillow refuses a file as a decompression bomb."""

_FORMATS = ("PNG", "JPEG", "BMP", "DIB", "WEBP", "GIF", "PPM", "TIFF", "JPEG2000") + (
    ("AVIF",) if tuple(map(int, __version__.split(".")[:2])) >= (11, 3) else ()
)
"""The formats of the file extensions. Pillow knows others, of which some start another program."""

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
        stream.seek(0)
        kind = kind_of(stream.read(64)) or f"none of the formats {', '.join(_FORMATS)}"
        raise ValueError(kind) from None
    except Image.DecompressionBombError:
        raise ValueError(f"it has more than {_MOST_PIXELS:,} pixels, the most read") from None
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
    # Pillow reads 16-bit colours as their upper 8 bits, and scales values to the maximum that the
    # header states; once loaded, an image does not tell.
    tags = getattr(image, "tag_v2", {})
    white = _stated_white(image)
    wide = white > 255 and not image.mode.startswith("I")
    if tags and 2 in tags.get(339, ()) and image.mode not in ("I", "F"):
        raise ValueError("its values are signed, of 8 bits; save it with values from 0 to 255")
    if wide and tags.get(284) == 2 and image.tile[0][0] == "raw":
        raise ValueError("its colours of 16 bits are uncompressed planes; save it with 8 bits")
    image.load()
    ImageOps.exif_transpose(image, in_place=True)
    if image.mode == "F" or image.mode.startswith("I"):
        image = _scaled(image, pixel_range, white)
    elif wide:
        _require_full_range(image, pixel_range, white)
    elif image.format in ("BMP", "DIB") and image.getextrema()[3:] == ((0, 0),):
        image = image.convert("RGB")  # of many programs the fourth byte means nothing
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image)
    return image if image.mode == "RGB" else image.convert("RGB")


def _stated_white(image: Image.Image) -> int:
    """Return the value of white that a header states, 65535 if it states none."""
    if image.format == "PPM":
        args = image.tile[0][3]
        return int(args[-1]) if isinstance(args, tuple) and image.mode != "F" else _WHITE
    if image.format == "JPEG2000":
        assert image.fp is not None
        image.fp.seek(0)
        start = image.fp.read(1 << 16).find(b"\xff\x4f\xff\x51")
        image.fp.seek(start + 42)  # the precision of the first component, less 1
        return (2 << (image.fp.read(1)[0] & 0x7F)) - 1
    wide = ";16" in str(image.tile) or image.mode.startswith("I")
    wide = wide or max(getattr(image, "tag_v2", {}).get(258, (8,))) > 8
    return _WHITE if wide else 255


def _scaled(image: Image.Image, pixel_range: PixelRange | None, white: int) -> Image.Image:
    """Return an image of 16-bit or 32-bit values as 8-bit grey."""
    tags = getattr(image, "tag_v2", {})
    values = np.asarray(image)
    if tags.get(258) == (32,) and tags.get(339, (1,)) == (1,):
        values = values.view(np.uint32)  # which Pillow reads as signed
    values = values.astype(np.float32 if image.mode == "F" else np.float64) * (white / _WHITE)
    lowest, highest = float(values.min()), float(values.max())
    if not math.isfinite(lowest + highest):
        raise ValueError("it has values that are not finite numbers")
    is_16_bit = image.mode.startswith("I;16") or image.format in ("PNG", "PPM")
    if pixel_range is None and is_16_bit and image.mode != "F":
        if 0 < highest < _LEAST_HIGHEST and white == _WHITE:
            raise RangeError(
                f"its 16-bit values end at {highest:,.0f} of {_WHITE:,}, as of a camera with fewer "
                "bits, and would be dark; save it with 8 bits",
                (0, (1 << int(highest).bit_length()) - 1),
            )
        pixel_range = (0, white)
    elif pixel_range is None:
        kind = "floats" if image.mode == "F" else "32-bit integers"
        raise RangeError(
            f"its values are {kind} from {lowest:g} to {highest:g}, which do not tell what black "
            "and white are; save it with 8 bits",
            (min(lowest, 0), max(highest, 1)),
        )
    low, high = pixel_range
    grey = np.rint(((values - low) * (255 / (high - low))).clip(0, 255)).astype(np.uint8)
    if tags.get(262) == 0:  # "white is zero", which Pillow ignores
        grey = 255 - grey
    if isinstance(transparent := image.info.get("transparency"), int):
        grey[values == transparent] = 255
    return Image.fromarray(grey)


def _require_full_range(image: Image.Image, pixel_range: PixelRange | None, white: int) -> None:
    """Refuse 16-bit colours that are too dark, or of which another range is to be shown."""
    if pixel_range not in (None, (0, white)):
        raise ValueError(f"16-bit colours are read only from 0 to {white:,}; save it with 8 bits")
    colours = image.convert("RGB").getextrema() if "A" in image.getbands() else image.getextrema()
    # Pillow rounds the values of PPM, and cuts off the lower 8 bits of others.
    near = (int(np.max(colours)) + (image.format != "PPM")) * 256
    if pixel_range is None and white == _WHITE and 256 < near <= _LEAST_HIGHEST:
        top = (1 << (near - 1).bit_length()) - 1
        raise ValueError(
            f"its 16-bit colours end near {near - 1:,} of {white:,}, as of a camera with fewer "
            f"bits, and would be dark; scale them from 0..{top} to 8 bits"
        )
