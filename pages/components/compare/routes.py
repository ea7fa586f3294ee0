"""The route that gives a comparison as one file."""

from pydantic import Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from conductor_core.run.share import MOST_RUNS
from pages.components.app.routes import Hidden, answered, refused, saved, sent
from pages.components.app.session import asked_by_browser, current, exported


class _Comparison(Hidden):
    run_ids: tuple[str, ...] = Field(min_length=2, max_length=MOST_RUNS)


async def share_comparison(request: Request) -> Response:
    """Returns a comparison as one page (``shared_comparison``): 400, 404, 409 or 503 with the reason."""
    try:
        asked = await sent(request, _Comparison)
    except ValidationError:
        return refused(400, "expected the runs to compare and a JSON list of words")
    store = current().store
    browser = asked_by_browser(request.cookies)

    def page() -> str:
        # Imported when used: the server listens sooner without what compares texts.
        from pages.components.compare.shared_comparison import page_of_runs

        text = page_of_runs(store, asked.run_ids, asked.redactor)
        exported(asked.run_ids, "comparison", browser)
        return text

    return await saved(page)


ROUTES: list[BaseRoute] = [Route("/api/comparison/share", answered(share_comparison), methods=["POST"])]
