"""The bar: the value of the answer, large and first; or why there is none and what to do. The tab has all of it."""

from typing import Any

import pytest
from playwright.sync_api import FloatRect, Locator, Page, expect

from conductor_core.chat.messages import ToolCall
from conductor_core.chat.progress import Progress
from conductor_core.run import events as ev
from conductor_core.run.events import Event
from conductor_core.run.values import Alternative, Alternatives
from conductor_core.workflow.model import Step, Workflow
from tests.browser.conftest import View, one_step, status
from tests.support.run_events import answered, created, planned, run_completed, step_completed, step_started

RUN = "r"
ALONE = Workflow(steps=(Step(instruction="Solve: {question}", agent="solver"),))
LONG = "\n\n".join(
    f"Paragraph {number} weighs one more side of it, at some length, and goes on." for number in range(40)
)
CODE = (
    "**Answer:**\n\n```python\ndef merge_bookings(spans):\n    return sorted(spans)\n```\n\n— coder, simulated (ab12cd)"
)
HOSTILE = "<img src=x onerror=alert(1)>"


def box(part: Locator) -> FloatRect:
    found = part.bounding_box()
    assert found is not None
    return found


def direction(part: Locator) -> str:
    return str(part.evaluate("part => getComputedStyle(part).direction"))


def test_the_conclusion_stands_first_and_large_and_the_text_begins_at_its_start(view: View, ended: list[Event]) -> None:
    page = view(ended)
    conclusion, body = page.locator(".conclusion"), page.locator(".answer-body")
    expect(conclusion).to_have_text("13:37")
    assert conclusion.evaluate("part => parseFloat(getComputedStyle(part).fontSize)") >= 24
    expect(page.locator(".bar .sentence")).to_contain_text("13:37")
    assert box(page.locator(".bar"))["height"] <= 70
    page.get_by_role("tab", name="Answer").click()
    placed = "part => [part.scrollLeft, part.scrollTop, getComputedStyle(part).columnCount]"
    assert body.evaluate(placed) == [0, 0, "auto"]
    first = body.locator(".prose > *").first
    assert box(body)["y"] <= box(first)["y"] < box(body)["y"] + 20, "the text is seen from its first line"
    expect(page.locator(".bar")).to_have_class("card bar answered")


def test_all_of_a_long_answer_is_read_over_the_page_in_one_column(view: View) -> None:
    page = view(one_step(LONG))
    expect(page.locator(".bar .sentence")).to_have_text(
        "Paragraph 0 weighs one more side of it, at some length, and goes on."
    )
    expect(page.locator(".answer-body p").last).to_contain_text("Paragraph 39")
    expect(page.locator(".conclusion")).to_be_hidden()
    expect(page.locator(".bar .title")).to_be_hidden()
    before = box(page.locator(".bar"))
    page.get_by_role("button", name="Read all of the answer").click()
    paragraphs = page.locator("dialog.reader p")
    expect(paragraphs).to_have_count(40)
    lefts = paragraphs.evaluate_all("parts => parts.map((part) => part.getBoundingClientRect().left)")
    assert len(set(lefts)) == 1, "never columns"
    page.keyboard.press("Escape")
    expect(page.locator("dialog.reader")).to_be_hidden()
    assert box(page.locator(".bar")) == before


def test_code_a_letter_products_and_json_stand_as_they_were_written(view: View) -> None:
    page = view(one_step(CODE, task="Write merge_bookings(spans)."))
    expect(page.locator(".conclusion")).to_have_text("merge_bookings(spans)")
    page.get_by_role("tab", name="Answer").click()
    expect(page.locator(".answer-body")).to_contain_text("return sorted(spans)")
    page = view(one_step("W"))
    expect(page.locator(".conclusion")).to_have_text("W")
    assert direction(page.locator(".conclusion")) == "ltr"
    expect(page.locator(".bar .sentence")).to_be_hidden()  # a short answer is not said twice
    page = view(one_step("First *x* is 2*3*4, then x**2 + y**2 = **z**, and **2*3**, (a+b)*c*(d); **bold**er."))
    shown = page.locator(".pane .prose p").first
    expect(shown).to_have_text("First x is 2*3*4, then x**2 + y**2 = z, and 2*3, (a+b)*c*(d); bolder.")
    expect(shown.locator("em")).to_have_text(["x"])
    expect(shown.locator("strong")).to_have_text(["z", "2*3", "bold"])
    page = view(one_step('{"name": "Ada_L_", "note": "x_y *b* **c**", "more": [1, 2, 3], "and": "so that it is long"}'))
    expect(page.locator(".conclusion")).to_contain_text('"note": "x_y *b* **c**"')


