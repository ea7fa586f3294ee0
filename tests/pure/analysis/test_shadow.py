"""The figures of shadow traffic, against counting by hand; what is left out of one is said beside it."""

import csv
import io
import json
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from statistics import fmean, median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_core.analysis import shadow
from conductor_core.analysis.shadow import Answer, Request, Traffic, report, sentence

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
STATUSES = ("completed", "failed", "limited", "refused", "filtered", "cut", "empty", "running", "cancelled")
_answers = st.builds(
    Answer,
    run_id=st.just("a run"),
    at_utc=st.integers(0, 3).map(lambda days: NOW - timedelta(days=days)),
    status=st.sampled_from(STATUSES) | st.just("completed"),
    by=st.sampled_from(["gpt", "sonnet"]),
    tokens=st.integers(0, 5000),
    cost_usd=st.none() | st.floats(0, 1),
    known_usd=st.floats(0, 1),
    duration_ms=st.none() | st.floats(0, 60_000),
    simulated=st.booleans(),
    right=st.none() | st.booleans(),
)
_requests = st.lists(
    st.builds(
        Request,
        forwarded=_answers,
        shadow=st.none() | _answers,
        compared=st.none() | st.sampled_from(shadow.VERDICTS),
        disputed=st.booleans(),
        judgings=st.integers(0, 3),
        judged_usd=st.none() | st.floats(0, 1),
        judged_known_usd=st.floats(0, 1),
    ),
    max_size=30,
)


def answer(status: str = "completed", **fields: Any) -> Answer:
    values: dict[str, Any] = {"cost_usd": 0.01, "known_usd": 0.01, "duration_ms": 1000.0, "tokens": 100} | fields
    return Answer("a run", NOW, status, "gpt", **values)


def pair(today: Answer, conductor: Answer, **fields: Any) -> Request:
    return Request(today, conductor, **fields)


def traffic(*requests: Request) -> Traffic:
    return Traffic(requests)


@given(_requests)
def test_each_request_is_compared_or_counted_as_left_out(requests: list[Request]) -> None:
    found = report(traffic(*requests))
    assert found.forwarded == len(requests)
    assert found.shadowed == found.compared + found.unfinished + found.broken_off
    assert found.compared == sum(
        each.shadow is not None and not {each.forwarded.status, each.shadow.status} & {"running", "cancelled"}
        for each in requests
    )
    for line in found.lines:
        assert line.n + line.left_out == found.compared, line
        assert not line.left_out or line.why, "what is left out has a reason"
    assert sum(found.verdicts.values()) == found.judged <= found.compared
    said = ", ".join(found.not_compared)
    assert ("without a shadow" in said) == any(each.shadow is None for each in requests)


@given(_requests)
def test_the_figures_are_those_that_counting_gives(requests: list[Request]) -> None:
    found = report(traffic(*requests))
    whole = [(each.forwarded, each.shadow, each) for each in requests if each.whole and each.shadow is not None]
    marked = []
    for today, conductor, _ in whole:
        rights = []
        for own, other in ((today, conductor), (conductor, today)):
            silent = own.status in ("failed", "limited", "filtered", "empty")
            rights.append(False if own.right is None and silent and other.right is not None else own.right)
        if None not in rights:
            marked.append(rights)
    assert (found.right is None) == (not marked)
    if found.right is not None and found.right.forwarded and found.right.shadow and found.right.difference:
        shares = [fmean(float(bool(each[which])) for each in marked) for which in (0, 1)]
        assert [found.right.forwarded.value, found.right.shadow.value] == pytest.approx(shares)
        assert found.right.difference.value == pytest.approx(shares[1] - shares[0])
    usd = [(today.cost_usd, other.cost_usd) for today, other, _ in whole]
    priced = [(today, other) for today, other in usd if today is not None and other is not None]
    for line in found.amounts:
        if line.kind == "usd":
            assert line.n == len(priced), "an unknown price is no price of zero"
            if line.forwarded and line.shadow and line.difference:
                assert line.forwarded.value == pytest.approx(fmean(today for today, _ in priced))
                assert line.difference.value == pytest.approx(fmean(other - today for today, other in priced))
    for ending in found.endings:
        assert ending.forwarded is not None
        of = {"Failed": {"failed", "limited"}, "Rate-limited": {"limited"}, "Cut off": {"cut"}}
        names = of.get(ending.name, {ending.name.lower()})
        assert ending.forwarded.value == pytest.approx(fmean(today.status in names for today, _, _ in whole))
    judged = [each.judged_usd for each in requests]
    assert found.judging.usd == (None if None in judged else pytest.approx(sum(each or 0 for each in judged)))


