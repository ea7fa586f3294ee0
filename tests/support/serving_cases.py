"""Requests with any node changed, and a response as the endpoint's specification has it, for tests of wire formats."""

import copy
import io
import json
from base64 import b64encode
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Literal

from hypothesis import strategies as st
from PIL import Image

from conductor_core.run.request import ClientRequest
from conductor_core.serving.errors import ApiError
from conductor_core.serving.outcome import Began, Called, Ended, Outcome, Part, Row, Spending, Summary, Text
from tests.support.any_json import ANY


def deep() -> Any:
    value: Any = None
    for _ in range(200):
        value = [value]
    return value


def _png() -> str:
    file = io.BytesIO()
    Image.new("RGB", (2, 3), "red").save(file, "PNG")
    return b64encode(file.getvalue()).decode()


PNG = _png()
PNG_URL = f"data:image/png;base64,{PNG}"
WORKFLOW = {"steps": [{"instruction": "Solve {question}", "agent": "ada", "access_list": []}]}

RUN = "0193a5b2c3d4-0123456789abcdef"
SPENT = Spending(
    input_tokens=150,
    output_tokens=60,
    cached_tokens=20,
    reasoning_tokens=15,
    orchestration_input_tokens=80,
    orchestration_cached_tokens=10,
    orchestration_output_tokens=125,
)
"""The specification's example: plan, draft, answer."""
ROWS = (
    Row("plan", "conductor", "small", 46, 49, None),
    Row("step 0", "ada", "m1", 34, 76, 0.001),
    Row("step 1", "bob", "m2", 150, 60, 0.002),
)
CALLS = (
    Called(0, "call_0193a5b2c3d40123456789abcdef_0", "look", '{"at": "x"}'),
    Called(1, "call_0193a5b2c3d40123456789abcdef_1", "list", ""),
)
FAILED = ApiError(422, "The answer does not fit the schema.", code="schema_mismatch", run_id=RUN)


def outcome(api: Literal["chat", "responses", "messages"], **fields: Any) -> Outcome:
    told: dict[str, Any] = {"status": "completed", "text": "Hello", "finish": "stop", "spending": SPENT, "rows": ROWS}
    return Outcome(
        run_id=RUN,
        number=0,
        client=ClientRequest(api=api, model="fugu"),
        created_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        trace_url="http://127.0.0.1:8501/run?id=x",
        simulated=False,
        **(told | fields),
    )


def parts(ended: Outcome, *, pieces: int = 3) -> Iterator[Part]:
    """Yields how a stream tells ``ended``, each text in pieces of so many characters."""
    begun = outcome(ended.client.api, status="in_progress", text=None, finish=None, spending=Spending(), rows=())
    yield Began(begun)
    for number, summary in enumerate(ended.summaries):
        yield from (Summary(number, summary[at : at + pieces]) for at in range(0, len(summary), pieces))
    text = ended.text or ""
    yield from (Text(text[at : at + pieces]) for at in range(0, len(text), pieces))
    yield Ended(ended)


def tried(call: Callable[[bytes], Any], body: bytes) -> Any:
    """Returns what ``call`` returns, or the error with which it refuses ``body``."""
    try:
        return call(body)
    except ApiError as error:
        return error


def _places(document: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if place:
        yield place
    if isinstance(document, dict | list):
        inner = document.items() if isinstance(document, dict) else enumerate(document)
        for name, value in inner:
            yield from _places(value, (*place, name))


@st.composite
def changed(draw: st.DrawFn, *documents: dict[str, Any]) -> bytes:
    """A valid request with one or two nodes that are gone, or anything else."""
    document = copy.deepcopy(draw(st.sampled_from(documents)))
    for _ in range(draw(st.integers(1, 2))):
        *outer, last = draw(st.sampled_from(list(_places(document))))
        holder = document
        for name in outer:
            holder = holder[name]
        if draw(st.booleans()) and isinstance(holder, dict):
            del holder[last]
        else:
            holder[last] = draw(ANY | st.builds(deep))
        if not document:
            break
    return json.dumps(document).encode()