@pytest.mark.parametrize(
    ("ending", "output", "fields", "pill", "title", "conclusion", "hint"),
    [
        ("refused", "", {"refusal": "I cannot."}, "⊗ Refused", "No answer: refused", "I cannot.", "other words"),
        ("filtered", "The way", {}, "▽ Filtered", "No answer: filtered", "The way", "A filter of the provider"),
        ("cut", "The legs are", {}, "◐ Cut off", "Answer, cut off", "The legs are", "max_tokens"),
        (
            "empty",
            "",
            {"tool_calls": (ToolCall(name="search", arguments='{"q": 1}'),)},
            "∅ Empty",
            "No answer: empty",
            "It called the tool search instead of answering.",
            "another worker",
        ),
    ],
)
def test_a_run_without_a_whole_answer_says_so_and_what_was_done_about_it(
    view: View,
    ending: str,
    output: str,
    fields: dict[str, Any],
    pill: str,
    title: str,
    conclusion: str,
    hint: str,
) -> None:
    retried = ev.StepRetried(
        run_id=RUN,
        at_ms=55,
        path=(1,),
        attempt=1,
        error_code="AnswerRefused",
        error="the model refused to answer",
        refusal="I cannot.",
        wait_ms=0,
        then="fallback",
        then_agent="solver",
    )
    last = step_completed(RUN, 1, output, 60).model_copy(
        update={"ending": ending, "incomplete": True, "answered_by": "solver", **fields}
    )
    end = run_completed(RUN, output).model_copy(update={"ending": ending})
    page = view([created(RUN), *planned(RUN), *answered(RUN, 0), step_started(RUN, 1, 50), retried, last, end])
    expect(status(page)).to_contain_text(pill)
    card = page.locator(".bar")
    expect(card).to_have_class("card bar declined")
    expect(card.locator(".title")).to_have_text(title)
    expect(card.locator(".conclusion")).to_have_text(conclusion)
    expect(card.locator(".hint")).to_contain_text(hint)
    amber = "part => getComputedStyle(part).borderTopColor === getComputedStyle(part.querySelector('.title')).color"
    assert card.evaluate(amber)
    pane = page.locator("[data-step='1'].pane")
    expect(pane).to_contain_text("attempt 1: the model refused to answer (I cannot.); solver was asked instead")
    expect(pane).to_contain_text("answered by solver in the place of checker")
    if fields.get("tool_calls"):
        expect(pane).to_contain_text('it called the tool search with {"q": 1}')


def test_a_real_worker_that_refuses_is_amber_in_its_own_words(view: View) -> None:
    page = view(one_step("I'm sorry, but I can't help with that. Please ask about something else.", agent="real"))
    expect(page.locator(".bar")).to_have_class("card bar declined")
    expect(page.locator(".conclusion")).to_have_text("I'm sorry, but I can't help with that.")
    expect(page.locator(".bar .hint")).to_contain_text("another worker under Change a step")


def test_the_advice_is_about_what_went_wrong(view: View) -> None:
    code, error = "WorkerContextOverflow", "the request is longer than the model's context"
    failed = ev.StepFailed(run_id=RUN, at_ms=40, path=(0,), error_code=code, error=error)
    end = ev.RunFailed(run_id=RUN, at_ms=50, error_code=code, error=error, duration_ms=50)
    page = view([created(RUN), *planned(RUN), step_started(RUN, 0, 30), failed, end])
    for part in (page.locator(".bar .hint"), page.locator("[data-step='0'].pane")):
        expect(part).to_contain_text("longer context")
    expect(page.locator(".bar .hint")).not_to_contain_text("environment variable")


