"""Names of orchestrators, groups, and what is wrong with them."""

from contextlib import AsyncExitStack

import pytest

from conductor_core.errors import BadInput
from conductor_core.lab.evaluation import orchestrators
from conductor_core.settings import Settings
from tests.support.fakes import ScriptedConductor, ScriptedWorker, pool_of, quick_settings

AGENTS = ("alpha", "beta")


def test_names_keep_their_order_and_stand_once() -> None:
    assert orchestrators.expand("moa, single ,conductor,single:beta", AGENTS) == (
        "moa",
        "single:alpha",
        "single:beta",
        "conductor",
    )


def test_the_group_all_holds_every_kind() -> None:
    names = orchestrators.expand("all", AGENTS)
    kinds = {name.partition(":")[0] for name in names}
    assert kinds == {
        "conductor", "recursion", "single", "reflection", "budget", "consensus", "moa", "random",
        "uniform-subtask", "access-all", "access-none", *orchestrators.ROUTERS,
    }  # fmt: skip
    assert "untrained" in orchestrators.expand("all", AGENTS, untrained=True)


def test_a_conductor_by_its_own_name() -> None:
    names = orchestrators.expand("conductor,conductor:http://127.0.0.1:9/v1#m,recursion:tiny", AGENTS)
    refs = orchestrators.conductor_refs(names, "tiny", None)
    assert refs == {
        "conductor": "tiny",
        "conductor:http://127.0.0.1:9/v1#m": "http://127.0.0.1:9/v1#m",
        "recursion:tiny": "tiny",
    }


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("nobody", "unknown orchestrator 'nobody'"),
        ("single:gamma", "no worker 'gamma'"),
        ("moa:gamma", "no worker 'gamma'"),
        ("random:alpha", "unknown orchestrator"),
        ("conductor:", "after the colon"),
        (" , ", "name at least one"),
    ],
)
def test_what_is_not_there_is_named(given: str, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        orchestrators.expand(given, AGENTS)


def test_untrained_needs_a_conductor() -> None:
    with pytest.raises(BadInput, match="--untrained"):
        orchestrators.conductor_refs(("untrained",), "tiny", None)


async def test_a_conductor_is_opened_once_for_all_who_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = pool_of(*(ScriptedWorker(name, params={"max_tokens": 9}) for name in AGENTS))
    names = orchestrators.expand("conductor,recursion,ablations,single,budget:alpha", AGENTS)
    refs = orchestrators.conductor_refs(names, "http://127.0.0.1:9/v1#m", None)
    asked: list[str] = []

    def opened(ref: str, settings: Settings) -> ScriptedConductor:
        asked.append(ref)
        return ScriptedConductor()

    monkeypatch.setattr(orchestrators, "open_conductor", opened)
    async with AsyncExitStack() as stack:
        found = orchestrators.open_orchestrators(names, refs, pool, quick_settings(), stack)
        assert tuple(each.name for each in found) == names
    assert asked == ["http://127.0.0.1:9/v1#m"]


def test_every_name_that_is_listed_can_be_given() -> None:
    listed = orchestrators.group("all", AGENTS, untrained=True)
    assert orchestrators.expand(",".join(listed), AGENTS, untrained=True) == tuple(listed)
