"""What the Run page says before a run: who would answer, what is wrong with the rest, and a click that helps.

An opened run brings its own Conductor, pool and policies, so that a new run asks the same models in the same way. The
earlier choices return once no run is open, unless the person has chosen something else meanwhile.

It proposes once a larger Conductor of this machine, because the shipped one only chooses among kinds of plan.
"""

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass

import streamlit as st

from conductor_core.chat.messages import WorkerSpec
from conductor_core.chat.usage import estimate_tokens
from conductor_core.engine import models
from conductor_core.engine.pools import missing_keys
from conductor_core.engine.preflight import Part, Preflight, preflight
from conductor_core.errors import ConductorUnavailable, InspectorError, WorkerUnreachable, codes_of
from conductor_core.privacy.masking import TYPED_KEY
from conductor_core.run.request import PASS_PURPOSE
from conductor_core.run.trace import RunTrace
from conductor_core.settings import Settings
from pages.components.app import places
from pages.components.app.session import current
from pages.components.app.widgets import across, button, rerun_when, text_button
from pages.components.run import settings as run_settings
from pages.components.run.settings import Policies
from pages.components.style.formats import inert, plural

# Choices that an opened run brings.

_BROUGHT = "choices-from-run"
_FAILED = "failed-run-seen"
_MAY_BE_ASKED = "addresses-that-may-be-asked"


@dataclass(frozen=True)
class _Brought:
    """The choices that the run on the page set, and those before it: Conductor and pool, and the policies."""

    run_id: str
    models: tuple[str, str]
    models_before: tuple[str, str]
    policies: Policies
    policies_before: Policies
    missing: tuple[str, ...]


def apply_choices_of(trace: RunTrace | None) -> None:
    """Takes the run's choices over. Call it before the fields are drawn."""
    if trace is not None and trace.status == "failed" and st.session_state.get(_FAILED) != trace.run_id:
        st.session_state[_FAILED] = trace.run_id
        forget()  # its servers answered before, and may not now
    brought: _Brought | None = st.session_state.get(_BROUGHT)
    if trace is not None and brought is not None and brought.run_id == trace.run_id:
        return
    before, policies_before = (run_settings.conductor(), run_settings.pool()), run_settings.chosen_policies()
    if brought is not None and before == brought.models:
        before = brought.models_before
        run_settings.put(*before)
    if brought is not None and policies_before == brought.policies:
        policies_before = brought.policies_before
        run_settings.put_policies(policies_before)
    st.session_state.pop(_BROUGHT, None)
    if trace is None:
        return
    missing = []
    conductor, pool = before
    # What could not be reached is not chosen again by a look at the run that failed for it.
    unreached = codes_of(ConductorUnavailable, WorkerUnreachable) if trace.status == "failed" else frozenset()
    if trace.conductor is not None and trace.error_code not in unreached:
        if run_settings.conductor_available(trace.conductor.name):
            conductor = trace.conductor.name
        else:
            missing.append(f"Conductor “{trace.conductor.name}”")
    found = run_settings.pool_called(trace.pool.name)
    if found is None:
        if trace.purpose != PASS_PURPOSE:  # nobody chose a forwarded request's pool
            missing.append(f"pool “{trace.pool.name}”")
    elif any(step.error_code in unreached for step in trace.walk()):
        found = None
    else:
        pool = found
    run_settings.put(conductor, pool)
    if found is not None and trace.pool.excluded:
        run_settings.leave_out(trace.pool.excluded, keep=False)
    of_pool = None if found is None else run_settings.policies_of_pool(found)
    own = Policies(  # None where the pool, if it is there, has the same by itself
        None if of_pool and of_pool.on_incomplete == trace.on_incomplete else trace.on_incomplete,
        None if of_pool and of_pool.give_question == trace.give_question else trace.give_question,
    )
    run_settings.put_policies(own)
    models = conductor, pool
    st.session_state[_BROUGHT] = _Brought(trace.run_id, models, before, own, policies_before, tuple(missing))


def missing_note() -> str:
    """Says in a sentence which parts of the opened run the page cannot choose; empty: none."""
    brought: _Brought | None = st.session_state.get(_BROUGHT)
    if brought is None or not brought.missing:
        return ""
    verb = "is" if len(brought.missing) == 1 else "are"
    left = f"Conductor {run_settings.conductor()} and pool {run_settings.pool_name()} are set for the next run."
    missing = " and the ".join(brought.missing)
    return inert(f"The {missing} of this run {verb} not among the choices of this page. {left}")


