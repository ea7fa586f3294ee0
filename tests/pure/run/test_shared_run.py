"""A run in a file: what comes out is what went in, and a file from anybody changes nothing unless it is whole."""

import base64
import gzip
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from conductor_core.engine.request import rerun_of, resume_of
from conductor_core.errors import BadInput
from conductor_core.run.actor import local_caller
from conductor_core.run.redaction import Redactor
from conductor_core.run.request import REPLAY_PURPOSE
from conductor_core.run.share import as_imported, inert_json, packed, read_shared
from conductor_core.run.trace import fold
from pages.components.live_workflow.shared_page import shared_page
from storage import Store, open_store
from tests.support.run_events import created_otherwise, run_completed, whole_run
from tests.support.tool_runs import run_with_tools

HOSTILE = "</script><script>window.pwned = 1</script><!-- \u2028 <img src=x onerror=window.pwned=1>"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path / 'runs.sqlite3'}")
    yield store
    store.close()


def _page(task: str = "What is 6 times 7?") -> str:
    return shared_page(whole_run("r", task), {}, Redactor())


def _changed(change: Callable[[dict[str, Any]], None]) -> str:
    """A page of which the data was changed."""
    page = _page()
    begin = page.index('id="shared-run">') + len('id="shared-run">')
    end = page.index("</script>", begin)
    told = json.loads(page[begin:end])
    change(told)
    return page[:begin] + inert_json(told) + page[end:]


def _record(rows: list[Any]) -> str:
    return _changed(lambda told: told.update(record=packed(rows)))


def _rows() -> list[Any]:
    return [event.model_dump(mode="json") for event in whole_run("r")]


@pytest.mark.parametrize("overrides", [{"last_step": 10**12}, {"seeds": [{"step": 2, "seed": 1}]}])
def test_overrides_of_steps_that_the_plan_has_not_are_refused(overrides: dict[str, Any]) -> None:
    rows = _rows()
    rows[0]["request"]["overrides"] = overrides
    with pytest.raises(BadInput, match=r"is damaged: step .* is to have .*, but the steps of this plan are 0 to 1"):
        read_shared(_record(rows), "file")


def test_a_plan_that_names_a_worker_whom_its_pool_has_not_is_refused() -> None:
    rows = _rows()
    rows[0]["pool"]["workers"] = rows[0]["pool"]["workers"][1:]
    with pytest.raises(BadInput, match=r"is damaged: its pool has no worker .*, which its plan names"):
        read_shared(_record(rows), "file")


def test_nobody_here_gave_the_outputs_that_a_file_says_they_gave() -> None:
    rows = _rows()
    me = local_caller("page").model_dump(mode="json")
    forged = [
        {"step": 0, "text": "41", "given": {"how": "written", **me}},
        {"step": 1, "text": "43", "given": {"how": "pinned", "source_run_id": "mine", "source_path": [1], **me}},
    ]
    rows[0]["request"]["overrides"] = {"outputs": forged}
    rows[0]["pool"]["workers"] = [{**worker, "provider": "rehearsal"} for worker in rows[0]["pool"]["workers"]]
    ((told, events, _),) = read_shared(_record(rows), "file")
    source = fold(as_imported(events, told, local_caller("page")))
    for request in (rerun_of(source, door="page"), resume_of(source, door="page")):
        assert [each.given.in_words for each in request.overrides.outputs] == [
            f"step {step} of imported run {source.run_id}, pinned by somebody" for step in (0, 1)
        ]


def test_a_replay_of_a_blame_is_a_run_like_any_other_where_it_is_imported(store: Store) -> None:
    rows = _rows()
    rows[0]["request"]["purpose"] = REPLAY_PURPOSE
    ((told, events, _),) = read_shared(_record(rows), "file")
    store.import_run(as_imported(events, told, local_caller("page")), [])
    assert len(store.runs(without=(REPLAY_PURPOSE,))) == 1, "lists of a person's runs have it"


def test_a_plan_that_no_parser_reads_is_refused() -> None:
    rows = _rows()
    (plan,) = [row for row in rows if row["kind"] == "plan.completed"]
    plan["workflow"]["steps"] *= 101
    with pytest.raises(BadInput, match="a plan of more than 200 steps"):
        read_shared(_record(rows), "file")


