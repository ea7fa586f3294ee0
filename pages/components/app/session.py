"""The pages' only wiring point: settings, store and engine, made once when the app starts."""

import hashlib
import logging
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import streamlit as st
import uvicorn
from pydantic import ValidationError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from conductor_core.engine.host import EngineHost
from conductor_core.errors import BadInput, InspectorError, StoreError
from conductor_core.export.otel import LiveTraces, open_traces, watched
from conductor_core.files import keep_private, only_for_owner
from conductor_core.mcp.http import OverHttp
from conductor_core.privacy import masking
from conductor_core.run.actor import local_caller
from conductor_core.run.share import recorded_runs
from conductor_core.run.trace import RunTrace
from conductor_core.serving.compaction import sealing_key
from conductor_core.serving.gateway import Gateway
from conductor_core.serving.served_models import ServedModels
from conductor_core.serving.turns import Turns
from conductor_core.settings import Settings, setting_fault
from pages.components.app.security import valid_id
from pages.components.style.formats import inert
from storage import Privacy, Store, open_store

log = logging.getLogger(__name__)

WARM_UP_AFTER_S = 2.0  # loading a model takes the processor, and the first page's own files go first
_STOP_WITHIN_S = 3  # how long a stopping server waits for open connections


@dataclass(frozen=True)
class Session:
    settings: Settings
    store: Store
    host: EngineHost
    served: ServedModels
    traces: LiveTraces | None = None

    @cached_property
    def gateway(self) -> Gateway:
        """What the endpoint beside the pages answers from. Call it on the server's loop. Raises: OSError."""
        store, seal = self.store, sealing_key(self.settings.data_folder)
        turns = Turns(self.host, store, self.settings, self.served)
        kept = store.service_keys, seal, store.deleted_responses, store.judgements
        return Gateway(turns, self.served, *kept, tools=OverHttp(store))

    def warm_up(self) -> None:
        """Loads the default Conductor before the first run, if it is one of this process. Returns at once."""
        if self.settings.warm_up:
            self.host.warm_up(self.settings.conductor, self.settings.pool, WARM_UP_AFTER_S)


_session: Session | None = None


def current() -> Session:
    """Returns the app's session. Raises: RuntimeError before the app has started."""
    if _session is None:
        raise RuntimeError("the app has not started: its lifespan makes the session")
    return _session


def open_session(settings: Settings) -> Session:
    """Opens the store, marks the runs of a dead process as interrupted, and starts the engine.

    The search index is kept up to date. A new database gets the recorded runs. The engine goes on with all runs about
    which somebody decided while no process heard it. Raises: StoreError; BadInput if traces are to be sent and cannot
    be.
    """
    served = ServedModels.read(settings, None)
    only_for_owner()
    keep_private(settings.data_folder.resolve(), levels=2)
    store = open_store(
        settings.resolved_database_url,
        Privacy.of(settings),
        anchor=settings.anchor,
        signing_key=settings.signing_key,
        machine_key=settings.machine_key,
    )
    try:
        store.mark_interrupted()
        if store.refusal is None:
            store.search.keep_up()
        if settings.recorded_runs:
            _import_recorded(store)
        traces = open_traces(settings, lambda run_id: [stored.event for stored in store.events(run_id)])
    except BaseException:
        store.close()
        raise
    host = EngineHost(watched(store.log, traces), settings, store, awaited=False, carries_on_all=True)
    host.carry_on_all()
    return Session(settings, store, host, served, traces)


def _import_recorded(store: Store) -> None:
    """Puts the recorded runs into a new database, all or none. A database that has held a run stays as it is."""
    try:
        if store.refusal is None and not store.was_used():
            store.log.append_and_wait(*chain.from_iterable(recorded_runs()))
    except StoreError as error:  # also if another process has just done it; what is there can be shown without them
        log.warning("the recorded runs were not put into the database: %s", error)


@asynccontextmanager
async def lifespan(_app: Any) -> AsyncIterator[dict[str, Any]]:
    """Holds one session for the life of the server process. Raises: BadInput for a setting, StoreError."""
    global _session
    masking.mask_logs()
    _bound_the_wait_for_connections()
    try:
        settings = Settings()
    except ValidationError as error:
        raise BadInput(setting_fault(error)) from error
    _session = open_session(settings)
    try:
        yield {}
    finally:
        _session.host.close()
        if _session.traces is not None:
            _session.traces.close()
        try:
            _session.store.close()
        except StoreError as error:
            log.error("%s", error)
        _session = None


def _bound_the_wait_for_connections() -> None:
    """Limits how long the stopping server waits for a browser that connects at this moment and then says nothing.

    Uvicorn would wait forever. Streamlit cannot set uvicorn's limit, so the stop signal's handler leads to the server.
    """
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    if isinstance(server, uvicorn.Server):
        server.config.timeout_graceful_shutdown = _STOP_WITHIN_S


def one_line_start_fault(app: ASGIApp) -> ASGIApp:
    """Makes the server log in one line, without a traceback, why the app cannot start.

    The server then ends with an exit code other than 0. A fault of the program itself keeps its traceback.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_line(message: Message) -> None:
            # The router sends this message, whose text is the traceback, while it handles the exception.
            if message["type"] == "lifespan.startup.failed" and isinstance(fault := sys.exception(), InspectorError):
                message = {**message, "message": f"error: {fault}"}
            await send(message)

        await app(scope, receive, send_line if scope["type"] == "lifespan" else send)

    return answer


def readable(run_id: str | None) -> RunTrace | None:
    """Returns the run; None: there is none, or it cannot be read whole, as its own page and History say."""
    try:
        return None if run_id is None else current().store.trace(run_id)[0]
    except InspectorError:
        return None


# Who looks: what a page shows of runs is on record, with the browser (docs/audit.md).

_SALT = secrets.token_bytes(16)
_OWN = "looking-session"


def viewed(run_ids: Iterable[str], what: str) -> None:
    """Keeps that the person at this page sees content of these runs. Draws a warning if that could not be kept."""
    current().store.access_log.viewed(run_ids, what, local_caller("page"), this_browser())
    fault_note()


def exported(run_ids: Iterable[str], what: str, browser: str) -> None:
    """Keeps that the person at ``browser`` saves these runs in a file of the form ``what``. Any thread may call it."""
    current().store.access_log.exported(run_ids, what, local_caller("page"), browser)


def searched(typed: str, filters: Iterable[str], what: str) -> None:
    """Keeps that the person at this page searched all texts: digests of the words, and the filters' names."""
    current().store.access_log.searched(typed, filters, what, local_caller("page"), this_browser())


def fault_note() -> None:
    if (fault := current().store.access_log.fault) is not None:
        said = f"Views cannot be logged: {fault}. Everything is shown all the same."
        st.warning(inert(said), icon=":material/visibility_off:")


def asked_by_browser(cookies: Mapping[str, str]) -> str:
    """Returns the name of the browser that sent ``cookies`` in the log; empty if it keeps no cookies.

    It is the same for all tabs, says nothing about the cookie, and is another one after the server was started again.
    """
    browser = valid_id(cookies)
    return "" if browser is None else hashlib.sha256(_SALT + browser.encode()).hexdigest()[:8]


def this_browser() -> str:
    """Returns the name in the log of the browser whose page is being drawn; without cookies, that of the tab."""
    return asked_by_browser(st.context.cookies) or st.session_state.setdefault(_OWN, secrets.token_hex(4))
