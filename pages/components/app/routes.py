"""Our own routes beside Streamlit's: a WebSocket that follows a run, its recording, its cancellation, files of pages.

Tokens do not pass through Streamlit's reruns: a page subscribes here and gets a snapshot and then what changes
(``live_workflow.messages``). Cancelling is a plain POST, so that it works at once, whatever the page's script does.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from conductor_core.chat.messages import IMAGE_TYPES
from conductor_core.engine.offers import simulated_know
from conductor_core.errors import BadInput, ContentMissing, InspectorError, RunHasEnded, StoreError, UnknownRun
from conductor_core.privacy.masking import one_line
from conductor_core.run.actor import local_caller
from conductor_core.run.commands import MOST_NOTE, Approve, Deny, note_for_record
from conductor_core.run.judgement import judge_of
from conductor_core.run.redaction import Redactor, words
from conductor_core.run.trace import RunUnreadable
from conductor_core.run.values import label
from conductor_core.serving.app import Beside
from conductor_core.serving.guard import OwnPagesOnly
from pages.components.app import security
from pages.components.app.security import with_policy
from pages.components.app.session import asked_by_browser, current, exported, one_line_start_fault
from pages.components.app.shell import addresses
from pages.components.live_workflow.messages import LiveView
from pages.components.live_workflow.shared_page import page_of_run, recording
from storage import Store


class Hidden(BaseModel):
    words: tuple[str, ...] = Field(default=(), max_length=1000)

    @property
    def redactor(self) -> Redactor:
        return Redactor(words(self.words))


_STATUSES: tuple[tuple[type[InspectorError], int], ...] = (
    (UnknownRun, 404),
    (RunHasEnded, 404),
    (ContentMissing, 404),
    (RunUnreadable, 409),
    (BadInput, 400),
    (StoreError, 503),
)
"""What is answered to a fault, the most exact first."""
Handler = Callable[[Request], Awaitable[Response]]


def answered(handler: Handler) -> Handler:
    """Has faults of runs and of the store answered with their reason: 400, 404, 409 or 503."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except InspectorError as error:
            status = next((status for kind, status in _STATUSES if isinstance(error, kind)), None)
            if status is None:
                raise
            return refused(status, str(error))

    return answer


async def saved(write: Callable[[], str]) -> Response:
    # It is for saving. Should a browser open it here all the same, it can do nothing.
    headers = {"content-disposition": "attachment", "content-security-policy": "sandbox", "cache-control": "no-store"}
    return Response(await asyncio.to_thread(write), media_type="text/html", headers=headers)


def refused(status: int, why: str) -> Response:
    return JSONResponse({"error": why}, status_code=status)


log = logging.getLogger(__name__)
Form = TypeVar("Form", bound=BaseModel)
MOST_BYTES = 1_000_000
"""Of what a page sends. More is refused as it comes, so that no program of this machine fills the memory."""


async def sent(request: Request, form: type[Form], expected: str) -> Form:
    """Returns what was sent as JSON. Raises: BadInput, which says what was ``expected``; HTTPException 413."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MOST_BYTES:
            raise HTTPException(413, f"this is more than {MOST_BYTES:,} bytes", {"connection": "close"})
    try:
        return form.model_validate_json(bytes(body))
    except ValidationError as error:
        raise BadInput(expected) from error


def quiet_when_left(app: ASGIApp) -> ASGIApp:
    """Says in one line that a caller left before it had sent all, which the server would say in a traceback."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await app(scope, receive, send)
        except ClientDisconnect:
            if scope["type"] != "http":
                raise
            path = one_line(scope["path"], limit=100)
            log.info("%s %s: the caller left before it had sent all", scope["method"], path)

    return answer


CLOSE_DONE = 1000
CLOSE_TRY_AGAIN = 1013
CLOSE_UNKNOWN_RUN = 4404  # the page need not come back
WATCH_S = 1.0
KATEX = Path(__file__).parents[1] / "live_workflow" / "vendor" / "katex"
PLOTLY_JS = Path(__file__).parents[1] / "figure" / "vendor" / "plotly-basic.min.js"
WHOLE_PLOTLY_JS = Path(str(files("plotly"))) / "package_data" / "plotly.min.js"
_CACHED = "max-age=86400"


async def follow_run(websocket: WebSocket) -> None:
    run_id = websocket.path_params["run_id"]
    await websocket.accept()
    shown: asyncio.Future[LiveView] = asyncio.get_running_loop().create_future()
    sending = asyncio.create_task(_send_run(websocket, current().store, run_id, shown))
    listening = asyncio.create_task(_until_disconnected(websocket))
    watching = asyncio.create_task(_until_log_fails(run_id, shown))
    tasks = (sending, listening, watching)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if not watching.cancelled():
        view, fault = shown.result(), watching.result()
        # The failure may have cut a message off, so the page gets the whole run once more.
        with suppress(RuntimeError, WebSocketDisconnect):
            await _send(websocket, view.stopped(fault))
            await websocket.close(CLOSE_DONE)
    if sending.cancelled():
        return
    code = CLOSE_TRY_AGAIN if sending.exception() else sending.result()
    # The page may have gone while the last message was on its way.
    with suppress(RuntimeError, WebSocketDisconnect):
        await websocket.close(code)
    if (error := sending.exception()) and not isinstance(error, WebSocketDisconnect | StoreError):
        raise error


