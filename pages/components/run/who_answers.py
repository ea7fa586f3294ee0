"""Asks who should answer a task that the simulated workers do not know, if only they are chosen.

It lists what this machine has (``engine.offers``). The best that keeps the task on this machine is chosen; a press on
Run takes it, with its Conductor, and goes on.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from html import escape

import streamlit as st

from conductor_core.engine import offers as core
from conductor_core.engine.models import FoundServer, Health, check_worker, find_servers, ready_workers, room
from conductor_core.engine.offers import Offer, Provider, SmallModel
from conductor_core.engine.pools import read_specs
from conductor_core.errors import BadInput, InspectorError
from conductor_core.privacy.masking import TypedKeys
from conductor_core.settings import Settings
from pages.components.app import places
from pages.components.app.session import current
from pages.components.run import preflight, settings, typed_keys
from pages.components.style.formats import inert, plural

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
    """What the page asks about a task.

    Attributes:
        offers: who could answer, the simulated workers last. chosen: the one that Run takes.
        looking: whether this machine's servers have not answered yet.
    """

    task: str
    offers: tuple[Offer, ...]
    chosen: Offer
    servers: tuple[FoundServer, ...]
    looking: bool

    @property
    def in_words(self) -> str:
        """Says in short who will plan and who will answer."""
        workers = plural(len(self.chosen.specs), "worker")
        return f"{_planner_name(self)} · {self.chosen.short}, {workers}"

    @property
    def run_label(self) -> str:
        return SIMULATED_RUN if self.chosen.kind == "simulated" else f"Run with {self.chosen.short}"


def concerns(task: str) -> bool:
    """Tells whether somebody has to say who answers: only simulated workers are chosen, and do not know this task."""
    if not task.strip() or not only_simulated():
        return False
    return not core.simulated_know(task)


def only_simulated() -> bool:
    try:
        specs = read_specs(settings.pool(), current().settings)
    except InspectorError:
        return False
    return all(spec.simulated for spec in specs)


def ask_for(task: str) -> None:
    """Has the page ask, although its run of that task stands below."""
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
    program = current().settings
    small = core.small_models(program)
    on_disk = core.from_disk(small, settings.conductor_options().values())
    offers = (
        *core.from_servers(found),
        *([] if on_disk is None else [on_disk]),
        *core.from_keys(),
        core.from_typed_key(_provider(found)),
        core.simulated(),
    )
    picked = st.session_state.get(CHOSEN)
    chosen = next((offer for offer in offers if offer.id == picked), None) or core.best(offers)
    return Asking(task, offers, chosen, found, looking)


# What is drawn.


def panel(now: Asking, plan_only: Callable[[], None]) -> None:
    """Draws the question below the task. ``plan_only`` starts a run that ends with its plan."""
    with st.container(key="who-answers", border=True):
        _head(now)
        with st.container(key="offer-row-head", horizontal=True):
            st.html('<div class="cells offer-who">Workers</div>')
            st.html(_cells("Where the text goes", "At most", "Time", "State"), width="content")
        for offer in now.offers:
            _row(now, offer)
            if offer.kind == "typed":
                if offer is now.chosen:
                    _key_field(now)
                _download_row()
    _who_plans(now, plan_only)
    with st.container(key="who-answers-foot", horizontal=True, vertical_alignment="center"):
        st.checkbox("Use these workers for later tasks, too", key=KEEP, persist_state="session")
        st.html('<span class="muted">Servers elsewhere, pool files and more keys:</span>', width="content")
        st.page_link(places.WORKERS, label="Workers", width="content")
    _wait(now)


def _head(now: Asking) -> None:
    with st.container(key="offer-head", horizontal=True, vertical_alignment="center"):
        st.html(
            '<div class="offer-title">Who should answer this?</div>'
            '<div class="muted">The simulated workers know the example tasks only. This task needs models that really '
            "answer.</div>"
        )
        served = any(offer.kind == "server" for offer in now.offers)
        said = "Looking for model servers …" if now.looking else "" if served else "No model server answered"
        st.html(f'<span class="muted">{said or "Found on this machine just now"}</span>', width="content")
        st.button("Look again", key="look-again", type="tertiary", on_click=_look_again, disabled=now.looking)


def _look_again() -> None:
    preflight.ask_servers_again()
    st.session_state.pop(_CHECKS, None)


def _row(now: Asking, offer: Offer) -> None:
    chosen = offer is now.chosen
    with st.container(key=f"offer-row-{offer.id}", horizontal=True, vertical_alignment="center"):
        with st.container(key=f"offer-who-{offer.id}", gap=None):
            icon = ":material/radio_button_checked:" if chosen else ":material/radio_button_unchecked:"
            say = {"key": f"offer-{offer.id}", "icon": icon, "type": "tertiary"}
            st.button(inert(offer.title), on_click=_choose, args=(offer.id,), **say)  # type: ignore[arg-type]
            st.html(f'<div class="ellipsis muted second">{escape(_second(offer))}</div>')
        where = f"<b>goes to {escape(offer.goes_to)}</b>" if offer.goes_to else "stays on this machine"
        if offer.passed_on:
            where = "<b>the server may pass it on</b>"
        st.html(_cells(where, _at_most(now, offer), _time(offer), _state(offer), chosen=chosen), width="content")
        with st.container(key=f"offer-do-{offer.id}", horizontal=True, width=110, horizontal_alignment="right"):
            if offer.kind == "key" or (offer.kind == "typed" and _has_key(offer)):
                st.button("Ask it", key=f"ask-{offer.id}", on_click=_ask, args=(offer,), help="Costs nothing.")
            else:
                st.html("<i></i>")  # Streamlit leaves an empty container out


def _choose(offer_id: str) -> None:
    st.session_state[CHOSEN] = offer_id


def _second(offer: Offer) -> str:
    if offer.kind == "simulated":
        return "Show the plan and what each step would see. They cannot answer this."
    if offer.kind == "typed":
        return "Stays in memory, for this browser session alone; written nowhere"
    return ", ".join(spec.name for spec in offer.specs)


def _at_most(now: Asking, offer: Offer) -> str:
    if offer.kind == "typed" and not offer.specs:
        return "not known"
    most = core.most_usd(offer, offer.planner, now.task, settings.limits(), current().settings.plan_max_tokens)
    if most is None:
        return "not known"
    return "$0" if most == 0 else f"≤ ${most:.2f}"


def _time(offer: Offer) -> str:
    if offer.kind == "simulated":
        return "at once"
    return "—" if offer.seconds is None else f"about {max(1, round(offer.seconds))} s a step"


def _state(offer: Offer) -> str:
    if offer.kind == "simulated":
        return '<span class="pill simulated">Simulated</span>'
    if offer.kind == "disk":
        return '<span class="muted">loaded when asked</span>'
    if offer.kind == "server":
        took = "" if offer.latency_ms is None else f", {offer.latency_ms:.0f} ms"
        return f'<span class="good">✓ answers{took}</span>'
    if offer.kind == "typed" and not _has_key(offer):
        return '<span class="muted">no key yet</span>'
    asked: Future[Health] | None = st.session_state.get(_CHECKS, {}).get(offer.id)
    if asked is None:
        return '<span class="muted">not asked yet</span>'
    if not asked.done():
        return '<span class="muted">asking …</span>'
    health = asked.result()
    if health.ok:
        took = "" if health.latency_ms is None else f", {health.latency_ms:.0f} ms"
        return f'<span class="good">✓ answers{took}</span>'
    said = health.detail.removeprefix(f"worker {offer.specs[0].name}: ")
    return f'<span class="bad" title="{escape(said)}">✕ {escape(said)}</span>'


def _cells(where: str, cost: str, time: str, state: str, *, chosen: bool = False) -> str:
    mark = " chosen" if chosen else ""
    return (
        f'<div class="cells offer{mark}"><span>{where}</span><span class="number">{cost}</span>'
        f'<span class="number">{time}</span><span class="ellipsis">{state}</span></div>'
    )


def _ask(offer: Offer) -> None:
    """Asks one worker for its models in a thread, so that the page does not wait."""
    checks = st.session_state.setdefault(_CHECKS, {})
    checks[offer.id] = _checking.submit(_checked, offer, current().settings, typed_keys.mine())


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
    named: dict[str, tuple[FoundServer, ...]] = st.session_state.get(_LOCKED, {})
    if not found.specs and typed_keys.mine().of(found.base_url) is not None:
        return Provider(found.base_url, found.title, ready_workers(named.get(found.base_url, ())))
    return found


def _has_key(offer: Offer) -> bool:
    return bool(offer.specs) and typed_keys.mine().of(offer.specs[0].base_url) is not None


def _key_field(now: Asking) -> None:
    provider = _provider(now.servers)
    offered = {each.base_url: each.title for each in core.providers(now.servers)}
    with st.container(key="typed-key-row", horizontal=True, vertical_alignment="center"):
        st.selectbox(
            "Provider",
            list(offered),
            index=list(offered).index(provider.base_url),
            format_func=lambda url: offered[url],
            key=PROVIDER,
            label_visibility="collapsed",
            width=230,
            persist_state="session",
        )
        if typed_keys.mine().of(provider.base_url) is None:
            st.text_input(
                "Key",
                type="password",
                key=KEY,
                placeholder=f"Key for {provider.title}, then Enter",
                label_visibility="collapsed",
                width=340,
                max_chars=LONGEST_KEY,
                on_change=_take_key,
                args=(provider,),
            )
        else:
            models = ", ".join(spec.name for spec in provider.specs) or "no models named"
            st.html(
                f'<span class="good">✓ key here</span> <span class="muted">{escape(models)}</span>', width="content"
            )
            st.button("Forget it", key="forget-key", type="tertiary", on_click=_forget, args=(provider.base_url,))
    if message := st.session_state.get(KEY_FAULT):
        st.error(inert(message), icon=":material/error:")


def _take_key(provider: Provider) -> None:
    """Takes the key out of its field: nothing of the page keeps it but ``mine``."""
    typed = str(st.session_state.get(KEY) or "")
    st.session_state[KEY] = ""
    st.session_state.pop(KEY_FAULT, None)
    st.session_state.pop(_CHECKS, None)
    if not typed.strip():
        return
    try:
        typed_keys.mine().put(provider.base_url, typed)
        if provider.host is None:
            _ask_locked(provider)
    except InspectorError as error:
        st.session_state[KEY_FAULT] = str(error)
    preflight.forget()


def _ask_locked(provider: Provider) -> None:
    """Asks this machine's servers once more, this one with its key. It is forgotten if the server refuses it."""
    found = find_servers({}, current().settings, typed_keys.mine())
    models = tuple(server for server in found if server.base_url == provider.base_url and server.models)
    st.session_state[_LOCKED] = {**st.session_state.get(_LOCKED, {}), provider.base_url: models}
    if not models:
        typed_keys.mine().forget(provider.base_url)
        st.session_state[KEY_FAULT] = f"{provider.title} refused that key, or names no models with it."