@given(_requests)
def test_all_parts_together_are_the_whole_and_every_document_is_json(requests: list[Request]) -> None:
    everything = traffic(*requests)
    for by in ("day", "forwarded model"):
        found = shadow.parts(everything, by)
        assert sum(each.forwarded for each in found.values()) == len(requests)
        assert sum(each.requests for each in shadow.forwarded_by(requests, by).values()) == len(requests)
    document = json.loads(json.dumps(shadow.whole_document(everything), allow_nan=False))
    assert document["forwarded"] == len(requests)


def test_a_run_that_failed_is_wrong_where_the_other_one_was_judged() -> None:
    """Only whole answers are marked: without this rule a Conductor that fails often would look right always."""
    requests = [pair(answer(right=True), answer("failed")) for _ in range(3)] + [pair(answer(), answer("failed"))]
    found = report(traffic(*requests))
    assert found.right is not None
    assert found.right.shadow is not None
    assert (found.right.n, found.right.shadow.value, found.right.left_out) == (3, 0.0, 1)
    assert found.verdicts == {"better": 0, "same": 0, "worse": 3}


def test_times_are_of_requests_that_both_answered() -> None:
    requests = [pair(answer(duration_ms=1000.0), answer(duration_ms=2000.0)) for _ in range(20)]
    requests.append(pair(answer(duration_ms=1000.0), answer("failed", duration_ms=1.0)))
    half, most = report(traffic(*requests)).times
    assert (half.n, half.left_out, half.why) == (20, 1, "unanswered")
    assert half.ratio is not None
    assert half.ratio.value == 2.0
    assert most.shadow is not None
    assert most.shadow.value == 2000.0


def test_the_sentence_says_what_was_found_with_its_interval() -> None:
    right: dict[str, Any] = {"right": True}
    better = pair(answer(right=False), answer(**right, duration_ms=2100.0, cost_usd=0.018))
    same = pair(answer(**right), answer(**right, duration_ms=2100.0, cost_usd=0.018))
    said = sentence(report(traffic(*[better] * 24, *[same] * 376)))
    assert said.startswith("On 400 compared requests the Conductor was right 6 points more often (4 to ")
    assert said.endswith(", took 2.1 times as long and cost 1.8 times as much.")


def test_the_sentence_claims_nothing_that_the_interval_does_not_show() -> None:
    better, worse = pair(answer(right=False), answer(right=True)), pair(answer(right=True), answer(right=False))
    assert "was right about as often (−" in sentence(report(traffic(*[better] * 10, *[worse] * 9)))
    less = sentence(report(traffic(*[worse] * 30, better)))
    assert "was right 94 points less often (" in less
    assert "−" not in less


def test_without_verdicts_and_prices_the_sentence_says_so() -> None:
    unpriced: dict[str, Any] = {"cost_usd": None, "known_usd": 0.0}
    said = sentence(report(traffic(pair(answer(**unpriced), answer(**unpriced)))))
    assert said.endswith("took 1.0 times as long and has an unknown cost; no answer is judged yet.")
    some = sentence(report(traffic(pair(answer(), answer()), pair(answer(), answer(**unpriced)))))
    assert "cost 1.0 times as much (1 of unknown price left out)" in some


def test_a_judges_comparison_speaks_where_nobody_marked_right_and_wrong() -> None:
    said = sentence(report(traffic(*[pair(answer(), answer(), compared="better")] * 30)))
    assert "was better than worse 100 points more often (" in said


def test_numbers_are_written_with_their_units() -> None:
    assert [shadow.written(0.061, "share"), shadow.written(0.061, "share", sign=True)] == ["6.1 %", "+6.1"]
    assert shadow.written(-0.0031, "usd", sign=True) == "−$0.003100"
    assert shadow.written(2500.0, "ms") == "2.5 s"


def test_the_table_for_spreadsheets_has_every_figure_and_no_formula() -> None:
    hostile = "=HYPERLINK(1)"
    requests = traffic(pair(answer(right=True)._replace(by=hostile), answer(right=True)))
    parts = {("forwarded model", name): each for name, each in shadow.parts(requests, "forwarded model").items()}
    rows = list(csv.DictReader(io.StringIO(shadow.to_csv({("all", ""): report(requests)} | parts))))
    assert {row["part"] for row in rows} == {"", f"'{hostile}"}
    (right,) = (row for row in rows if row["by"] == "all" and row["figure"] == "Right")
    assert (right["n"], right["shadow"], right["ratio"]) == ("1", "1.0", "")


def test_what_was_forwarded_is_summed_without_any_shadow() -> None:
    requests = [Request(answer(duration_ms=float(ms))) for ms in range(1, 100)]
    requests += [Request(answer("failed", cost_usd=None, known_usd=0.0))]
    found = shadow.forwarded(requests)
    assert (found.requests, found.tokens, found.unpriced, found.ended) == (100, 10_000, 1, {"failed": 1})
    assert found.cost.usd is None
    assert found.cost.known_usd == pytest.approx(0.99)
    assert found.median_ms is not None
    assert found.median_ms.value == median(range(1, 100))
    assert asdict(found)["simulated"] == 0