async def _send_run(websocket: WebSocket, store: Store, run_id: str, shown: "asyncio.Future[LiveView]") -> int:
    """Sends what there is and what comes, and sets ``shown`` once a running run is shown. Returns the closing code."""
    try:
        trace, sequence = await asyncio.to_thread(store.trace, run_id)
    except (UnknownRun, RunUnreadable) as error:
        if isinstance(error, UnknownRun) or error.trace is None:
            await _send(websocket, {"type": "unknown", "message": str(error)})
            return CLOSE_UNKNOWN_RUN
        _viewed(websocket, run_id)
        await _send(websocket, LiveView(error.trace, (error.sequence or 1) - 1).unreadable(error))
        return CLOSE_DONE
    _viewed(websocket, run_id)
    view = LiveView(trace, sequence)
    await _send(websocket, view.snapshot())
    if not view.ended:
        shown.set_result(view)
        try:
            async for batch in store.follow(run_id, sequence):
                for message in view.messages(batch):
                    await _send(websocket, message)
        except UnknownRun as error:  # it was deleted meanwhile
            await _send(websocket, {"type": "unknown", "message": str(error)})
            return CLOSE_UNKNOWN_RUN
        except RunUnreadable as error:
            await _send(websocket, view.unreadable(error))
    return CLOSE_DONE


def _viewed(asked: HTTPConnection, run_id: str) -> None:
    """Keeps that whoever asks sees this run: the page's script, or a program that follows the run by itself."""
    current().store.access_log.viewed([run_id], "run page", local_caller("page"), asked_by_browser(asked.cookies))


async def _until_log_fails(run_id: str, shown: "asyncio.Future[LiveView]") -> StoreError:
    """Waits until this process's run has stopped because its events could not be written, which no event can tell."""
    host = current().host
    await shown
    while True:
        if run_id not in host.active():
            with suppress(UnknownRun):  # another process carries it out
                if isinstance(error := host.error(run_id), StoreError):
                    return error
        await asyncio.sleep(WATCH_S)


async def _send(websocket: WebSocket, message: dict[str, Any]) -> None:
    await websocket.send_text(json.dumps(message, ensure_ascii=False, separators=(",", ":")))


async def _until_disconnected(websocket: WebSocket) -> None:
    while (await websocket.receive())["type"] != "websocket.disconnect":
        pass


async def recorded(request: Request) -> Response:
    """Returns a run to play again (``shared_page.recording``): 404 if it is unknown, 409 if it is not whole."""
    run_id, store = request.path_params["run_id"], current().store

    def played() -> dict[str, Any]:
        store.trace(run_id)  # raises what is wrong with the run
        return recording(store.events(run_id))

    found = await asyncio.to_thread(played)
    _viewed(request, run_id)
    return JSONResponse(found, headers={"cache-control": "no-store"})


async def share(request: Request) -> Response:
    """Returns a run as one page (``live_workflow.shared_page``): 400, 404, 409 or 503 with the reason."""
    run_id, store = request.path_params["run_id"], current().store
    asked = await sent(request, Hidden, "expected a JSON list of words")
    browser = asked_by_browser(request.cookies)

    def page() -> str:
        text = page_of_run(store, run_id, asked.redactor)
        exported([run_id], "html", browser)
        return text

    return await saved(page)


async def cancel_run(request: Request) -> Response:
    """Has the run end, whichever process carries it out: 202; 404 if it has ended or is unknown."""
    run_id = request.path_params["run_id"]
    if not await asyncio.to_thread(current().host.cancel, run_id, local_caller("page")):
        return refused(404, f"run {run_id} is not going on")
    return JSONResponse({"run_id": run_id}, status_code=202)


class _Decision(BaseModel):
    numbers: tuple[PositiveInt, ...] = Field(min_length=1, max_length=1000)
    rest: bool = False
    note: str = Field(default="", max_length=MOST_NOTE)


async def decide(request: Request) -> Response:
    """Sends a decision about a run that waits: 202 with the command's id; 400 or 404 with the reason.

    Whoever carries the run out answers it, so another decision may have come first.
    """
    run_id, caller = request.path_params["run_id"], local_caller("page")
    said = await sent(request, _Decision, "expected a decision about a run")
    who = {"actor": caller.actor, "door": caller.door}
    common = {"run_id": run_id, "numbers": said.numbers, "note": note_for_record(said.note), **who}
    denied = request.url.path.endswith("/deny")
    command = Deny.model_validate(common) if denied else Approve.model_validate(common | {"rest": said.rest})
    return JSONResponse({"command": await asyncio.to_thread(current().store.send, command)}, status_code=202)