def _forget(base_url: str) -> None:
    typed_keys.mine().forget(base_url)
    st.session_state.pop(_CHECKS, None)
    preflight.forget()


# A download.


def _download_row() -> None:
    model = _to_download(core.small_models(current().settings))
    if model is None:
        return
    moving = model.download.state in ("waiting", "running")

    @st.fragment(run_every=EVERY_S if moving else None)
    def draw() -> None:
        now = _to_download(core.small_models(current().settings))
        if now is None or (now.download.state in ("waiting", "running")) != moving:
            st.rerun()
        with st.container(key="offer-row-download", horizontal=True, vertical_alignment="center"):
            with st.container(key="offer-who-download", gap=None):
                title = "Download a small model"
                st.html(f'<div class="offer-name"><span class="no-radio"></span><b>{title}</b></div>')
                second = f"{now.spec.name}, apache-2.0: answers quickly, not always rightly"
                st.html(f'<div class="ellipsis muted second">{escape(second)}</div>')
            state = f'<span class="muted">{escape(_download_state(now))}</span>'
            if now.download.state == "failed":
                state = (
                    f'<span class="bad" title="{escape(now.download.reason)}">✕ {escape(now.download.reason)}</span>'
                )
            time = "—" if now.answer_s is None else f"about {max(1, round(now.answer_s))} s a step"
            st.html(_cells("stays on this machine", "$0", time, state), width="content")
            with st.container(key="offer-do-download", horizontal=True, width=110, horizontal_alignment="right"):
                if moving:
                    st.button("Pause", key="offer-pause", on_click=core.pause, args=([now],))
                else:
                    st.button("Download", key="offer-download", on_click=core.begin, args=([now],))

    draw()


