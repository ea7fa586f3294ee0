"""Which workers of a run can be given images."""

from collections.abc import Mapping, Sequence

from conductor_core.chat import Message, WorkerSpec
from conductor_core.engine.fallbacks import with_fallbacks
from conductor_core.errors import BadInput
from conductor_core.message_parts import images_in
from conductor_core.workflow.validation import ImagesGiven


def images_given(
    conversation: Sequence[Message], workers: Mapping[str, WorkerSpec], *, every_step: bool
) -> ImagesGiven | None:
    """Returns who can be given the images of a conversation; None: it has none.

    A worker can only if each fallback that may be called instead of it accepts images, too. ``every_step``: every step
    is told the task.
    """
    if not any(images_in(turn.content) for turn in conversation):
        return None
    able = (name for name in workers if all("image" in spec.accepts for spec in with_fallbacks(name, workers)))
    return ImagesGiven(agents=frozenset(able), every_step=every_step)


def require_image_worker(given: ImagesGiven | None, specs: Sequence[WorkerSpec], pool: str) -> None:
    """Raises: BadInput if images come with the task and no worker can be given them."""
    if given is None or given.agents:
        return
    alone = [spec.name for spec in specs if "image" in spec.accepts]
    if alone:
        why = f"the fallback of {', '.join(alone)} accepts none: name one that does"
    else:
        why = 'give accepts = ["text", "image"] in the pool file to each worker whose model sees images'
    raise BadInput(
        f"an image comes with the task, but no worker of the pool {pool} accepts images; {why}, or leave the image out"
    )