class _Verdict(BaseModel):
    """What a person holds of a run or of a step of it, or the id of a judgement of theirs that they take back."""

    model_config = ConfigDict(extra="forbid")

    step: str | None = Field(default=None, max_length=200)
    mark: Literal["right", "wrong"] | None = None
    score: float | None = None
    note: str = ""
    takes_back: PositiveInt | None = None


async def judgements(request: Request) -> Response:
    """Returns what counts of a run's judgements, after a POST with that one: 400, 404 or 503 with the reason."""
    said = await sent(request, _Verdict, "expected a judgement") if request.method == "POST" else None
    found = await asyncio.to_thread(_judged, current().store, request.path_params["run_id"], said)
    return JSONResponse({"judgements": found}, headers={"cache-control": "no-store"})


def _judged(store: Store, run_id: str, said: _Verdict | None) -> list[dict[str, Any]]:
    caller = local_caller("page")
    own, kept = judge_of("person", caller), store.judgements
    if said is not None and said.takes_back is not None:
        taken = next((each for each in kept.of(run_id) if each.id == said.takes_back and each.judge == own), None)
        if taken is None:
            raise BadInput("this judgement is not there, or not yours")
        kept.take_back(taken, caller)
    elif said is not None:
        path = None
        if said.step is not None:
            trace = store.read(run_id)
            path = next((step.path for step in trace.walk() if label(step.path) == said.step), None)
            if path is None:
                raise BadInput("the run has no such step")
        kept.add(run_id, caller, path=path, mark=said.mark, score=said.score, note=said.note)
    shown = {"id", "mark", "score", "note", "by", "at_utc", "compared_with"}
    return [
        {
            **judgement.model_dump(mode="json", include=shown),
            "step": None if judgement.path is None else label(judgement.path),
            "words": judgement.in_words,
            "judge": "somebody" if judgement.actor is None else judgement.actor.short,
            "mine": judgement.judge == own,
        }
        for judgement in kept.latest([run_id]).get(run_id, ())
    ]


async def count_waiting(_request: Request) -> Response:
    """Returns how many runs wait for an approval: ``{"runs": 2}``; 503 if the database cannot be read."""
    found = await asyncio.to_thread(current().store.waiting_approvals)
    return JSONResponse({"runs": found}, headers={"cache-control": "no-store"})


class _Typed(BaseModel):
    task: str


async def known_task(request: Request) -> Response:
    """Tells whether the simulated workers know a task: ``{"known": true}``. Nothing of it is kept."""
    typed = await sent(request, _Typed, "this is not a task")
    known = await asyncio.to_thread(simulated_know, typed.task)
    return JSONResponse({"known": known}, headers={"cache-control": "no-store"})


async def content(request: Request) -> Response:
    """Returns an image by its digest: 404 if it is not kept, 503 if the database cannot be read."""
    media_type, data = await asyncio.to_thread(current().store.content, request.path_params["sha256"])
    if media_type not in IMAGE_TYPES:
        return refused(404, "this content is not an image")
    # A content never changes. Opened by itself, it can do nothing.
    headers = {"cache-control": "private, max-age=86400, immutable", "content-security-policy": "sandbox"}
    return Response(data, media_type=media_type, headers=headers)


async def plotly_js(request: Request) -> Response:
    """Serves the part of Plotly that our figures need, or all of it, as its Python package brings it.

    A component cannot reach Streamlit's own copy. The browser keeps this one. It would ask for a file of a component,
    which Streamlit serves, again at each visit.
    """
    file = WHOLE_PLOTLY_JS if request.url.path.endswith("whole.js") else PLOTLY_JS
    return FileResponse(file, media_type="text/javascript", headers={"cache-control": _CACHED})


class _KatexFiles(StaticFiles):
    """Serves KaTeX, its style and its fonts, which pages ask for when a text has its first formula."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers["cache-control"] = _CACHED
        return response


ROUTES: list[BaseRoute] = [
    WebSocketRoute("/api/runs/{run_id}/live", follow_run),
    Route("/api/runs/{run_id}/recording", answered(recorded)),
    Route("/api/runs/{run_id}/share", answered(share), methods=["POST"]),
    Route("/api/runs/{run_id}/cancel", cancel_run, methods=["POST"]),
    Route("/api/runs/{run_id}/approve", answered(decide), methods=["POST"]),
    Route("/api/runs/{run_id}/deny", answered(decide), methods=["POST"]),
    Route("/api/runs/{run_id}/judgements", answered(judgements), methods=["GET", "POST"]),
    Route("/api/waiting", answered(count_waiting)),
    Route("/api/known-task", answered(known_task), methods=["POST"]),
    Route("/api/contents/{sha256}", answered(content)),
    Route("/api/plotly.js", plotly_js),
    Route("/api/plotly-whole.js", plotly_js),
    Mount("/api/katex", _KatexFiles(directory=KATEX)),
    *security.ROUTES,
]
MIDDLEWARE = [
    Middleware(one_line_start_fault),
    Middleware(quiet_when_left),
    Middleware(with_policy),
    Middleware(OwnPagesOnly, names=lambda: current().settings.allowed_hosts),
    Middleware(Beside, gateway=lambda: current().gateway),
    Middleware(addresses),
]
