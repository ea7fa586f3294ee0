"""The sample of mutants that `make mutants` draws, and what it says of it."""

import tomllib

import pytest

from tests.mutants import ROOT, SURVIVORS, Reasons, drawn, read_reasons, report, room

NAMES = [f"conductor_core.engine.step.x_cost_of__mutmut_{number}" for number in range(1, 201)]


def test_a_sample_is_the_same_for_the_same_seed_and_holds_the_smaller_one() -> None:
    sample = drawn(NAMES, 50, seed=0)
    assert sample == drawn(reversed(NAMES), 50, seed=0)
    assert len(set(sample)) == 50
    assert drawn(NAMES, 20, seed=0) == sample[:20]
    assert drawn(NAMES, 50, seed=1) != sample
    assert sorted(drawn(NAMES, 1000, seed=0)) == sorted(NAMES)


def test_a_mutant_that_is_gone_leaves_the_rest_of_the_sample() -> None:
    sample = drawn(NAMES, 50, seed=0)
    fewer = [name for name in NAMES if name != sample[7]]
    assert drawn(fewer, 49, seed=0) == [*sample[:7], *sample[8:]]


@pytest.mark.parametrize(
    ("name", "of"),
    [
        ("conductor_core.engine.step.x_cost_of__mutmut_3", "engine"),
        ("conductor_core.run.trace.xǁRunTraceǁround_at__mutmut_1", "trace"),
        ("conductor_core.workers.health.x__hint__mutmut_9", "workers"),
        ("conductor_core.grading.sandbox.run.x_run__mutmut_2", "grading"),
        ("conductor_core.lab.training.tiny.grpo.x_loss__mutmut_2", "grpo"),
        ("pages.components.app.security.x__same__mutmut_2", "security"),
        ("storage.log.event_log.x__settle__mutmut_2", "storage"),
    ],
)
def test_a_mutant_has_its_room(name: str, of: str) -> None:
    assert room(name) == of


def test_every_file_that_is_mutated_has_a_room() -> None:
    mutated = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["mutmut"]["only_mutate"]
    files = [file for pattern in mutated for file in ROOT.glob(pattern) if file.suffix == ".py"]
    assert len(files) > 40
    for file in files:
        room(".".join((*file.relative_to(ROOT).with_suffix("").parts, "x_f__mutmut_1")))


def test_a_mutant_of_no_room_is_an_error() -> None:
    with pytest.raises(ValueError, match="no room"):
        room("conductor_core.privacy.masking.x_text__mutmut_1")


def test_the_report_counts_by_room_and_tells_why_each_survivor_is_one() -> None:
    killed, survivor, unreached, hung, unseen, left = NAMES[:6]
    stored = "storage.log.event_log.x__settle__mutmut_2"
    results = {
        killed: "killed",
        survivor: "survived",
        unreached: "no tests",
        hung: "timeout",
        unseen: "survived",
        left: "survived",
        stored: "killed",
    }
    text, share = report(results, Reasons({unseen: "it is the same"}, {left: "a word", killed: "killed since"}))
    assert share == 3 / 6
    assert text.splitlines() == [
        "   2 of    5 killed  engine",
        "   1 of    1 killed  storage",
        "",
        f"no tests: {unreached}: no reason yet",
        f"survived: {survivor}: no reason yet",
        f"survived: {left}: a word",
        "",
        "3 of 6 killed (50.0 %), 1 of them by a time limit; 1 more excused in tests/survivors.toml; "
        "2 of 3 others have no reason there yet",
    ]


def test_a_mutant_that_was_not_run_is_not_killed() -> None:
    assert report({NAMES[0]: "not checked"}, Reasons({}, {}))[1] == 0
    assert report({}, Reasons({}, {}))[1] == 0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "the tables are .unseen. and .left., not none"),
        ("[unseen]\n[lef]", "not unseen, lef"),
        ('[unseen]\na = "x"\nb = "x"\n[left]\nb = "y"', "b cannot be both"),
        ('[unseen]\na = " "\n[left]', "a has no reason"),
        ("[unseen]\n[left]\na = 3", "a has no reason"),
    ],
)
def test_a_list_of_reasons_that_cannot_be_meant_is_an_error(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        read_reasons(text)


def test_every_mutant_with_a_reason_is_of_a_room() -> None:
    reasons = read_reasons(SURVIVORS.read_text(encoding="utf-8"))
    assert all(room(name) for name in [*reasons.unseen, *reasons.left])
