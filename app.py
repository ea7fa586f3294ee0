"""The inspector as one ASGI app: Streamlit's pages, our own routes, the endpoint, and the session that they share."""

import sys

import streamlit as st
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from conductor_core.run.share import MOST_RUNS
from pages.components.app.places import FRAME
from pages.components.app.routes import MIDDLEWARE, ROUTES, Hidden, answered, saved, sent
from pages.components.app.session import asked_by_browser, current, exported, lifespan
from pages.components.tour.first_screen import ROUTES as STORY_ROUTES

# While Streamlit draws a page it puts the script's folder into sys.path and takes it out again. An import in another
# thread that goes through sys.path just then passes over an entry, and finds nothing.
sys.path.append(str(FRAME.parent))


class _Comparison(Hidden):
    run_ids: tuple[str, ...] = Field(min_length=2, max_length=MOST_RUNS)


async def share_comparison(request: Request) -> Response:
    """Returns a comparison as one page (``shared_comparison``): 400, 404, 409 or 503 with the reason."""
    asked = await sent(request, _Comparison, "expected the runs to compare and a JSON list of words")
    browser = asked_by_browser(request.cookies)

    def page() -> str:
        # Imported when used: the server listens sooner without what compares texts.
        from pages.components.compare.view import page_of_runs

        text = page_of_runs(current().store, asked.run_ids, asked.redactor)
        exported(asked.run_ids, "comparison", browser)
        return text

    return await saved(page)


SHARE = Route("/api/comparison/share", answered(share_comparison), methods=["POST"])
app = st.App(FRAME, routes=[*ROUTES, SHARE, *STORY_ROUTES], middleware=MIDDLEWARE, lifespan=lifespan)
