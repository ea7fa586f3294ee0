"""What is done with names that a model found. The model itself: tests/loopback/names."""

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from conductor_core.errors import BadInput
from conductor_core.privacy import masking
from conductor_core.privacy.detectors import NamesOfRun, OpenText, PersonNames
from conductor_core.run import events as ev
from conductor_core.run.events import Event
from conductor_core.run.values import PoolInfo
from conductor_core.settings import Settings
from conductor_core.workflow.model import Step, Workflow
from storage import Privacy, Store, open_store
from tests.support.run_events import POOL, created, planned, run_completed, step_completed, step_started

SAID = "Ask Ada Lovelace.\nShe knows Gemini 2 well.\nAda will call Will Byron, says BYRON."
HIDDEN = "Ask [redacted: name].\nShe knows Gemini 2 well.\n[redacted: name] will call [redacted: name], says BYRON."


class KnowsThree:
    """Finds three names, where they are written in full and nowhere else."""

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        yield from (found.span() for found in re.finditer("Ada Lovelace|Will Byron|Gemini 2", text))


@pytest.fixture
def store(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr("storage.privacy.PersonNames", lambda model: KnowsThree())
    store = open_store(url, Privacy.of(Settings(redact=("names",))))
    yield store
    store.close()


def pool_with(model: str) -> PoolInfo:
    return POOL.model_copy(update={"workers": (POOL.workers[0].model_copy(update={"model": model}), *POOL.workers[1:])})


def run_that_says(said: str, size: int = 3) -> list[Event]:
    plan = Workflow(steps=(Step(instruction=f"Answer: {said}", agent="solver"),))
    pieces = [said[at : at + size] for at in range(0, len(said), size)]
    return [
        created("r", said, pool=pool_with("gemini-2")),
        *planned("r", plan),
        step_started("r", 0, 30),
        *(ev.StepDelta(run_id="r", at_ms=31, path=(0,), text=piece) for piece in pieces),
        step_completed("r", 0, said, 40),
        run_completed("r", said),
    ]


def test_a_name_is_hidden_everywhere_and_what_is_no_person_stays(store: Store, path: Path) -> None:
    store.log.append_and_wait(*run_that_says(SAID))
    trace = store.read("r")
    assert (trace.task, trace.answer, trace.steps[0].output) == (HIDDEN, HIDDEN, HIDDEN)
    assert trace.redacted == {"names": 12}
    shown = "".join(each.event.text for each in store.events("r") if isinstance(each.event, ev.StepDelta))
    assert shown == HIDDEN, "a stream hides what the whole text does"
    for file in path.parent.rglob("*"):
        assert not file.is_file() or not re.search(rb"Lovelace|Will Byron", file.read_bytes()), file.name


def test_streamed_text_comes_line_by_line() -> None:
    waits = OpenText(str.upper, whole_lines=True)
    assert [waits.feed(piece) for piece in ("one two ", "three", " four\nfi", "ve ")] == [
        "",
        "",
        "ONE TWO THREE FOUR\n",
        "",
    ]
    assert waits.end() == "FIVE "


def test_a_name_in_json_is_found_in_what_it_reads(store: Store) -> None:
    store.log.append_and_wait(created("r", json.dumps({"ask": "x\nAda Lovelace"})))
    assert json.loads(store.read("r").task) == {"ask": "x\n[redacted: name]"}


def test_a_log_hides_names_that_were_met_and_asks_no_model(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    masking.mask_logs()
    store.log.append_and_wait(created("r", "Ask Ada Lovelace"))
    logging.getLogger("somewhere").warning("Ada Lovelace, Will Byron")
    assert caplog.messages[-1] == "[redacted: name], Will Byron"


def test_a_name_that_is_a_common_word_is_hidden_as_it_is_written_only() -> None:
    class KnowsWill:
        def spans(self, text: str) -> Iterator[tuple[int, int]]:
            yield from (found.span() for found in re.finditer("Will$", text))

    names = NamesOfRun(KnowsWill())  # type: ignore[arg-type]
    text = "I will. Will will. Ask Will"
    assert sorted(set(names.spans(text))) == [(8, 12), (23, 27)]


def test_without_the_extra_or_the_model_the_error_says_what_to_install(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conductor_core.privacy.detectors.find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"pip install 'conductor-inspector\[names\]'"):
        open_store(url, Privacy.of(Settings(redact=("names",))))
    monkeypatch.setattr("conductor_core.privacy.detectors.find_spec", lambda name: name != "no_model" or None)
    with pytest.raises(BadInput, match="needs a spaCy model, and there is none at no_model"):
        PersonNames("no_model")


class KnowsCapitals:
    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        yield from (found.span() for found in re.finditer(r"[A-Z]\w+ [A-Z]\w+", text))


def test_many_names_cost_one_search_for_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    patterns: list[str] = []

    def compiled(pattern: str) -> re.Pattern[str]:
        patterns.append(pattern)
        return re.compile(pattern)

    names = NamesOfRun(KnowsCapitals())  # type: ignore[arg-type]
    monkeypatch.setattr("conductor_core.privacy.detectors.re", SimpleNamespace(compile=compiled, escape=re.escape))
    text = "\n".join(f"Ada{n} Byron{n} came" for n in range(300))
    assert len(names.spans(text)) == 300 * 2
    assert len(patterns) == 1
    assert len(names.met("byron7 and ada7 BYRON7, Ada299")) == 2
    assert len(patterns) == 1
