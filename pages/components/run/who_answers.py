"""Asks who should answer a task that the simulated workers do not know, if only they are chosen.

It lists what this machine has (``engine.offers``). The best that keeps the task on this machine is chosen; a press on
Run takes it, with its Conductor, and goes on.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from functools import partial

import streamlit as st
from markupsafe import Markup

from conductor_core.engine import offers as core
from conductor_core.engine.models import FoundServer, Health, check_worker, find_servers, ready_workers, room
from conductor_core.engine.offers import Offer, Provider, SmallModel
from conductor_core.engine.pools import read_specs
from conductor_core.errors import BadInput, InspectorError
from conductor_core.privacy.masking import TypedKeys
from conductor_core.settings import Settings
from pages.components.app import places
from pages.components.app.session import current
from pages.components.app.widgets import (
    across,
    button,
    fault_box,
    kept_fault,
    remember,
    rerun_when,
    select,
    text_button,
)  # fmt: skip
from pages.components.run import preflight, settings
from pages.components.style.formats import html, inert, plural

_html = partial(html, "run/run")
CHOSEN = "who-answers"
PLANNER = "who-plans"
KEEP = "who-answers-keep"
PROVIDER, KEY, KEY_FAULT = "typed-provider", "typed-key", "typed-key-fault"
_ASKED_FOR = "who-answers-for"  # the task of the run on the page, if the page asks about that one, too
_PUT_OFF = "who-answers-put-off"  # a task in the box about which the page does not ask yet
_IS_ASKED = "who-answers-asked"  # whether the person has the question before them
_CHECKS = "who-answers-checks"
_LOCKED = "who-answers-locked-server"
AT_ONCE_S = 0.25
POLL_S = 0.3
EVERY_S = 1.0
LONGEST_KEY = 1_000
SIMULATED_RUN = "Show me the plan"
_checking = ThreadPoolExecutor(2, thread_name_prefix="who-answers")


@dataclass(frozen=True)
class Asking:
    """What the page asks about a task: ``offers`` has the simulated workers last, and Run takes the ``chosen`` one.

    ``looking``: whether this machine's servers have not answered yet.
    """

    task: str
    offers: tuple[Offer, ...]
    chosen: Offer
    servers: tuple[FoundServer, ...]
    looking: bool

    @property
    def in_words(self) -> str:
        ref = _planner(self)
        name = self.chosen.planner_name if ref == self.chosen.planner else ref
        return f"{name} · {self.chosen.short}, {plural(len(self.chosen.specs), 'worker')}"

    @property
    def run_label(self) -> str:
        return SIMULATED_RUN if self.chosen.kind == "simulated" else f"Run with {self.chosen.short}"


def concerns(task: str) -> bool:
    """Tells whether somebody has to say who answers: only simulated workers are chosen, and do not know this task."""
    return bool(task.strip()) and only_simulated() and not core.simulated_know(task)


def only_simulated() -> bool:
    try:
        specs = read_specs(settings.pool(), current().settings)
    except InspectorError:
        return False
    return all(spec.simulated for spec in specs)


def ask_for(task: str) -> None:
    st.session_state[_ASKED_FOR] = task.strip()
    st.session_state.pop(_PUT_OFF, None)


def put_off(task: str) -> None:
    """Has the page not ask about a task that is in the box, until the person goes on with it."""
    st.session_state[_PUT_OFF] = task.strip()


def asking(task: str, task_of_run: str | None) -> Asking | None:
    """Returns what to ask before the next run; None: nothing. ``task_of_run``: of the run on the page."""
    task = task.strip()
    if task and st.session_state.get(_PUT_OFF) == task:
        st.session_state[_IS_ASKED] = False
        return None
    again = task_of_run is not None and task == task_of_run.strip() and st.session_state.get(_ASKED_FOR) != task
    st.session_state[_IS_ASKED] = not again and concerns(task)
    return _asking(task) if st.session_state[_IS_ASKED] else None


def take(task: str) -> tuple[tuple[str, str] | None, bool]:
    """Returns Conductor and pool for a run of ``task``, and whether it can begin.

    It cannot if nobody has seen the question yet: then the page asks. None: the settings say who answers.
    Raises: BadInput if what is chosen cannot be taken.
    """
    task = task.strip()
    if not concerns(task):
        return None, True
    if not st.session_state.get(_IS_ASKED):
        ask_for(task)
        return None, False
    now = _asking(task)
    offer, ref = now.chosen, _planner(now)
    if offer.kind == "typed" and not _has_key(offer):
        raise BadInput("Type the key first, or choose other workers.")
    pool = core.saved(offer, ref if ref == offer.planner else None, current().settings)
    if offer.kind == "key" and ref == offer.planner:
        settings.conductor_options.clear()
    st.session_state.pop(_ASKED_FOR, None)
    if offer.planner is not None and not settings.was_proposed():
        settings.put_proposal_away()  # the person has just said who plans
    if st.session_state.get(KEEP):
        settings.use_conductor(ref)
        settings.use_pool(pool)
    return (ref, pool), True


def _asking(task: str) -> Asking:
    servers = preflight.asked_servers()
    looking = bool(wait_for([servers], timeout=AT_ONCE_S).not_done)
    found = () if looking else servers.result()
    on_disk = core.from_disk(core.small_models(current().settings), settings.conductor_options().values())
    offers = (*core.from_servers(found), *([] if on_disk is None else [on_disk]), *core.from_keys())
    offers = (*offers, core.from_typed_key(_provider(found)), core.simulated())
    picked = st.session_state.get(CHOSEN)
    chosen = next((offer for offer in offers if offer.id == picked), None) or core.best(offers)
    return Asking(task, offers, chosen, found, looking)


# What is drawn.


def panel(now: Asking, plan_only: Callable[[], None]) -> None:
    checks: list[Future[object]] = list(st.session_state.get(_CHECKS, {}).values())
    with st.container(key="who-answers", border=True):
        with across("offer-head"):
            st.html(_html("question"))
            served = any(offer.kind == "server" for offer in now.offers)
            said = "Looking for model servers …" if now.looking else "" if served else "No model server answered"
            st.html(_html("muted", words=said or "Found on this machine just now"), width="content")
            text_button("Look again", "look-again", _forget, disabled=now.looking)
        with st.container(key="offer-row-head", horizontal=True):
            st.html(_html("offers_head"))
            heads = {"where": "Where the text goes", "cost": "At most", "time": "Time", "state": "State"}
            st.html(_html("cells", **heads), width="content")
        for offer in now.offers:
            _row(now, offer)
            if offer.kind == "typed":
                if offer is now.chosen:
                    _key_field(now)
                _download_row()
    _who_plans(now, plan_only)
    with across("who-answers-foot"):
        st.checkbox("Use these workers for later tasks, too", key=KEEP, persist_state="session")
        st.html(_html("muted", words="Servers elsewhere, pool files and more keys:"), width="content")
        st.page_link(places.WORKERS, label="Workers", width="content")
    if now.looking:
        checks.append(preflight.asked_servers())  # type: ignore[arg-type]  # what it gives is not looked at
    if not all(each.done() for each in checks):
        rerun_when(lambda: all(each.done() for each in checks), POLL_S)


def _row(now: Asking, offer: Offer) -> None:
    chosen = offer is now.chosen
    with across(f"offer-row-{offer.id}"):
        with st.container(key=f"offer-who-{offer.id}", gap=None):
            icon = "radio_button_checked" if chosen else "radio_button_unchecked"
            text_button(inert(offer.title), f"offer-{offer.id}", remember, CHOSEN, offer.id, icon=icon)
            st.html(_html("second", words=_second(offer)))
        time = "at once" if offer.kind == "simulated" else _time(offer.seconds)
        cells = {"cost": _at_most(now, offer), "time": time, "state": _state(offer), "chosen": chosen}
        st.html(_html("cells", where=_html("where", offer=offer), **cells), width="content")
        with st.container(key=f"offer-do-{offer.id}", horizontal=True, width=110, horizontal_alignment="right"):
            if offer.kind == "key" or (offer.kind == "typed" and _has_key(offer)):
                button("Ask it", f"ask-{offer.id}", _ask, offer, help="Costs nothing.")
            else:
                st.html("<i></i>")  # Streamlit leaves an empty container out


def _second(offer: Offer) -> str:
    if offer.kind == "simulated":
        return "Show the plan and what each step would see. They cannot answer this."
    if offer.kind == "typed":
        return "Stays in memory, for this browser session alone; written nowhere"
    names = ", ".join(spec.name for spec in offer.specs)
    if offer.kind != "disk":
        return names
    [*_, last] = offer.specs
    alone = len(offer.specs) == 1 and last.description
    # A row may be too short for many names: what to expect comes first.
    return f"{last.name}: {last.description}" if alone else f"{offer.about} · {names}"


def _at_most(now: Asking, offer: Offer) -> str:
    if offer.kind == "typed" and not offer.specs:
        return "not known"
    most = core.most_usd(offer, offer.planner, now.task, settings.limits(), current().settings.plan_max_tokens)
    return "not known" if most is None else "$0" if most == 0 else f"≤ ${most:.2f}"


def _time(seconds: float | None) -> str:
    return "—" if seconds is None else f"about {max(1, round(seconds))} s a step"


def _state(offer: Offer) -> Markup:
    asked: Future[Health] | None = st.session_state.get(_CHECKS, {}).get(offer.id)
    if offer.kind == "simulated":
        return _html("simulated")
    if offer.kind == "disk":
        return _html("muted", words="loaded when asked")
    if offer.kind == "typed" and not _has_key(offer):
        return _html("muted", words="no key yet")
    if offer.kind == "server":
        health = Health(ok=True, latency_ms=offer.latency_ms, detail="")
    elif asked is None or not asked.done():
        return _html("muted", words="not asked yet" if asked is None else "asking …")
    else:
        health = asked.result()
    if health.ok:
        return _html("good", words="answers" + ("" if health.latency_ms is None else f", {health.latency_ms:.0f} ms"))
    return _html("bad", words=health.detail.removeprefix(f"worker {offer.specs[0].name}: "))


def _ask(offer: Offer) -> None:
    """Asks one worker for its models in a thread, so that the page does not wait."""
    checks = st.session_state.setdefault(_CHECKS, {})
    checks[offer.id] = _checking.submit(_checked, offer, current().settings, settings.typed_keys())


def _checked(offer: Offer, program: Settings, keys: TypedKeys) -> Health:
    try:
        return check_worker(offer.specs[0], program, keys)
    except InspectorError as error:
        return Health(ok=False, latency_ms=None, detail=str(error))


# A typed key.


def _provider(servers: Sequence[FoundServer]) -> Provider:
    """Returns the provider that the typed key is for. The models of one of this machine are known once it has a key."""
    offered = core.providers(servers)
    wanted = st.session_state.get(PROVIDER)
    found = next((each for each in offered if each.base_url == wanted), offered[0])
    if not found.specs and settings.typed_keys().of(found.base_url) is not None:
        named = st.session_state.get(_LOCKED, {}).get(found.base_url, ())
        return Provider(found.base_url, found.title, ready_workers(named))
    return found


def _has_key(offer: Offer) -> bool:
    return bool(offer.specs) and settings.typed_keys().of(offer.specs[0].base_url) is not None


def _key_field(now: Asking) -> None:
    provider = _provider(now.servers)
    offered = {each.base_url: each.title for each in core.providers(now.servers)}
    with across("typed-key-row"):
        select(
            "Provider", offered, PROVIDER, index=list(offered).index(provider.base_url),
            format_func=offered.__getitem__, width=230, persist_state="session",
        )  # fmt: skip
        if settings.typed_keys().of(provider.base_url) is None:
            st.text_input(
                "Key", type="password", key=KEY, placeholder=f"Key for {provider.title}, then Enter",
                label_visibility="collapsed", width=340, max_chars=LONGEST_KEY, on_change=_take_key, args=(provider,),
            )  # fmt: skip
        else:
            models = ", ".join(spec.name for spec in provider.specs) or "no models named"
            st.html(_html("key_here", models=models), width="content")
            text_button("Forget it", "forget-key", _forget, provider.base_url)
    if message := st.session_state.get(KEY_FAULT):
        fault_box(message)


def _take_key(provider: Provider) -> None:
    """Takes the key out of its field: nothing of the page keeps it but ``mine``."""
    typed = str(st.session_state.get(KEY) or "")
    st.session_state[KEY] = ""
    st.session_state.pop(KEY_FAULT, None)
    st.session_state.pop(_CHECKS, None)
    if not typed.strip():
        return
    url, keys = provider.base_url, settings.typed_keys()
    with kept_fault(KEY_FAULT):
        keys.put(url, typed)
        if provider.host is None:  # this machine's servers are asked once more, this one with its key
            found = find_servers({}, current().settings, keys)
            models = tuple(server for server in found if server.base_url == url and server.models)
            st.session_state.setdefault(_LOCKED, {})[url] = models
            if not models:
                keys.forget(url)
                raise BadInput(f"{provider.title} refused that key, or names no models with it.")
    preflight.forget()


def _forget(base_url: str | None = None) -> None:
    """Forgets what servers said, so that they are asked again, or that one's key."""
    st.session_state.pop(_CHECKS, None)
    if base_url is None:
        preflight.asked_servers.clear()
    else:
        settings.typed_keys().forget(base_url)
        preflight.forget()