def test_reasoning_is_folded_where_the_writing_shows(view: View) -> None:
    begun, *rest = planned(RUN, ALONE)
    page = view(
        [
            created(RUN),
            begun,
            ev.PlanDelta(run_id=RUN, text="One step should be enough here.", reasoning=True),
            *rest,
            step_started(RUN, 0, 30),
            ev.StepDelta(run_id=RUN, path=(0,), text="Let me add them first.", reasoning=True),
            step_completed(RUN, 0, "It is 4.", 2000),
            run_completed(RUN, "It is 4.", 2010),
        ]
    )
    folded = page.locator(".pane .reasoning")
    expect(folded.locator("summary")).to_have_text("Reasoning")
    expect(folded.get_by_text("Let me add them first.")).to_be_hidden()
    folded.locator("summary").click()
    expect(folded.get_by_text("Let me add them first.")).to_be_visible()
    expect(page.locator(".pane .prose")).to_have_text("It is 4.")
    page.locator(".plan-button").click()
    thoughts = page.locator(".inspector .reasoning")
    expect(thoughts.get_by_text("One step should be enough here.")).to_be_hidden()
    thoughts.locator("summary").click()
    expect(thoughts.get_by_text("One step should be enough here.")).to_be_visible()
    expect(page.locator(".inspector .plan-text")).not_to_contain_text("One step should be enough")


def test_what_else_the_conductor_considered_is_words_with_a_bar_beside_them(view: View) -> None:
    agents = (Alternative(value="solver", probability=0.5), Alternative(value=HOSTILE, probability=0.5))
    access = (Alternative(value="some", probability=0.75), Alternative(value="none", probability=0.25))
    *begun, whole = planned(RUN, ALONE)
    considered = (
        Alternatives(step=0, field="agent", options=agents),
        Alternatives(step=0, field="access_list", options=access),
    )
    whole = whole.model_copy(update={"considered": considered})
    page = view([created(RUN), *begun, whole, ev.RunCancelled(run_id=RUN, door="page")])
    page.locator(".plan-button").click()
    rows = page.locator(".considered dd")
    expect(rows).to_have_count(2)
    expect(rows.first.locator(".option")).to_have_text(["solver 0.50", f"{HOSTILE} 0.50"])
    expect(rows.last.locator(".option")).to_have_text(["reads some 0.75", "reads none 0.25"])
    expect(page.locator(".considered dt")).to_have_text(["Step 0 · agent", "Step 0 · access list"])
    widths = rows.last.locator(".odds i").evaluate_all("bars => bars.map(bar => bar.getBoundingClientRect().width)")
    assert abs(widths[0] / widths[1] - 3) < 0.1
    assert page.locator(".considered img").count() == 0


ARABIC = (
    "ما هي عاصمة مصر؟",
    "القاهرة عاصمة مصر وأكبر مدنها.\n\n- تقع على ضفاف النيل\n- فيها متاحف كثيرة\n\n"
    "The end is in English.\n\n**الإجابة: القاهرة**",
    "القاهرة",
)
HEBREW = (
    "מהי בירת ישראל?",
    "ירושלים היא בירת ישראל.\n\n- היא בהרים\n- היא עתיקה\n\nThe end is in English.\n\nהתשובה היא ירושלים.",
    "ירושלים",
)


@pytest.mark.parametrize(("task", "output", "conclusion"), [ARABIC, HEBREW], ids=["Arabic", "Hebrew"])
def test_outputs_and_instructions_read_from_the_right(view: View, task: str, output: str, conclusion: str) -> None:
    page = view(one_step(output, task=task, instruction=task))
    expect(page.locator(".conclusion")).to_have_text(conclusion)
    assert direction(page.locator(".conclusion")) == "rtl"
    pane = page.locator(".pane .prose")
    assert [direction(paragraph) for paragraph in pane.locator("p").all()] == ["rtl", "ltr", "rtl"]
    assert direction(pane.locator("ul")) == "rtl", "bullets stand on the right"
    assert direction(page.locator(".inspector .instruction")) == "rtl"
    page.get_by_role("tab", name="Output", exact=True).click()
    assert direction(page.locator(".inspector .prose p").first) == "rtl"
    page.get_by_role("tab", name="Messages").click()
    assert direction(page.locator(".inspector .message pre").first) == "rtl"


def _as_it_was(page: Page, at_s: float) -> None:
    page.evaluate(f"() => {{ location.hash = '#at={at_s}' }}")


