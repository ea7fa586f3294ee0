"""Loads the images that messages name, before a worker gets them."""

import asyncio
from collections.abc import Callable, Iterable

from conductor_core.chat import Message
from conductor_core.errors import BadInput, ContentMissing
from conductor_core.message_parts import ImagePart, LoadedImage, images_in

ReadContent = Callable[[str], tuple[str, bytes]]
"""Returns the media type and bytes of a content by its digest. Blocks. Raises: ContentMissing, StoreError."""


async def loaded(messages: tuple[Message, ...], read: ReadContent | None) -> tuple[Message, ...]:
    """Returns ``messages`` with the bytes of their images. Raises: ContentMissing, StoreError."""
    if not any(images_in(message.content) for message in messages):
        return messages
    return await asyncio.to_thread(lambda: tuple(_loaded(message, read) for message in messages))


def require_contents(images: Iterable[ImagePart], read: ReadContent | None) -> None:
    """Raises: BadInput if the bytes of an image are not kept; StoreError."""
    for image in images:
        try:
            _load(image, read)
        except ContentMissing as error:
            raise BadInput(f"{image.described} cannot be used: {error}") from error


def _loaded(message: Message, read: ReadContent | None) -> Message:
    if isinstance(message.content, str):
        return message
    parts = (_load(part, read) if isinstance(part, ImagePart) else part for part in message.content)
    return message.model_copy(update={"content": tuple(parts)})


def _load(image: ImagePart, read: ReadContent | None) -> LoadedImage:
    if read is None:
        raise ContentMissing("nothing is kept here that it could be read from")
    return LoadedImage(**image.model_dump(), data=read(image.sha256)[1])