# A download.


def _download_row() -> None:
    model = _to_download()
    if model is None:
        return
    moving = model.download.moving

    @st.fragment(run_every=EVERY_S if moving else None)
    def draw() -> None:
        now = _to_download()
        if now is None or now.download.moving != moving:
            st.rerun()
        with across("offer-row-download"):
            with st.container(key="offer-who-download", gap=None):
                st.html(_html("download_name"))
                second = f"{now.spec.name}, apache-2.0: answers quickly, not always rightly"
                st.html(_html("second", words=second))
            state = _html("muted", words=_download_state(now))
            if now.download.state == "failed":
                state = _html("bad", words=now.download.reason)
            cells = {"where": "stays on this machine", "cost": "$0", "time": _time(now.answer_s)}
            st.html(_html("cells", **cells, state=state), width="content")
            with st.container(key="offer-do-download", horizontal=True, width=110, horizontal_alignment="right"):
                if moving:
                    button("Pause", "offer-pause", core.pause, [now])
                else:
                    button("Download", "offer-download", core.begin, [now])

    draw()


def _to_download() -> SmallModel | None:
    models = core.small_models(current().settings)
    if any(model.download.state == "here" for model in models):
        return None
    return next((model for model in models if model.fits), None)


def _download_state(model: SmallModel) -> str:
    download = model.download
    if download.here_bytes or download.moving:
        so_far = f"{download.here_bytes / 1e9:.1f} of {model.size_bytes / 1e9:.1f} GB"
        return f"{so_far}, {download.bytes_per_s / 1e6:.0f} MB/s" if download.bytes_per_s else so_far
    try:
        free = room()[1]
    except OSError:
        return f"{model.size_bytes / 1e9:.1f} GB"
    return f"needs {model.size_bytes / 1e9:.1f} GB, {free / 1e9:.1f} GB free"


