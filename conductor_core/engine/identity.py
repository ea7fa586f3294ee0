"""Computes the identity of a step: a digest of all that determines its answer."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from conductor_core.chat import ConductorInfo, Message, ParentPlan, WorkerSpec
from conductor_core.message_parts import ImagePart, identity_of


def digest_text(text: str) -> str:
    """Returns the SHA-256 of ``text`` in UTF-8, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def worker_identity(spec: WorkerSpec, messages: Sequence[Message], seed: int, own_seed: int | None = None) -> str:
    """Returns the identity of a step that a worker answers.

    It leaves out prices, time limits and keys, which do not change an answer. The seed counts for simulated workers
    only; a seed of the step's own (``own_seed``) for all workers: with another one, the answer is another one.
    """
    return _digest(
        {
            "agent": _agent(spec),
            "messages": _turns(messages),
            "seed": seed if spec.simulated else None,
        }
        | _own(own_seed)
    )


def recursion_identity(
    conductor: ConductorInfo,
    parent: ParentPlan,
    task: str,
    agents: Sequence[WorkerSpec],
    *,
    instruction: str,
    max_steps: int,
    depth_left: int,
    seed: int,
    images: Sequence[ImagePart] = (),
    turns_before: Sequence[Message] = (),
    own_seed: int | None = None,
) -> str:
    """Returns the identity of a step that the Conductor answers: all that its inner call is told.

    It leaves out device and dtype, which are unknown before the model is loaded.
    """
    fields = {"name", "kind", "model", "constrained"} | ({"prompt_sha256"} if conductor.prompt_sha256 else set())
    asked = conductor.model_dump(mode="json", include=fields)
    return _digest(
        {
            "conductor": asked,
            "parent": [parent.plan, parent.last_response],
            "task": task,
            "instruction": instruction,
            "agents": [[*_agent(spec), spec.description] for spec in agents],
            "bounds": [max_steps, depth_left, seed],
        }
        | _beside_task(images, turns_before)
        | _own(own_seed)
    )


def task_identity(task: str, images: Sequence[ImagePart] = (), turns_before: Sequence[Message] = ()) -> str:
    """Returns the digest of a task and all that comes with it; of a task alone, that of its text."""
    beside = _beside_task(images, turns_before)
    return _digest({"task": task} | beside) if beside else digest_text(task)


def _beside_task(images: Sequence[ImagePart], turns_before: Sequence[Message]) -> dict[str, object]:
    """Returns what comes with the task. Left out where nothing does, so that identities stay as they were."""
    found: dict[str, object] = {}
    if images:
        found["images"] = [image.sha256 for image in images]
    if turns_before:
        found["turns_before"] = _turns(turns_before)
    return found


def _own(seed: int | None) -> dict[str, object]:
    """Returns a step's own seed. Left out where there is none, so that identities stay as they were."""
    return {} if seed is None else {"own_seed": seed}


def _turns(messages: Sequence[Message]) -> list[list[object]]:
    return [[message.role, identity_of(message.content)] for message in messages]


def _agent(spec: WorkerSpec) -> list[Any]:
    asked = [spec.name, spec.provider, spec.model, spec.base_url, dict(spec.params)]
    return [*asked, "with reasoning"] if spec.pass_reasoning else asked


def _digest(content: Mapping[str, Any]) -> str:
    canonical = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=True)
    return digest_text(canonical)
