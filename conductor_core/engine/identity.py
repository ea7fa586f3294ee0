"""The identity of a step: the digest of all that determines its answer. Same digest: the same question, asked alike."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from conductor_core.chat import ConductorInfo, Message, ParentPlan, WorkerSpec


def digest_text(text: str) -> str:
    """SHA-256 of ``text`` in UTF-8, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def worker_identity(spec: WorkerSpec, messages: Sequence[Message], seed: int) -> str:
    """The identity of a step answered by a worker.

    Prices, time limits and keys do not change what a model answers and are left out; the seed determines the answer of
    simulated workers only.
    """
    return _digest(
        {
            "agent": _agent(spec),
            "messages": [[message.role, message.content] for message in messages],
            "seed": seed if spec.simulated else None,
        }
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
) -> str:
    """The identity of a step answered by the Conductor itself: all that its inner call is told.

    Device and dtype are left out: they are not known before the model is loaded.
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
    )


def _agent(spec: WorkerSpec) -> list[Any]:
    asked = [spec.name, spec.provider, spec.model, spec.base_url, dict(spec.params)]
    return [*asked, "with reasoning"] if spec.pass_reasoning else asked


def _digest(content: Mapping[str, Any]) -> str:
    canonical = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=True)
    return digest_text(canonical)
