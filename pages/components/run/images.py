"""The images that come with the next task: chosen, dropped or pasted, shown small, taken out again.

Their bytes are kept in the database as soon as they come, so a reload of the page or a look at another page loses none.
"""

from collections.abc import Sequence

import streamlit as st

from conductor_core.chat import Message, WorkerSpec
from conductor_core.engine.image_rules import images_given
from conductor_core.errors import BadInput, InspectorError
from conductor_core.images import prepare
from conductor_core.message_parts import ImagePart, content_of
from conductor_core.quoted import one_line
from conductor_core.run_request import MOST_IMAGES
from pages.components.look.words import inert
from pages.components.run import run_settings
from pages.components.shell.runtime import current

IMAGES = "task-images"
_FAULT = "task-image-fault"
_UPLOADS = "task-image-uploads"
"""How many uploads were taken: each gets a field of its own, which is empty."""


def chosen() -> tuple[ImagePart, ...]:
    """Returns the images of the next task."""
    found: tuple[ImagePart, ...] = st.session_state.get(IMAGES, ())
    return found


def put(images: Sequence[ImagePart]) -> None:
    st.session_state[IMAGES] = tuple(images)
    st.session_state[_FAULT] = None


def image_field() -> None:
    """Draws the button that takes images. What is dropped on the card, or pasted, comes through it, too.

    It takes any file: of one that is too large or no image ``prepare`` says so, where Streamlit's field says nothing.
    """
    with st.container(key="task-image-field", width="content"):
        st.file_uploader(
            "Add images",
            accept_multiple_files=True,
            key=_field(),
            on_change=_take,
            label_visibility="collapsed",
        )


def images_row(specs: Sequence[WorkerSpec]) -> None:
    """Draws the images of the next task. ``specs``: the workers of the next run."""
    images = chosen()
    if images:
        with st.container(key="task-images", horizontal=True, vertical_alignment="center", gap="small"):
            for number, image in enumerate(images):
                _thumbnail(number, image)
    # It stays until the next image: a drawing of the page that another one breaks off must not take it along.
    if message := st.session_state.get(_FAULT):
        st.error(message, icon=":material/error:")
    if images and (note := _note(specs)):
        st.warning(note, icon=":material/warning:")


def _field() -> str:
    return f"task-image-{st.session_state.get(_UPLOADS, 0)}"


def _thumbnail(number: int, image: ImagePart) -> None:
    with st.container(key=f"task-image-shown-{number}", horizontal=True, gap=None, width="content"):
        # Only hexadecimal digits and a fixed set of types get into the markup.
        st.html(
            f'<img src="api/contents/{image.sha256}" alt="Image {number + 1}, {image.width} by {image.height} pixels" '
            f'title="{image.width} × {image.height}, {image.size_bytes // 1000 or 1:,} kB">'
        )
        label = f"Remove image {number + 1}"
        icon = ":material/close:"
        st.button(label, key=f"task-image-out-{number}", icon=icon, on_click=_remove, args=(number,), type="tertiary")


def _note(specs: Sequence[WorkerSpec]) -> str | None:
    """Returns why no worker of the next run can see the images; None: one can."""
    conversation = (Message(role="user", content=content_of("", chosen())),)
    given = images_given(conversation, {spec.name: spec for spec in specs}, every_step=False)
    if given is None or given.agents:
        return None
    what = "the image" if len(chosen()) == 1 else "the images"
    return (
        f"No worker of the pool {inert(run_settings.pool())} accepts images. Choose a pool with one that does "
        f'(`accepts = ["text", "image"]` in its file), or remove {what}.'
    )


def _take() -> None:
    """Takes what was chosen, dropped or pasted into the field, and empties it."""
    files = st.session_state.get(_field())
    if not files:
        return
    st.session_state[_UPLOADS] = st.session_state.get(_UPLOADS, 0) + 1
    images, faults = list(chosen()), []
    for file in files:
        try:
            if len(images) == MOST_IMAGES:
                raise BadInput(f"at most {MOST_IMAGES} images can come with one task")
            loaded = prepare(file.getvalue(), f"image {one_line(file.name, limit=80)}")
            current().store.keep_images([loaded])
            image = ImagePart.of(loaded)
            images += [] if image in images else [image]
        except InspectorError as error:
            faults.append(str(error))
    put(images)
    if faults:
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        st.session_state[_FAULT] = inert(f"{faults[0]}{more}")


def _remove(number: int) -> None:
    put([image for at, image in enumerate(chosen()) if at != number])