def _to_download(models: Sequence[SmallModel]) -> SmallModel | None:
    """Returns the small model that is offered; None: one is here, or none fits."""
    if any(model.download.state == "here" for model in models):
        return None
    return next((model for model in models if model.fits), None)


def _download_state(model: SmallModel) -> str:
    download = model.download
    if download.here_bytes or download.state in ("waiting", "running"):
        so_far = f"{download.here_bytes / 1e9:.1f} of {model.size_bytes / 1e9:.1f} GB"
        return f"{so_far}, {download.bytes_per_s / 1e6:.0f} MB/s" if download.bytes_per_s else so_far
    try:
        free = room()[1]
    except OSError:
        return f"{model.size_bytes / 1e9:.1f} GB"
    return f"needs {model.size_bytes / 1e9:.1f} GB, {free / 1e9:.1f} GB free"


# Who plans.


def _planners(now: Asking) -> dict[str, str]:
    """Returns the Conductors to choose from, the proposed one first, each with what it does."""
    offer = now.chosen
    own = {} if offer.planner is None else {offer.planner: f"{inert(offer.planner_name)} writes the plan"}
    others = {}
    if settings.conductor() != settings.SHIPPED:
        others[settings.conductor()] = f"{inert(settings.conductor())} writes the plan"
    others[settings.SHIPPED] = "tiny chooses among known kinds of plan :gray[at once]"
    return {**own, **others} if offer.strong else {**others, **own}