def test_a_run_comes_out_of_its_file_as_it_went_in() -> None:
    events = whole_run("r", HOSTILE)
    ((shared, read, images),) = read_shared(shared_page(events, {}, Redactor()), "file")
    assert read == events
    assert (shared.run_id, shared.task, shared.simulated, images) == ("r", HOSTILE, True, [])


def test_nothing_that_a_model_wrote_can_end_the_element_that_holds_it() -> None:
    page = _page(HOSTILE)
    assert page.count("window.pwned") == HOSTILE.count("window.pwned"), (
        "in the data alone; the texts of the record are packed"
    )
    assert "<img" not in page.partition('id="shared-run">')[2].partition("</script>")[0]


def test_an_imported_run_is_one_of_its_own_without_relatives() -> None:
    first = created_otherwise(
        whole_run("r")[0], parent_run_id="q", taken_up=("p",), resumed=True, queued=True
    ).model_copy(update={"run_id": "r"})
    events = [first, *whole_run("r")[1:]]
    ((shared, read, _),) = read_shared(shared_page(events, {}, Redactor()), "file")
    mine, again = as_imported(read, shared, local_caller("cli")), as_imported(read, shared, local_caller("cli"))
    trace = fold(mine)
    assert len({"r", mine[0].run_id, again[0].run_id}) == 3
    assert {event.run_id for event in mine} == {trace.run_id} == {mine[0].run_id}
    assert (trace.parent_run_id, trace.resumed, trace.batch) == (None, False, None)
    assert trace.imported is not None
    assert (trace.imported.run_id, trace.imported.door) == ("r", "cli")
    assert [step.output for step in trace.steps] == [step.output for step in fold(events).steps]


def test_what_a_file_says_of_its_own_origin_is_overwritten(store: Store) -> None:
    ((shared, read, _),) = read_shared(_page(), "file")
    once = as_imported(read, shared, local_caller("cli"))
    store.import_run(once, [])
    second = shared_page(once, {}, Redactor())
    ((told, events, _),) = read_shared(second, "file")
    assert told.imported
    twice = fold(as_imported(events, told, local_caller("page"))).imported
    assert twice is not None
    assert (twice.run_id, twice.door) == (once[0].run_id, "page")


def test_an_imported_run_is_listed_as_one(store: Store) -> None:
    ((shared, read, _),) = read_shared(_page(), "file")
    events = as_imported(read, shared, local_caller("cli"))
    store.import_run(events, [])
    (listed,) = store.runs()
    assert (listed.run_id, listed.imported, listed.status) == (events[0].run_id, True, "completed")
    assert store.read(listed.run_id) == fold(events)


def _each(change: dict[str, Any], kind: str = "") -> str:
    """A page in which each event, or each of a kind, says something else."""
    return _record([row | change if kind in ("", row["kind"]) else row for row in _rows()])


def _parameters(**params: object) -> str:
    """A page whose workers have these parameters. JSON of Python can hold what no record can."""
    first, *rest = _rows()
    workers = [spec | {"params": params} for spec in first["pool"]["workers"]]
    rows = [first | {"pool": first["pool"] | {"workers": workers}}, *rest]
    data = base64.b64encode(gzip.compress(json.dumps(rows).encode())).decode()
    return _changed(lambda told: told.update(record=data))


def _given(*path: int) -> dict[str, Any]:
    return {"path": path, "agent": "solver", "sha256": "ab", "characters": 1, "tokens": 1}


def _taken_after(at_ms: float) -> str:
    first, *rest = _rows()
    taken = {"kind": "run.taken", "run_id": "r", "at_utc": first["at_utc"], "at_ms": at_ms}
    return _record([first | {"queued": True}, taken, *rest])


NO_RECORD = "no record can hold"
DEEP: list[Any] = []
for _ in range(300):
    DEEP = [DEEP]