def address_of_the_run_alone() -> str | None:
    """Returns the chosen Conductor if it is an address that the opened run brought and nobody here chose; else None.

    Anybody may have made the record, and a health check would send the key of CONDUCTOR_API_KEY to that server.
    """
    brought: _Brought | None = st.session_state.get(_BROUGHT)
    ref = run_settings.conductor()
    if brought is None or "://" not in ref or ref != brought.models[0] or ref == brought.models_before[0]:
        return None
    return None if ref in st.session_state.get(_MAY_BE_ASKED, ()) else ref


def may_be_asked(ref: str | None) -> None:
    """Lets this session's pages ask the Conductor at that address, as if somebody had chosen it here."""
    st.session_state[_MAY_BE_ASKED] = (*st.session_state.get(_MAY_BE_ASKED, ()), ref)


SIMULATED = "rehearsal"
KEPT_S = 60.0  # how long an answer is valid: a page is drawn at every click, and a server comes or goes seldom
AT_ONCE_S = 0.25  # how long a page waits for the answer before it is drawn without: a healthy server takes far less
POLL_S = 0.3
Missing = Mapping[str, tuple[str, ...]]  # variables of keys that are not set, each with the workers that need it
_LONG_TASK = 2000  # tokens; the length of a longer task is asked about anew as it grows


_preflights: dict[object, tuple[Future[Preflight], float]] = {}  # each with the second of the clock at which it began
_lock = threading.Lock()
_asking = ThreadPoolExecutor(4, thread_name_prefix="pre-flight")


def preflight_notice(specs: Sequence[WorkerSpec], task: str) -> None:
    """Draws one line; nothing where all workers are simulated and the Conductor is the shipped one.

    ``specs`` are all workers of the pool, also those left out. There are none if the pool cannot be read.
    """
    used = [spec for spec in specs if spec.name not in run_settings.excluded()]
    if not used or (all(spec.simulated for spec in used) and run_settings.conductor() in run_settings.BUILT_IN):
        return
    unasked = address_of_the_run_alone()
    checks = _begin_checks(run_settings.conductor() if unasked is None else None, used, task)
    waiting = bool(wait_for([checks], timeout=AT_ONCE_S).not_done)
    _line(used, checks, unasked)
    if waiting:
        rerun_when(checks.done, POLL_S)


def forget() -> None:
    with _lock:
        _preflights.clear()


def _begin_checks(conductor: str | None, specs: Sequence[WorkerSpec], task: str) -> Future[Preflight]:
    """Asks in a thread, so that no page waits for a server. All pages of this process share the answer."""
    limits, size = run_settings.limits(), estimate_tokens(task)
    length = size // 1000 if size > _LONG_TASK else 0
    keys = run_settings.typed_keys()
    typed = keys if any(spec.api_key_env == TYPED_KEY for spec in specs) else None
    key = (conductor, tuple(spec.model_dump_json() for spec in specs), limits.max_usd, length, typed)
    with _lock:
        now = time.monotonic()
        for old in [each for each, (found, begun_s) in _preflights.items() if now - begun_s > KEPT_S and found.done()]:
            del _preflights[old]
        if key not in _preflights:
            asked = _asking.submit(preflight, conductor, specs, limits, current().settings, task, keys)
            _preflights[key] = asked, now
        return _preflights[key][0]


def _line(used: Sequence[WorkerSpec], checks: Future[Preflight], unasked: str | None) -> None:
    """Draws the line. ``unasked`` is the Conductor's address if the run brought it: its server then gets no key."""
    found, fault = None, ""
    if checks.done():
        try:
            found = checks.result()
        except InspectorError as error:
            fault = str(error)
    missing = missing_keys(used, run_settings.typed_keys())
    with across("key-notice", gap="small"):
        st.markdown(_words(used, missing, found, fault, unasked), width="stretch")
        if found is not None:
            with st.popover(_answering(found), width="content", key="preflight-all"):
                for part in found.parts:
                    _row(part)
                if found.budget_warning:
                    st.markdown(f":orange[:material/money_off:] {inert(_sentence(found.budget_warning))}")
        if unasked is not None:
            button("Ask the Conductor", "ask-conductor", may_be_asked, unasked)
        _help(used, missing, found)


