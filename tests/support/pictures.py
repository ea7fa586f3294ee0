"""Small images, and a pool file's worth of workers that see them."""

import io
from typing import Any

from PIL import Image

from conductor_core.chat.images import prepare
from conductor_core.chat.messages import ImagePart, LoadedImage


def encoded(kind: str = "PNG", size: tuple[int, int] = (40, 30), colour: Any = (200, 30, 30), **options: Any) -> bytes:
    """Returns the bytes of an image of one colour."""
    mode = options.pop("mode", "RGB")
    file = io.BytesIO()
    Image.new(mode, size, colour).save(file, kind, **options)
    return file.getvalue()


def picture(colour: tuple[int, int, int] = (200, 30, 30), size: tuple[int, int] = (40, 30)) -> LoadedImage:
    return prepare(encoded(size=size, colour=colour), "picture")


def part(loaded: LoadedImage | None = None) -> ImagePart:
    return ImagePart.of(loaded or picture())
