"""The body of an answer: however it is cut into parts, the same events come out of it, within bounds."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise

import pytest
from httpx2 import ByteStream, EventSource, Request, Response
from hypothesis import given
from hypothesis import strategies as st

from conductor_core.providers.transport import DOCUMENT, UNFINISHED, Body


class TooLarge(Exception):
    pass


class Invalid(Exception):
    pass


def body(parts: Sequence[bytes], most_bytes: int = 10_000, most_held: int = 10_000) -> Body:
    async def given_parts() -> AsyncIterator[bytes]:
        for part in parts:
            yield part

    return Body(given_parts(), most_bytes=most_bytes, most_held=most_held, too_large=TooLarge, invalid=Invalid)


async def events(parts: Sequence[bytes]) -> list[str]:
    return [data async for name, data in body(parts).events() if name != UNFINISHED]


_LINES = st.lists(
    st.sampled_from(
        ["data: ü", "data:x", "data", "data:  two spaces", "event: e", "id: 1", ":", ": word", "", "", "odd"]
    )
)


@given(lines=_LINES, ending=st.sampled_from(["\n", "\r\n", "\r"]), cuts=st.lists(st.integers(0, 60)))
def test_any_stream_cut_anywhere_reads_as_httpx2_reads_it(lines: list[str], ending: str, cuts: list[int]) -> None:
    whole = "".join(line + ending for line in lines).encode()
    at = sorted({0, len(whole), *(min(cut, len(whole)) for cut in cuts)})
    plain = "".join(line + "\n" for line in lines).encode()
    response = Response(
        200,
        headers={"content-type": "text/event-stream; charset=utf-8"},
        stream=ByteStream(plain),
        request=Request("GET", "http://x"),
    )
    expected = [event.data for event in EventSource(response) if event.data]
    assert asyncio.run(events([whole[a:b] for a, b in pairwise(at)])) == expected


async def test_an_events_name_comes_with_its_data_and_a_byte_order_mark_is_no_part_of_it() -> None:
    parts = [b"\xef\xbb", b"\xbfevent: error\ndata: a\n\ndata: b\n\n"]
    assert [event async for event in body(parts).events()] == [("error", "a"), ("", "b")]


@given(cuts=st.lists(st.integers(0, 40)), end=st.sampled_from(["", "\n"]))
def test_data_without_the_empty_line_at_the_end_is_told_apart(cuts: list[int], end: str) -> None:
    whole = f"data: a\n\ndata: b\ndata: c{end}".encode()
    at = sorted({0, len(whole), *(min(cut, len(whole)) for cut in cuts)})

    async def read() -> list[tuple[str, str]]:
        return [event async for event in body([whole[a:b] for a, b in pairwise(at)]).events()]

    assert asyncio.run(read()) == [("", "a"), (UNFINISHED, "b\nc")]


@given(cuts=st.lists(st.integers(0, 40)))
def test_a_body_that_is_json_is_one_document(cuts: list[int]) -> None:
    whole = b'\n {"a":\n\n "data: b"}\n\ndata: [DONE]\n\n'
    at = sorted({0, len(whole), *(min(cut, len(whole)) for cut in cuts)})

    async def read() -> list[tuple[str, str]]:
        return [event async for event in body([whole[a:b] for a, b in pairwise(at)]).events()]

    ((name, data),) = asyncio.run(read())
    assert (name, data.strip()) == (DOCUMENT, whole.decode().strip())


async def test_what_comes_before_an_invalid_byte_is_given_first() -> None:
    for parts in ([b"data: a\n\n\xff"], [b"data: a\n\n", b"\xff"], [b"data: a\n\n\xc3", b"("]):
        read = body(parts).events()
        assert await anext(read) == ("", "a")
        with pytest.raises(Invalid):
            await anext(read)


async def test_bounds_of_the_body_and_of_an_event() -> None:
    with pytest.raises(TooLarge):
        [text async for text in body([b"abc", b"def"], most_bytes=5).texts()]
    for part in (b"data: abc", b"data: a\ndata: b\n", b"a" * 9):
        with pytest.raises(TooLarge):
            [data async for data in body([part] * 3, most_held=20).events()]
    for part in (b"data: abc\n\n", b": a comment\n", b"event: passed over\n"):
        assert {data async for _, data in body([part] * 30, most_held=20).events()} <= {"abc"}