def _words(
    used: Sequence[WorkerSpec], missing: Missing, found: Preflight | None, fault: str, unasked: str | None
) -> str:
    if fault:
        return f":orange[:material/warning:] {inert(fault)}"
    if missing:
        variables = ", ".join(f"**{inert(variable)}**" for variable in missing)
        keyless = sum(map(len, missing.values()))
        others = 0 if found is None else len(found.failing) - keyless
        more = f" And {plural(others, 'other')} {'does' if others == 1 else 'do'} not answer." if others > 0 else ""
        return (
            f":orange[:material/key_off:] {inert(run_settings.pool_name())}: {run_settings.keys_set(used)}. "
            f"Not set: {variables}.{more}"
        )
    if found is None:
        conductor = "" if unasked else " and the Conductor"
        return f":gray[:material/network_check: Asking {plural(len(used), 'worker')}{conductor}…]"
    if found.failing:
        first = found.failing[0]
        more = f" And {len(found.failing) - 1} more." if len(found.failing) > 1 else ""
        return f":orange[:material/warning:] {inert(_sentence(first.detail))}{more}"
    if found.budget_warning:
        return f":orange[:material/money_off:] {inert(_sentence(found.budget_warning))}"
    if unasked:
        return f":gray[:material/help: The Conductor {inert(unasked)} came with this run and was not asked.]"
    return ":green[:material/check_circle:] :gray[Ready to run.]"


def _answering(found: Preflight) -> str:
    if failing := len(found.parts) - found.answering:
        return f"{failing} of {len(found.parts)} {'does' if failing == 1 else 'do'} not answer"
    workers = plural(sum(part.role == "worker" for part in found.parts), "worker")
    if any(part.role == "conductor" for part in found.parts):
        return f"The Conductor and {workers} answer"
    return f"{workers} {'answers' if len(found.parts) == 1 else 'answer'}"


def _sentence(text: str) -> str:
    text = (text[:1].upper() + text[1:]).rstrip(".")
    return text if text.endswith("?") else f"{text}."


def _row(part: Part) -> None:
    sign = ":green[:material/check_circle:]" if part.ok else ":red[:material/error:]"
    who = "Conductor " if part.role == "conductor" else ""
    took = "" if part.latency_ms is None or not part.ok else f" · {part.latency_ms:.0f} ms"
    price = "" if part.priced else " · price unknown"
    # A fault names its part, which other places need; here the name stands before it.
    said = part.detail.removeprefix(f"{who or 'worker '}{part.name}").lstrip(": ")
    st.markdown(f"{sign} **{who}{inert(part.name)}** · {inert(said)}{took}{price}")


def _help(used: Sequence[WorkerSpec], missing: Missing, found: Preflight | None) -> None:
    away = next((part for part in found.failing if part.role == "conductor" and part.hopeless), None) if found else None
    if away is not None and models.is_away(away.name, current().settings):
        st.page_link(places.MODELS, label="Get it", icon=":material/download:", query_params={"model": away.name})
        return
    dead = found is not None and any(part.role == "conductor" for part in found.failing)
    out = [name for names in missing.values() for name in names] if found is None else found.failing_workers
    if out and len(out) < len(used):
        button("Use only what answers", "use-answering", run_settings.leave_out, out)
    elif out:
        shipped = run_settings.SHIPPED if dead else None  # the Conductor does not answer either, and is left, too
        button("Use the simulated pool", "use-simulated", run_settings.use_pool, SIMULATED, shipped)
    elif found is not None and found.failing:
        if dead:
            button("Plan with tiny", "use-shipped", run_settings.use_conductor, run_settings.SHIPPED)
        button("Ask again", "ask-again", forget)


# A larger Conductor.

log = logging.getLogger(__name__)

RECHECK_S = 60
_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="servers")


def propose_larger_conductor() -> None:
    if run_settings.conductor() not in run_settings.BUILT_IN or run_settings.was_proposed():
        return
    found = models.larger_conductors(run_settings.conductor_options().values(), served())
    if not found:
        return
    best = found[0]
    with across("larger-conductor"):
        st.markdown(
            f":material/lightbulb: **{inert(best.name)}** ({inert(best.where)}) could plan this. "
            ":gray[The shipped Conductor only chooses among kinds of plan.]",
            width="stretch",
        )
        button("Plan with it", "larger-use", run_settings.put_proposal_away, best.ref)
        text_button("Not now", "larger-no", run_settings.put_proposal_away)


def served() -> tuple[WorkerSpec, ...]:
    """Returns the known models on this machine's servers, which are asked in the background once a minute."""
    asked = asked_servers()
    return models.ready_workers(asked.result()) if asked.done() else ()


@st.cache_resource(ttl=RECHECK_S, show_spinner=False)
def asked_servers() -> "Future[tuple[models.FoundServer, ...]]":
    """Returns the question to this machine's servers, which goes on in the background. It never fails."""
    return _thread.submit(_found, current().settings)


def _found(settings: Settings) -> tuple[models.FoundServer, ...]:
    try:
        return models.find_servers({}, settings)
    except Exception:
        log.exception("the search for model servers on this machine failed")
        return ()