def test_loading_reading_waiting_and_writing_are_told_where_their_text_will_stand(view: View) -> None:
    begun, *plan = planned(RUN, ALONE)
    loading = Progress(phase="loading", done=250_000_000, total=1_000_000_000, per_s=1e8, left_s=7.5)
    reading = Progress(phase="reading", done=380, total=1520, per_s=26.4, left_s=43.2)
    thinking = Progress(phase="thinking", done=20, total=1024, per_s=1.52, left_s=85.5)
    server = {"wait_ms": 2000, "loading": True, "attempt": 1}
    busy = {"wait_ms": 20_000, "attempt": 1, "error": "it limits requests, 429"}
    thought = ev.PlanDelta(run_id=RUN, text="This is one sum. " * 8)
    to_plan: list[Event] = [
        ev.PlanRetried(run_id=RUN, error_code="ConductorLoading", error="(503): Loading model", **server),
        ev.PlanRetried(run_id=RUN, error_code="ConductorRateLimited", **busy),
        ev.PlanProgress(run_id=RUN, progress=loading),
        ev.PlanProgress(run_id=RUN, progress=reading),
        ev.PlanProgress(run_id=RUN, progress=thinking),
        thought,
        *plan,
    ]
    to_solve: list[Event] = [
        step_started(RUN, 0, 0),
        ev.StepRetried(run_id=RUN, path=(0,), error_code="WorkerLoading", error="503 (Loading model)", **server),
        ev.StepRetried(run_id=RUN, path=(0,), error_code="WorkerRateLimited", **busy),
        ev.StepProgress(run_id=RUN, path=(0,), progress=loading),
        ev.StepDelta(run_id=RUN, path=(0,), text="It is", output_tokens=12),
        ev.StepProgress(run_id=RUN, path=(0,), progress=Progress(phase="writing", done=12, total=1024, per_s=3.25)),
        ev.RunCancelled(run_id=RUN, door="page"),
    ]
    # One event each second: those of the plan from 1 s on, those of the step from 11 s on.
    timed = [event.model_copy(update={"at_ms": 1000.0 * min(at, 10)}) for at, event in enumerate(to_plan, 1)]
    timed += [event.model_copy(update={"at_ms": 1000.0 * at}) for at, event in enumerate(to_solve, 11)]
    page = view([created(RUN), begun, *timed], "#at=1")
    graph, bar = page.locator(".graph-empty"), page.locator(".bar")
    expect(bar).to_contain_text("the Conductor’s server is loading its model")
    _as_it_was(page, 2)
    expect(bar).to_contain_text("the Conductor’s server failed and is asked again after 20.0 s")
    expect(page.locator(".inspector")).to_contain_text("it limits requests, 429; asked again after 20.0 s")
    _as_it_was(page, 3)
    expect(graph).to_have_text("The Conductor: Loading the model, 25 % of 1.0 GB · about 10 s left…")
    expect(page.locator(".plan-button")).to_have_text("tiny · loading…")
    assert "25%" in graph.evaluate("element => getComputedStyle(element, '::after').backgroundImage")
    _as_it_was(page, 4)
    expect(graph).to_have_text("The Conductor: Reading the prompt, 380 of 1,520 tok · 26/s · about 45 s left…")
    expect(page.locator(".inspector")).to_contain_text("Reading the prompt, 380 of 1,520 tok · 26/s · about 45 s left…")
    _as_it_was(page, 5)
    expect(graph).to_have_text("The Conductor: Thinking, 20 tok · 1.5/s · about 85 s left…")
    expect(page.locator(".plan-button")).to_have_text("tiny · thinking…")
    _as_it_was(page, 6)
    expect(page.locator(".inspector")).to_contain_text("This is one sum. This is one sum.")
    pane = page.locator('.pane[data-step="0"]')
    _as_it_was(page, 12)
    expect(pane).to_contain_text("the server is loading its model and is asked again until it answers")
    expect(pane).to_have_attribute("data-status", "loading")
    _as_it_was(page, 13)
    expect(pane).to_contain_text("it limits requests, 429; asked again after 20.0 s")
    _as_it_was(page, 14)
    expect(pane).to_contain_text("Loading the model, 25 % of 1.0 GB · about 10 s left…")
    _as_it_was(page, 16)
    expect(pane.locator(".prose")).to_have_text("It is")
    expect(pane.locator(".figures")).to_contain_text("3.3/s")
