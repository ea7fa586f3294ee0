"""Ten thousand strings that try to run or to fetch something, in every text of three runs: no page does what they say.

Each page shows what it shows of such runs. ``test_decision_record.py`` shows all ten thousand at once.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice, product
from pathlib import Path

from playwright.sync_api import Page, expect

from conductor_core.export.picture import svg
from conductor_core.export.plan import plan_of
from conductor_core.lab.records.evaluation import EvaluationPlan, Outcome
from conductor_core.run.redaction import Redactor
from pages.components.live_workflow.shared_page import shared_page
from tests.browser.conftest import HOSTILE as MARKUP
from tests.browser.conftest import App, OpenFile
from tests.browser.view.test_shared_file import PAYLOADS
from tests.support.filled_run import filled_run
from tests.support.records import write_evaluation

HOSTILE = [payload.format(number) for number, payload in product(range(500), PAYLOADS)]
DID = ", ".join(
    [
        *(f"[{name}*='evil.example']" for name in ("src", "action", "data", "srcset", "poster", "content")),
        "link[href*='evil.example']",
        "image[href*='evil.example']",
        *(f"[on{name}]" for name in ("error", "load", "focus", "toggle", "loadstart")),
        "[srcdoc]",
        "a[href^='javascript']",
        "base",
        "object",
        "embed",
    ]
)
"""What any of the strings would leave in a page that took it for HTML or for a link that runs. Links to elsewhere are
allowed: nobody follows them but a person."""
LOOKED_AT = {
    "a finished run": "run?run=hostile-a",
    "a run that waits": "run?run=hostile-w",
    "hits": "audit?q=pwned",
    "the ledger": "audit?q=pwned&view=ledger",
    "failures": "audit?view=failures",
    "sums": "audit?view=cost",
    "a record": "audit?run=hostile-a",
    "Compare": "compare?a=hostile-a&b=hostile-b",
    "Context": "context?run=hostile-a",
    "History": "history",
    "Evaluate": "evaluate",
}


def write_hostile_evaluation(app: App) -> None:
    """Writes an evaluation that has not ended, of two orchestrators, in whose every field a text is hostile."""
    plan = EvaluationPlan(
        name=MARKUP, at="2026-01-01T00:00:00Z", suite=MARKUP, split="test", tasks=1, seed=0,
        orchestrators=(MARKUP, "moa"), pool=MARKUP, simulated=False, database=MARKUP,
    )  # fmt: skip
    made = [
        Outcome(
            orchestrator=name, task_id=MARKUP, family=MARKUP, difficulty=MARKUP, run_id="none", score=0.0, tokens=3,
            duration_ms=1, steps=1, fault=MARKUP,
        )
        for name in plan.orchestrators
    ]  # fmt: skip
    write_evaluation(app.data_folder / "evaluations" / "hostile", plan, made, done=False)


def nothing_happened(page: Page, foreign: list[str], where: str) -> None:
    assert page.evaluate("window.pwned") is None, where
    assert page.locator(DID).count() == 0, where
    assert foreign == [], where


def test_ten_thousand_hostile_strings_do_nothing_on_any_page(
    app: App, open_page: Callable[..., Page], open_file: OpenFile, tmp_path: Path
) -> None:
    strings, short = iter(HOSTILE), iter(HOSTILE[::-1])

    def many() -> str:
        return "\n\n".join(islice(strings, 220))

    runs = {
        run_id: filled_run(run_id, islice(short, 120), many, 4000, run_id != "hostile-w", ours=next(short))
        for run_id in ("hostile-a", "hostile-b", "hostile-w")
    }
    assert next(strings, None) is None, "all ten thousand are in the runs"
    with ThreadPoolExecutor(1) as aside:
        for events in runs.values():
            aside.submit(app.store.log.append_and_wait, *events).result()
        aside.submit(app.store.search.catch_up).result()
        trace = aside.submit(app.store.read, "hostile-a").result()
    write_hostile_evaluation(app)
    page = open_page("about:blank")
    foreign: list[str] = []
    own = (app.url, app.url.replace("http", "ws"), "data:", "blob:", "about:")
    page.on("request", lambda request: foreign.extend([request.url] * (not request.url.startswith(own))))
    page.on("dialog", lambda dialog: foreign.append(dialog.message))
    for where, address in LOOKED_AT.items():
        page.goto(f"{app.url}/{address}")
        expect(page.get_by_text("evil.example").or_(page.get_by_text("pwned")).first).to_be_attached()
        if where == "a finished run":
            for tab in ("Output", "What it saw", "Messages", "Cost", "Edit"):
                page.locator(".inspector").get_by_role("tab", name=tab, exact=True).click()
            expect(page.get_by_role("textbox", name="Instruction").first).to_be_visible()
        if where == "a run that waits":
            expect(page.get_by_text("Waits for your approval").first).to_be_attached()
        if where == "Evaluate":
            page.locator('[class*="st-key-standing-row-0"] button').first.click()
            expect(page.locator(".st-key-runs-of")).to_contain_text("<script>window.pwned=1</script>")
            expect(page.locator(".st-key-chart-pareto .annotation-text-g")).to_have_count(2)
        nothing_happened(page, foreign, where)
    shared, asked = open_file(shared_page(runs["hostile-a"], {}, Redactor()))
    for step in range(shared.locator(".twin [data-step]").count()):
        shared.locator(f'.twin [data-step="{step}"]').click()
        for tab in ("Output", "What it saw", "Messages"):
            shared.locator(".inspector").get_by_role("tab", name=tab, exact=True).click()
    shared.locator(".plan-button").click()
    shared.get_by_role("button", name="▶ Replay").click()
    shared.locator(".speed").select_option("20")
    expect(shared.get_by_role("button", name="Play", exact=True)).to_be_visible()
    nothing_happened(shared, asked, "the shared file")
    picture = tmp_path / "plan.svg"
    picture.write_text(svg(plan_of(trace)), encoding="utf-8")
    shared.goto(picture.as_uri())
    nothing_happened(shared, asked, "the picture")
    # In a document that loads nothing: what is taken for HTML would have been found.
    taken = "([html, did]) => new DOMParser().parseFromString(html, 'text/html').querySelectorAll(did).length"
    assert page.evaluate(taken, ["".join(PAYLOADS[3:13]), DID]) > 5