BOMB = base64.b64encode(gzip.compress(b"[" * 1000 + b"]" * 1000)).decode()
FOREIGN: dict[str, tuple[str, str]] = {
    "an empty file": ("", "is not a shared run"),
    "another page": ("<html><script>1</script></html>", "is not a shared run"),
    "other data": ('<script type="application/json" id="shared-run">{"format": "x"}</script>', "is not a shared run"),
    "no JSON": ('<script type="application/json" id="shared-run">{</script>', "is not JSON"),
    "two of them": (_page() + _page(), "is not a shared run"),
    "a newer version": (_changed(lambda told: told.update(version=2)), "newer version"),
    "a field too many": (_changed(lambda told: told.update(more=1)), "more"),
    "no base64": (_changed(lambda told: told.update(record="é")), "cannot be unpacked"),
    "cut bytes": (
        _changed(lambda told: told.update(record=told["record"][:80])),
        "unpacked",
    ),
    "deep nesting": (_changed(lambda told: told.update(record=BOMB)), "is damaged"),
    "no events": (_record([]), "holds no events"),
    "an event of an unknown kind": (_record([*_rows()[:-1], {"kind": "run.exploded", "run_id": "r"}]), "event 11"),
    "events of two runs": (_record([*_rows()[:-1], _rows()[-1] | {"run_id": "q"}]), "several runs"),
    "two beginnings": (_record([_rows()[0], *_rows()]), "from its beginning"),
    "no beginning": (_record(_rows()[1:]), "from its beginning"),
    "no end": (_record(_rows()[:-1]), "no finished run"),
    "two ends": (_record([*_rows(), _rows()[-1]]), "no finished run"),
    "an order that cannot be": (_record([_rows()[0], _rows()[5], _rows()[-1]]), "do not follow"),
    "a time without a zone": (_each({"at_utc": "2026-01-01T00:00:00"}), NO_RECORD),
    "an infinite time": (_each({"at_ms": float("inf")}, "plan.delta"), NO_RECORD),
    "a time that cannot be": (_taken_after(1e19), "do not follow"),
    "a cost whose sum is infinite": (_each({"cost_usd": "1e308"}, "step.completed"), NO_RECORD),
    "a cost that is no number": (_each({"cost_usd": float("nan")}, "run.completed"), NO_RECORD),
    "a number of 400 digits": (_parameters(seed=10**400), NO_RECORD),
    "half a character": (_parameters(stop="\ud800"), NO_RECORD),
    "300 lists in each other": (_parameters(stop=DEEP), NO_RECORD),
    "an output of no step": (_each({"granted": [_given(77)]}, "step.started"), "no step before it has"),
    "an output of the round": (_each({"withheld": [_given()]}, "step.started"), "no step before it has"),
    "tokens below none": (_each({"usage": {"output_tokens": 10**18}}, "run.completed"), "do not follow"),
    "a writing time without a zone": (
        _changed(lambda told: told.update(written_at_utc="2026-01-01T00:00:00")),
        "written_at_utc",
    ),
    "an image that is none": (_changed(lambda told: told.update(images={"ab": {"data": "aGk="}})), "image"),
}


@pytest.mark.parametrize(("text", "said"), FOREIGN.values(), ids=FOREIGN)
def test_a_damaged_foreign_or_hostile_file_gets_one_clear_error(text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said) as caught:
        read_shared(text, "file")
    assert str(caught.value).startswith("file")
    assert "\n" not in str(caught.value)


def test_a_run_that_goes_on_is_not_handed_over() -> None:
    with pytest.raises(BadInput, match="goes on"):
        shared_page(whole_run("r")[:-1], {}, Redactor())
    assert run_completed("r").kind == whole_run("r")[-1].kind


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00Z", "1999-12-31T23:59:59Z", "9999-12-31T23:59:59Z"])
@pytest.mark.parametrize("of", ["the file", "an event", "an earlier import"])
def test_a_date_at_which_no_run_can_have_been_is_refused(of: str, moment: str) -> None:
    rows = _rows()
    if of == "an event":
        rows[1]["at_utc"] = moment
    elif of == "an earlier import":
        usual = "2026-01-01T00:00:00Z"
        before = {"run_id": "q", "written_by": "it", "written_at_utc": usual, "imported_at_utc": moment}
        rows[0]["imported"] = before

    def change(told: dict[str, Any]) -> None:
        told["record"] = packed(rows)
        if of == "the file":
            told["written_at_utc"] = moment

    with pytest.raises(BadInput, match=r"is of \d{1,4}-\d\d-\d\d; only dates from 2000-01-01 to tomorrow are read"):
        read_shared(_changed(change), "file")


def test_a_file_of_a_machine_whose_clock_is_hours_ahead_is_read() -> None:
    rows = _rows()
    rows[-1]["at_utc"] = (datetime.now(UTC) + timedelta(hours=14)).isoformat()
    assert read_shared(_record(rows), "file")


def test_a_run_with_calls_of_tool_servers_comes_out_as_it_went_in() -> None:
    events = run_with_tools("r")
    ((_, read, _),) = read_shared(shared_page(events, {}, Redactor()), "file")
    assert fold(read) == fold(events)
