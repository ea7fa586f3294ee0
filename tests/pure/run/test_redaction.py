"""What is hidden in a copy of a run, and what of it is left as it was."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_core.chat.messages import ToolCall, WorkerSpec
from conductor_core.chat.progress import Progress
from conductor_core.chat.tools import ToolListing
from conductor_core.engine.prompts import digest_text
from conductor_core.errors import BadInput
from conductor_core.run import events as ev
from conductor_core.run.events import Event
from conductor_core.run.redaction import MARK, Redactor, read_patterns, words
from conductor_core.run.request import new_run_id, tool_call_id
from conductor_core.run.trace import fold
from conductor_core.run.values import BatchRow, PoolInfo, SharedOutput
from tests.support.run_events import (
    created,
    created_otherwise,
    planned,
    run_completed,
    step_completed,
    step_started,
    whole_run,
)
from tests.support.tool_runs import asked_for_a_call, begun, listed, tool_ran, tool_sent, tools_called

SECRET = "Ada Lovelace"


def _told(pieces: list[str]) -> list[Event]:
    said = "".join(pieces)
    return [
        created("r", f"Who is {SECRET}?"),
        *planned("r"),
        step_started("r", 0, 30),
        *(ev.StepDelta(run_id="r", at_ms=31, path=(0,), text=piece, output_tokens=1) for piece in pieces),
        step_completed("r", 0, said, 40),
        step_started("r", 1, 41),
        step_completed("r", 1, "done", 50),
        run_completed("r", "done"),
    ]


@pytest.mark.parametrize("cut", range(1, len(SECRET)))
def test_a_passage_is_hidden_wherever_the_stream_was_cut(cut: int) -> None:
    events = Redactor(words([SECRET])).events(_told([f"It is {SECRET[:cut]}", f"{SECRET[cut:]}, of course."]))
    assert not [event for event in events if "Ada" in event.model_dump_json() or "Lovelace" in event.model_dump_json()]
    streamed = "".join(event.text for event in events if isinstance(event, ev.StepDelta))
    assert streamed == f"It is {MARK}, of course." == fold(events).steps[0].output


def test_a_passage_at_which_the_name_of_a_batch_was_cut_is_hidden() -> None:
    name = BatchRow(id="b", row="0", name="blame of run r: Who is Ada Lov…", size=2)
    first = created_otherwise(created("r", f"Who is {SECRET}?"), batch=name)
    (told,) = Redactor(words([SECRET])).events([first])
    assert "Ada" not in told.model_dump_json()


def test_progress_between_two_pieces_is_no_place_to_hide() -> None:
    writing = Progress(phase="writing", done=1, total=2)
    events = _told(["It is Ada ", "Lovelace."])
    at = next(number for number, event in enumerate(events) if isinstance(event, ev.StepDelta))
    events.insert(at + 1, ev.StepProgress(run_id="r", at_ms=31, path=(0,), progress=writing))
    first = next(number for number, event in enumerate(events) if isinstance(event, ev.PlanDelta))
    parts = [ev.PlanDelta(run_id="r", at_ms=1, text=text) for text in ("Ada ", "Lovelace")]
    events[first : first + 1] = [parts[0], ev.PlanProgress(run_id="r", at_ms=1, progress=writing), parts[1]]
    told = "".join(event.model_dump_json() for event in Redactor(words([SECRET])).events(events))
    assert "Ada" not in told
    assert "Lovelace" not in told


@pytest.mark.parametrize("word", ["Zoë", 'the "code"', "O'Brien", "C:\\keys"])
def test_a_word_is_found_where_the_text_of_a_plan_has_escapes_in_it(word: str) -> None:
    for written in (json.dumps([word]), json.dumps([word], ensure_ascii=False), repr([word, '"'])):
        assert Redactor(words([word])).text(written).startswith(f"{written[:2]}{MARK}{written[1]}")


@pytest.mark.parametrize("name", ["Zoë 12", "Zo\U0001f600 34", "Zo\n56", 'Zo" 78'])
def test_a_pattern_sees_what_escapes_stand_for(name: str) -> None:
    hides = Redactor(read_patterns([r"Zo\W?.{0,2}\d\d", r"Zo\\n"]))
    for written in (json.dumps([name, "\\ \n"]), json.dumps([name], ensure_ascii=False), repr([name, '"'])):
        hidden = hides.text(written)
        assert hidden.startswith(f"{written[:2]}{MARK}{written[1]}")
        assert hidden.endswith(written[-8:]) or len(written) < 18, "what follows is written as it was"


@given(st.text(alphabet='a1"\\\n\u00eb\U0001f600 ', max_size=12), st.text(alphabet="xy ", max_size=5))
def test_whatever_a_plan_escapes_a_pattern_hides_in_it_what_it_would_hide_in_the_words(word: str, rest: str) -> None:
    pattern = re.compile(r"[^\Wxy]\W+")
    for written in (json.dumps(f"{rest}{word}{rest}"), repr(f"{rest}{word}{rest}")):
        hidden = Redactor((pattern,)).text(written)
        for passage in pattern.findall(word):
            assert json.dumps(passage)[1:-1] not in hidden
            assert repr(passage)[1:-1] not in hidden


def test_parameters_are_searched_whatever_their_names_are() -> None:
    params = {"provider": {"order": [SECRET]}, SECRET: {"role": SECRET}}
    specs = (WorkerSpec(name="solver", provider="openai", model="m", params=params),)
    first = created_otherwise(whole_run("r")[0], pool=PoolInfo(name="p", workers=specs))
    (hidden,) = Redactor(words([SECRET])).events([first])
    assert SECRET not in hidden.model_dump_json()
    assert isinstance(hidden, ev.RunCreated)
    assert hidden.pool.workers[0].params == {"provider": {"order": [MARK]}, MARK: {"role": MARK}}


@given(st.lists(st.text(alphabet="abx", max_size=4), min_size=1, max_size=8))
def test_pieces_are_hidden_as_their_whole_text_is(pieces: list[str]) -> None:
    events = Redactor((re.compile("a+b"),)).events(_told(pieces))
    shown = [event.text for event in events if isinstance(event, ev.StepDelta)]
    assert len(shown) == len(pieces)
    assert "".join(shown) == re.sub("a+b", MARK, "".join(pieces)) == fold(events).steps[0].output


def test_the_events_themselves_stay_as_they_were_and_each_passage_is_counted() -> None:
    events = _told([f"{SECRET} and {SECRET}"])
    before = [event.model_dump_json() for event in events]
    redactor = Redactor(words([SECRET.lower()]))
    redactor.events(events)
    assert [event.model_dump_json() for event in events] == before
    assert redactor.count == 5, "one in the task, two in the stream, two in the whole output"


def test_keys_of_the_environment_are_hidden_without_being_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "q7Zp4mW2xL9vT1")
    events = Redactor().events(_told(["the key is q7Zp4mW", "2xL9vT1, keep it"]))
    assert not [event for event in events if "2xL9vT1" in event.model_dump_json()]
    assert "keep it" in fold(events).steps[0].output


def test_a_hidden_word_cannot_be_guessed_from_a_digest() -> None:
    """An output of one word that is hidden has few digests to try."""
    secret, told = digest_text(SECRET), digest_text("done")
    granted = (
        SharedOutput(path=(0,), agent="solver", sha256=secret, characters=12, tokens=3),
        SharedOutput(path=(0,), agent="solver", sha256=digest_text("of another record"), characters=1, tokens=1),
    )
    events = [
        event.model_copy(update={"output_sha256": secret}) if getattr(event, "output", "") == SECRET else event
        for event in _told([SECRET])
    ]
    events = [
        event.model_copy(update={"output_sha256": told}) if getattr(event, "output", "") == "done" else event
        for event in events
    ]
    at = next(number for number, event in enumerate(events) if event.kind == "step.started" and event.path == (1,))
    events[at] = events[at].model_copy(update={"granted": granted})
    redactor = Redactor(words([SECRET]))
    hidden = redactor.events(events)
    text = json.dumps([event.model_dump(mode="json") for event in hidden])
    assert secret not in text
    assert granted[1].sha256 not in text, "what it is of cannot be told, so it may be of a hidden word"
    assert told in text, "nothing of that output is hidden"
    steps = fold(hidden).steps
    assert steps[1].granted[0].sha256 == steps[0].output_sha256 == digest_text(MARK), "it is of the text in the file"
    assert steps[0].identity not in (None, fold(events).steps[0].identity)
    again = redactor.events(events)
    assert fold(again).steps[0].identity == steps[0].identity, "what was equal stays equal in one file"
    assert fold(Redactor(words([SECRET])).events(events)).steps[0].identity != steps[0].identity


def test_without_patterns_and_keys_nothing_changes() -> None:
    events = whole_run("r")
    assert Redactor().events(events) == events


def test_what_tells_a_program_how_to_read_the_record_is_never_hidden() -> None:
    events = Redactor((re.compile("run|step|[0-9]+|rehearsal|solver"),)).events(whole_run("r"))
    assert [event.kind for event in events] == [event.kind for event in whole_run("r")]
    assert all(event.run_id == "r" for event in events)


def test_a_pattern_that_is_none_is_named() -> None:
    with pytest.raises(BadInput, match=r"--redact '\(' is not a regular expression"):
        read_patterns(["("])


def test_what_tool_servers_were_sent_and_brought_is_hidden_and_their_calls_are_still_found() -> None:
    run_id = new_run_id()
    call = ToolCall(name="files__write", arguments=f'{{"text": "{SECRET}"}}', call_id=tool_call_id(run_id, 0))
    other = call.model_copy(update={"call_id": tool_call_id(run_id, 1)})
    named = ToolListing(server="web", kind="http", title=SECRET, fault=SECRET, left_out=(f"x: {SECRET}",))
    events = [
        *begun(run_id),
        listed(run_id, named),
        tools_called(run_id, [call, other], text=SECRET),
        asked_for_a_call(run_id, call),
        ev.ApprovalGranted(run_id=run_id, numbers=(1,)),
        tool_sent(run_id, call, effects=True),
        tool_ran(run_id, call, f"wrote {SECRET}", effects=True),
        tool_ran(run_id, other, SECRET, "unreachable"),
        step_completed(run_id, 0, "done", 400),
    ]
    hidden = Redactor(read_patterns([SECRET, r"\d+"])).events(events)
    assert not [event for event in hidden if SECRET in event.model_dump_json()]
    trace = fold(hidden)
    (turn,) = trace.steps[0].turns
    assert [each.call_id for each in turn.ran] == [call.call_id, other.call_id]
    assert trace.approvals[0].identity == call.call_id
