"""The parts of a message: text, images, tool calls and their results."""

import base64
from collections.abc import Sequence
from typing import Annotated, Literal, get_args

from pydantic import Field, PositiveInt

from conductor_core.workflow.model import Frozen

ImageType = Literal["image/png", "image/jpeg", "image/webp", "image/gif"]
IMAGE_TYPES: tuple[ImageType, ...] = get_args(ImageType)
Accepted = Literal["text", "image"]
ACCEPTED: tuple[Accepted, ...] = get_args(Accepted)
"""What a worker may say that it accepts."""

IMAGE_PIXELS_PER_TOKEN = 750
"""By this a vision model's input tokens are estimated (Anthropic's documentation, "Vision", image costs)."""
MOST_IMAGE_TOKENS = 1600
"""Above this the estimate does not go, because providers scale larger images down (same source)."""


class TextPart(Frozen):
    kind: Literal["text"] = "text"
    text: str


class ImagePart(Frozen):
    """An image by its digest. The bytes are content: they are kept once, beside the events.

    Attributes:
        sha256: of the bytes. size_bytes: how many they are.
        width, height: in pixels.
    """

    kind: Literal["image"] = "image"
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    media_type: ImageType
    width: PositiveInt
    height: PositiveInt
    size_bytes: PositiveInt

    @classmethod
    def of(cls, loaded: "LoadedImage") -> "ImagePart":
        """Returns a loaded image without its bytes."""
        return cls(**loaded.model_dump())

    @property
    def tokens(self) -> int:
        """The input tokens of the image, by estimate."""
        return min(-(-self.width * self.height // IMAGE_PIXELS_PER_TOKEN), MOST_IMAGE_TOKENS)

    @property
    def described(self) -> str:
        """The image in words, where only text can be shown."""
        kind = self.media_type.partition("/")[2].upper()
        return f"[image: {kind}, {self.width} x {self.height} pixels, sha256 {self.sha256[:12]}]"


class LoadedImage(ImagePart):
    """An image with its bytes, as a worker gets it. No record and no JSON holds the bytes."""

    data: bytes = Field(exclude=True, repr=False)


def image_base64(part: ImagePart) -> str:
    """Returns the bytes of a loaded image as base64. Raises: ValueError if it is not loaded."""
    if not isinstance(part, LoadedImage):
        raise ValueError(f"image {part.sha256} was not loaded before it was sent")
    return base64.b64encode(part.data).decode()


def data_url(part: ImagePart) -> str:
    """Returns a loaded image as a URL that holds it. Raises: ValueError if it is not loaded."""
    return f"data:{part.media_type};base64,{image_base64(part)}"


def data_url_of(media_type: str, data: bytes) -> str:
    """Returns a content as a URL that holds it."""
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


class ToolCallPart(Frozen):
    """A tool that an assistant called. ``arguments`` is JSON as the model wrote it."""

    kind: Literal["tool_call"] = "tool_call"
    call_id: str
    name: str
    arguments: str = ""


class ToolResultPart(Frozen):
    """What the tool of the call ``call_id`` gave back. It stands in a user's message."""

    kind: Literal["tool_result"] = "tool_result"
    call_id: str
    text: str
    is_error: bool = False


Part = Annotated[TextPart | ImagePart | ToolCallPart | ToolResultPart, Field(discriminator="kind")]
Content = str | tuple[Part, ...]
"""What a message says. Text alone is a plain string, as in all older records."""


def content_of(text: str, images: Sequence[ImagePart] = ()) -> Content:
    """Returns ``text`` with images before it, where providers want them."""
    return (*images, TextPart(text=text)) if images else text


def parts_of(content: Content) -> tuple[Part, ...]:
    """Returns the parts of a content; one for plain text."""
    return (TextPart(text=content),) if isinstance(content, str) else content


def images_in(content: Content) -> tuple[ImagePart, ...]:
    """Returns the images of a content, in order."""
    return () if isinstance(content, str) else tuple(part for part in content if isinstance(part, ImagePart))


def in_words(content: Content) -> str:
    """Returns a content as text. Parts that are no text are described in brackets."""
    return content if isinstance(content, str) else "\n\n".join(map(_in_words, content))


def _in_words(part: Part) -> str:
    match part:
        case TextPart():
            return part.text
        case ImagePart():
            return part.described
        case ToolCallPart():
            return f"[tool call {part.call_id}: {part.name}({part.arguments})]"
        case ToolResultPart():
            return f"[{'error' if part.is_error else 'result'} of tool call {part.call_id}: {part.text}]"


def identity_of(content: Content) -> object:
    """Returns what the identity of a step covers of a content: of an image the digest of its bytes."""
    if isinstance(content, str):
        return content
    return [["image", part.sha256] if isinstance(part, ImagePart) else part.model_dump(mode="json") for part in content]