# Who plans.


def _planners(now: Asking) -> dict[str, str]:
    offer = now.chosen
    own = {} if offer.planner is None else {offer.planner: f"{inert(offer.planner_name)} writes the plan"}
    others = {}
    if settings.conductor() != settings.SHIPPED:
        others[settings.conductor()] = f"{inert(settings.conductor())} writes the plan"
    if settings.READS_THE_TASK in settings.conductor_options():
        others[settings.READS_THE_TASK] = "small writes a plan for this very task :gray[some seconds]"
    others[settings.SHIPPED] = "tiny chooses among known kinds of plan :gray[at once]"
    return {**own, **others} if offer.strong else {**others, **own}


def _planner(now: Asking) -> str:
    offered = _planners(now)
    wanted = st.session_state.get(f"{PLANNER}-{now.chosen.id}")
    return wanted if wanted in offered else next(iter(offered))


def _who_plans(now: Asking, plan_only: Callable[[], None]) -> None:
    offered = _planners(now)
    with across("who-plans-row", border=True):
        st.html(_html("who_plans"), width="content")
        with st.container(key="who-plans-choice"):
            st.radio(
                "Who plans?", list(offered), format_func=offered.__getitem__, key=f"{PLANNER}-{now.chosen.id}",
                horizontal=True, label_visibility="collapsed",
            )  # fmt: skip
        button("See the plan first", "see-plan", plan_only)
