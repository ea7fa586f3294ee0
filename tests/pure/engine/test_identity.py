from typing import Any

import pytest

from conductor_core.chat.messages import ConductorInfo, Message, ParentPlan, Price, WorkerSpec
from conductor_core.engine.prompts import Asked, StepInputs, digest_text, recursion_identity, worker_identity
from conductor_core.run.values import Limits
from tests.support.fakes import ScriptedWorker, workflow_of

SPEC = WorkerSpec(name="a", provider="openai", model="m", base_url="http://x/v1", params={"temperature": 0.2, "n": 1})
MESSAGES = (Message(role="user", content="hello"),)


@pytest.mark.parametrize(
    "changed",
    [{"name": "b"}, {"model": "n"}, {"provider": "anthropic"}, {"base_url": "http://y/v1"}, {"params": {}}],
)
def test_what_determines_the_answer_changes_the_identity(changed: dict[str, Any]) -> None:
    other = SPEC.model_copy(update=changed)
    assert worker_identity(other, MESSAGES, 0) != worker_identity(SPEC, MESSAGES, 0)


@pytest.mark.parametrize(
    "changed",
    [
        {"usd_per_mtok": Price(input=1, output=1)},
        {"timeout_s": 1.0},
        {"max_concurrency": 1},
        {"api_key_env": "X"},
        {"description": "better"},
        {"params": {"n": 1, "temperature": 0.2}},
    ],
)
def test_what_does_not_determine_it_leaves_the_identity(changed: dict[str, Any]) -> None:
    assert worker_identity(SPEC.model_copy(update=changed), MESSAGES, 0) == worker_identity(SPEC, MESSAGES, 0)


@pytest.mark.parametrize(
    "messages",
    [
        (Message(role="user", content="hello "),),
        (Message(role="system", content="hello"),),
        (*MESSAGES, *MESSAGES),
        (),
    ],
)
def test_the_exact_messages_are_part_of_it(messages: tuple[Message, ...]) -> None:
    assert worker_identity(SPEC, messages, 0) != worker_identity(SPEC, MESSAGES, 0)


def test_parts_cannot_be_shifted_between_messages() -> None:
    one = (Message(role="user", content="ab"), Message(role="user", content="c"))
    two = (Message(role="user", content="a"), Message(role="user", content="bc"))
    assert worker_identity(SPEC, one, 0) != worker_identity(SPEC, two, 0)


def test_the_seed_counts_for_simulated_workers_alone() -> None:
    simulated = SPEC.model_copy(update={"provider": "rehearsal"})
    assert worker_identity(simulated, MESSAGES, 0) != worker_identity(simulated, MESSAGES, 1)
    assert worker_identity(SPEC, MESSAGES, 0) == worker_identity(SPEC, MESSAGES, 1)


@pytest.mark.parametrize(("provider", "same"), [("rehearsal", False), ("openai", True)])
def test_the_answer_of_a_simulated_worker_is_that_of_its_pools_seed_alone(provider: Any, same: bool) -> None:
    worker = ScriptedWorker("a", provider=provider, base_url=None if provider == "rehearsal" else "http://x/v1")
    plan, workers = workflow_of(("a", "x", ())), {"a": worker.spec}
    asked = [
        StepInputs(Asked("t"), workers, None, Limits(), seed=7, pool_seed=seed).of(plan, 0, {}) for seed in (1, 2, 2)
    ]
    assert asked[1].identity == asked[2].identity
    assert (asked[0].identity == asked[1].identity) == same


def recursion(**changed: Any) -> str:
    known: dict[str, Any] = {
        "conductor": ConductorInfo(name="tiny", kind="local", model="m"),
        "parent": ParentPlan(plan="lists", last_response="answer"),
        "asked": Asked("t"),
        "agents": (SPEC,),
        "instruction": "again",
        "bounds": (5, 0, 0),
    }
    return recursion_identity(**(known | changed))


@pytest.mark.parametrize(
    "changed",
    [
        {"conductor": ConductorInfo(name="tiny", kind="local", model="n")},
        {"conductor": ConductorInfo(name="tiny", kind="remote", model="m")},
        {"conductor": ConductorInfo(name="other", kind="local", model="m")},
        {"conductor": ConductorInfo(name="tiny", kind="local", model="m", constrained=True)},
        {"conductor": ConductorInfo(name="tiny", kind="local", model="m", prompt_sha256="0" * 64)},
        {"parent": ParentPlan(plan="other", last_response="answer")},
        {"parent": ParentPlan(plan="lists", last_response="other")},
        {"asked": Asked("u")},
        {"agents": ()},
        {"agents": (SPEC.model_copy(update={"description": "good at maths"}),)},
        {"instruction": "once"},
        {"bounds": (4, 0, 0)},
        {"bounds": (5, 1, 0)},
        {"bounds": (5, 0, 1)},
    ],
)
def test_all_that_an_inner_call_is_told_is_part_of_a_recursions_identity(changed: dict[str, Any]) -> None:
    assert recursion(**changed) != recursion()


def test_where_the_conductor_runs_is_not() -> None:
    loaded = ConductorInfo(name="tiny", kind="local", model="m", device="cpu", dtype="float32")
    assert recursion(conductor=loaded) == recursion()


def test_digests_are_of_utf8() -> None:
    assert digest_text("é") == "4a99557e4033c3539de2eb65472017cad5f9557f7a0625a09f1c3f6e2ba69c4c"


def test_identities_of_stored_runs_are_found_again() -> None:
    """Databases hold these digests: if one came out otherwise, no answer of an earlier version would be reused."""
    simulated = SPEC.model_copy(update={"provider": "rehearsal"})
    assert worker_identity(SPEC, MESSAGES, 0) == "5fd3e228cd21b653c41ebcabc963ce4cef217321dce1b5eec2d518fa1b5389e0"
    assert worker_identity(simulated, MESSAGES, 7) == "94d63bec4496b66afaea9d569e404bc6c97667071fd76f13c6ad476c4f2ae3db"
    assert recursion() == "cb335fd9df5d42d7567d29ab7ed3067f784f7e80f17c18b5884a3add202b1a2e"
