"""Prepares an image that a person gives: checks it by its content, bounds it, and removes all but its pixels.

What is kept is encoded again from the pixels, so no metadata (place, camera, author) and no hidden data goes to a
provider.
"""

import hashlib
import io
import warnings
from pathlib import Path

from PIL import Image, ImageOps, UnidentifiedImageError

from conductor_core.chat.messages import ImageType, LoadedImage
from conductor_core.errors import BadInput
from conductor_core.files import Unread, read_named
from conductor_core.privacy.masking import one_line

MOST_FILE_BYTES = 20 << 20
MOST_PIXELS = 25_000_000
"""Of a file, as its first bytes say: nothing larger is unpacked."""
MOST_SIDE = 2048
"""Pixels. Providers scale larger images down themselves (OpenAI's to 2,048, Anthropic's to at most 2,576)."""
MOST_KEPT_BYTES = 3_700_000
"""In base64 just below the 5 MB that Anthropic takes for one image (its documentation, "Vision")."""
FORMATS = ("PNG", "JPEG", "WEBP", "GIF")

_JPEG_QUALITIES = (90, 75, 50, 25, 10)
"""The first that is small enough is taken."""


def read_image(path: Path) -> LoadedImage:
    """Reads and prepares an image file. Raises: BadInput."""
    name = f"image {one_line(str(path), limit=120)}"
    try:
        return prepare(read_named(path, MOST_FILE_BYTES), name)
    except Unread as error:
        raise BadInput(f"{name}: {error}") from error


def prepare(raw: bytes, name: str) -> LoadedImage:
    """Returns an image turned upright, at most ``MOST_SIDE`` pixels wide and high, as PNG or JPEG without metadata.

    Args:
        name: of the image, for messages.

    Raises: BadInput for what is no image of a known format, too large, or damaged.
    """
    if not raw:
        raise BadInput(f"{name}: it is empty")
    if len(raw) > MOST_FILE_BYTES:
        raise BadInput(f"{name}: it has more than {MOST_FILE_BYTES >> 20} MiB")
    pixels, kind = _decoded(raw, name)
    return _loaded(pixels, *_encoded(pixels, kind))


def checked(data: bytes, sha256: str, name: str) -> LoadedImage:
    """Returns an image as ``prepare`` made it elsewhere, if it is one and has this digest. Raises: BadInput."""
    if hashlib.sha256(data).hexdigest() != sha256:
        raise BadInput(f"{name}: an image is not the one that the run names")
    if len(data) > MOST_KEPT_BYTES:
        raise BadInput(f"{name}: an image has more than {MOST_KEPT_BYTES} bytes")
    pixels, kind = _decoded(data, name)
    types: dict[str, ImageType] = {"PNG": "image/png", "JPEG": "image/jpeg"}
    if kind not in types:
        raise BadInput(f"{name}: an image is neither PNG nor JPEG")
    return _loaded(pixels, data, types[kind])


def _loaded(pixels: Image.Image, data: bytes, media_type: ImageType) -> LoadedImage:
    return LoadedImage(
        sha256=hashlib.sha256(data).hexdigest(),
        media_type=media_type,
        width=pixels.width,
        height=pixels.height,
        size_bytes=len(data),
        data=data,
    )


def _decoded(raw: bytes, name: str) -> tuple[Image.Image, str]:
    """Returns the pixels and the format. Of a moving image it returns the first frame. Raises: BadInput."""
    try:
        with warnings.catch_warnings():
            # Our own bound is below the size at which Pillow warns.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(raw), formats=FORMATS) as image:
                if image.width * image.height > MOST_PIXELS:
                    size = f"{image.width:,} x {image.height:,} pixels"
                    raise BadInput(f"{name}: it has {size}; at most {MOST_PIXELS // 1_000_000} megapixels are taken")
                kind = image.format or ""
                image.load()
                upright = ImageOps.exif_transpose(image)
                upright.thumbnail((MOST_SIDE, MOST_SIDE), Image.Resampling.LANCZOS)
                return _plain(upright), kind
    except UnidentifiedImageError:
        raise BadInput(f"{name}: not a PNG, JPEG, WebP or GIF image, whatever its name ends in") from None
    except Image.DecompressionBombError:
        raise BadInput(f"{name}: it has more than {MOST_PIXELS // 1_000_000} megapixels") from None
    except BadInput:
        raise
    except Exception as error:  # a decoder may raise anything at damaged bytes
        raise BadInput(f"{name}: it is damaged: {one_line(str(error), limit=120)}") from error


def _plain(image: Image.Image) -> Image.Image:
    if image.mode not in ("L", "RGB", "RGBA"):
        transparent = "transparency" in image.info or image.mode in ("LA", "PA", "La", "RGBa")
        image = image.convert("RGBA" if transparent else "RGB")
    plain = Image.new(image.mode, image.size)
    plain.paste(image)
    return plain


def _encoded(pixels: Image.Image, kind: str) -> tuple[bytes, ImageType]:
    """A photograph stays a JPEG; all else is a PNG, unless that would be too large for a provider."""
    if kind != "JPEG" and len(data := _saved(pixels, "PNG")) <= MOST_KEPT_BYTES:
        return data, "image/png"
    flat = _on_white(pixels)
    for quality in _JPEG_QUALITIES:
        data = _saved(flat, "JPEG", quality=quality)
        if len(data) <= MOST_KEPT_BYTES:
            break
    return data, "image/jpeg"


def _on_white(pixels: Image.Image) -> Image.Image:
    if pixels.mode != "RGBA":
        return pixels
    white = Image.new("RGB", pixels.size, "white")
    white.paste(pixels, mask=pixels.getchannel("A"))
    return white


def _saved(pixels: Image.Image, kind: str, **options: int) -> bytes:
    file = io.BytesIO()
    pixels.save(file, kind, **options)
    return file.getvalue()