def _planner(now: Asking) -> str:
    offered = _planners(now)
    wanted = st.session_state.get(f"{PLANNER}-{now.chosen.id}")
    return wanted if wanted in offered else next(iter(offered))


def _planner_name(now: Asking) -> str:
    ref = _planner(now)
    return now.chosen.planner_name if ref == now.chosen.planner else ref


def _who_plans(now: Asking, plan_only: Callable[[], None]) -> None:
    offered = _planners(now)
    with st.container(key="who-plans-row", border=True, horizontal=True, vertical_alignment="center"):
        st.html("<b>Who plans?</b>", width="content")
        with st.container(key="who-plans-choice"):
            st.radio(
                "Who plans?",
                list(offered),
                format_func=lambda ref: offered[ref],
                key=f"{PLANNER}-{now.chosen.id}",
                horizontal=True,
                label_visibility="collapsed",
            )
        st.button("See the plan first", key="see-plan", on_click=plan_only)


def _wait(now: Asking) -> None:
    """Draws the page anew when the servers, or a worker that is asked, have answered."""
    waiting: list[Future[object]] = [each for each in st.session_state.get(_CHECKS, {}).values() if not each.done()]
    if now.looking:
        waiting.append(preflight.asked_servers())  # type: ignore[arg-type]  # what it gives is not looked at
    if not waiting:
        return

    @st.fragment(run_every=POLL_S)
    def wait() -> None:
        if all(each.done() for each in waiting):
            st.rerun()

    wait()
