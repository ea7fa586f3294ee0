"""The settings of the next run: Conductor, pool, workers left out, budgets.

The page's state comes first, then the kept choices (``Kept``), then the settings of the program. Where a
Conductor would have to be downloaded first, a link leads to the Models page.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

import streamlit as st
from pydantic import Field, ValidationError

from conductor_core.chat.messages import OnIncomplete, WorkerSpec
from conductor_core.chat.servers import servers
from conductor_core.engine.models import ConductorOption, conductor_faults, is_away, list_conductors, model_folder
from conductor_core.engine.pools import missing_keys, pool_file, read_pool, read_specs
from conductor_core.errors import BadInput, InspectorError
from conductor_core.files import is_file, write_whole
from conductor_core.privacy.masking import TypedKeys
from conductor_core.run.request import RunRequest, read_gate
from conductor_core.run.values import Limits, PoolInfo
from conductor_core.workflow.model import Frozen
from pages.components.app import places
from pages.components.app.security import browser_id
from pages.components.app.session import current
from pages.components.app.widgets import fault_box, kept_fault
from pages.components.run.draft_store import forget_oldest
from pages.components.style.formats import inert, is_text, listed, plural


@st.cache_resource(scope="session", show_spinner=False, on_release=TypedKeys.forget)
def typed_keys() -> TypedKeys:
    """Returns the session's keys. When the browser leaves, Streamlit releases them, and they are forgotten.

    Call it from the page's script and its callbacks: a thread of its own has no session.
    """
    return TypedKeys()


# Choices that are kept.

FILE, FOLDER = "choices.json", "choices"
MOST_BROWSERS = 500
MOST_STEPS, MOST_DEPTH = 32, 8  # the bounds of the settings
T = TypeVar("T")


class Choice(Frozen, Generic[T]):
    """``instead_of`` is what the settings said when the choice was made."""

    chosen: T
    instead_of: T


class Kept(Frozen):
    """What this browser chose. Where a choice is None, the settings hold.

    Attributes:
        excluded: by pool, the names of the workers that are left out; nobody of a pool that is not named.
        proposed: whether a larger Conductor was proposed, and accepted or declined.
    """

    conductor: Choice[str] | None = None
    pool: Choice[str] | None = None
    excluded: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    max_steps: Choice[Annotated[int, Field(ge=1, le=MOST_STEPS)]] | None = None
    max_depth: Choice[Annotated[int, Field(ge=0, le=MOST_DEPTH)]] | None = None
    max_tokens: Choice[Annotated[int, Field(ge=1)] | None] | None = None
    max_usd: Choice[Annotated[float, Field(ge=0, allow_inf_nan=False)] | None] | None = None
    on_incomplete: Choice[OnIncomplete | None] | None = None
    give_question: Choice[bool | None] | None = None
    gates: Choice[tuple[str, ...]] | None = None
    gate_above_usd: Choice[Annotated[float, Field(ge=0, allow_inf_nan=False)] | None] | None = None
    proposed: bool = False
    max_seconds: Choice[Annotated[float, Field(ge=1, allow_inf_nan=False)] | None] | None = None


def read_kept(folder: Path, browser: str | None = None) -> Kept:
    """Returns what ``folder`` keeps for ``browser``, or the last choices of any, without gates, if it has made none.

    Raises: BadInput if the file is damaged or cannot be read.
    """
    if browser is not None and (own := folder / FOLDER / f"{browser}.json").exists():
        return _read_kept_file(own)
    last = _read_kept_file(folder / FILE)
    return last if browser is None else last.model_copy(update={"gates": None, "gate_above_usd": None})


def _read_kept_file(file: Path) -> Kept:
    try:
        return Kept.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return Kept()
    except OSError as error:
        raise BadInput(f"the choices kept in {file} cannot be read: {error.strerror or error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        at = f" at {'.'.join(map(str, first['loc']))}" if first["loc"] else ""
        raise BadInput(
            f"the choices kept in {file} cannot be read{at} ({first['msg']}): those of the settings are used. Mend or "
            "remove the file; the next choice puts it aside"
        ) from error


def write_kept(folder: Path, kept: Kept, browser: str | None = None) -> None:
    """Replaces both files whole: the browser's own, and that of the last choices of any.

    It puts a file aside that cannot be read. Of the browsers' files it forgets those that chose longest ago, because
    browsers come and go. Raises: BadInput if one cannot be written.
    """
    for file in (folder / FILE, *([] if browser is None else [folder / FOLDER / f"{browser}.json"])):
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            try:
                _read_kept_file(file)
            except BadInput:
                file.replace(file.with_name(f"{file.name}.unreadable"))
            write_whole(file, kept.model_dump_json(indent=1).encode())
        except OSError as error:
            said = f"the choice holds until the page is loaded again: {file} cannot be written: {error}"
            raise BadInput(said) from error
    forget_oldest(folder / FOLDER, MOST_BROWSERS)


# What happens to an incomplete answer, and who is told the task.

_OF_POOL: Literal[""] = ""
"""Stands for the pool's own option: a field whose value is None looks as if nothing were chosen."""
_POLICIES: Mapping[OnIncomplete | Literal[""], str] = {
    _OF_POOL: "the pool's setting",
    "allow": "goes on, marked",
    "stop": "stops there",
    "more_tokens": "is asked for with more tokens",
    "fallback": "is asked of the fallback",
}
_TASK_CHOICES: Mapping[bool | Literal[""], str] = {
    _OF_POOL: "the pool's setting",
    False: "steps whose instruction names it",
    True: "every step",
}


class Policies(NamedTuple):
    """The choices for a run; None where the pool's own option holds."""

    on_incomplete: OnIncomplete | None = None
    give_question: bool | None = None


def chosen_policies() -> Policies:
    recipients = _now("give_question")
    return Policies(_now("on_incomplete") or None, None if recipients == _OF_POOL else recipients)


def put_policies(policies: Policies) -> None:
    for name in ("on_incomplete", "give_question"):
        chosen = getattr(policies, name)
        st.session_state[_key(name)] = _OF_POOL if chosen is None else chosen


def _key(name: str) -> str:
    return {"conductor": CONDUCTOR, "pool": POOL}.get(name, name.replace("_", "-"))


def _field(name: str) -> dict[str, Any]:
    """Returns what the field of a choice has in common with all others."""
    return {"key": _key(name), "on_change": _keep, "args": (name,), "persist_state": "session"}


def choose_policies() -> None:
    words: tuple[tuple[str, str, Mapping[Any, str], str], ...] = (
        ("on_incomplete", "An incomplete answer", _POLICIES, "An answer that is refused, filtered, cut off or empty. "
         "Later steps read what there is of it only if it goes on. The pool file names a worker's fallback."),
        ("give_question", "The question goes to", _TASK_CHOICES,
         "A step is told the task where its instruction names it, or every step is."),
    )  # fmt: skip
    for column, (name, label, choices, says) in zip(st.columns(2, gap="small"), words, strict=True):
        before = _before(name)
        index = list(choices).index(_OF_POOL if before is None else before)
        column.selectbox(label, list(choices), index=index, format_func=choices.__getitem__, help=says, **_field(name))


# When the next run waits for an approval.


def gates() -> tuple[str, ...]:
    """Returns when the next run waits for an approval, as written: it may hold what is no gate."""
    said = [*_now("gates")]
    if (usd := _now("gate_above_usd")) is not None:
        said.append(f"usd:{usd:g}")
    return tuple(dict.fromkeys(said))


def choose_gates(specs: Sequence[WorkerSpec]) -> None:
    rules = _before("gates")
    providers = sorted({f"provider:{name}" for spec in specs if not spec.simulated for name in servers(spec)})
    tools = ["tools"] if any(spec.tools for spec in specs) else []
    offered = list(dict.fromkeys(["plan", "steps", *tools, *providers, *rules]))
    st.multiselect(
        "Wait for approval",
        offered,
        list(rules),
        **_field("gates"),
        format_func=gate_words,
        placeholder="never",
        accept_new_options=True,
        help="The run waits until somebody approves, on this page or in a terminal. You may also type step:2 or "
        "provider:NAME.",
    )
    st.number_input(
        "Wait above USD",
        0.0,
        None,
        _before("gate_above_usd"),
        **_field("gate_above_usd"),
        placeholder="never",
        help="Waits if the run may cost more than this, or if a price is unknown.",
    )
    for text in _now("gates"):
        try:
            read_gate(text)
        except BadInput as error:
            fault_box(error)


def gate_words(text: str) -> str:
    """Says when a gate holds a run back; returns what is no gate as it is."""
    try:
        gate = read_gate(text)
    except BadInput:
        return text
    return {
        "plan": "before any worker",
        "steps": "before every step",
        "step": f"before step {gate.number}",
        "usd": f"above ${gate.usd or 0:g}",
        "provider": f"before {gate.provider}",
        "tools": "before any tool that has effects",
    }[gate.rule]


# All settings.

_REF = "to-models"


def leads(ref: str | None) -> bool:
    """Tells whether a Conductor is not on this machine; then ``go`` opens the Models page at it."""
    away = ref is not None and is_away(ref, current().settings)
    if away:
        st.session_state[_REF] = ref
    return away


def go() -> None:
    """Opens the Models page if something that was done since leads there."""
    if (ref := st.session_state.pop(_REF, None)) is not None:
        st.switch_page(places.MODELS, query_params={"model": ref})


CONDUCTOR, POOL = "conductor-choice", "pool-choice"
MAX_STEPS, MAX_TOKENS, MAX_USD = "max-steps", "max-tokens", "max-usd"
SHIPPED, READS_THE_TASK = BUILT_IN = ("tiny", "small")
_NOTHING = {"gates": (), "gate_above_usd": None, "on_incomplete": None, "give_question": None}
"""What the settings of the program do not say; or the pool says it first."""
KEPT, KEPT_ERROR = "kept-choices", "kept-choices-error"
BUILT_IN_POOLS = {
    "rehearsal": "rehearsal · simulated, no key needed",
    "paper": "paper · seven real models, keys needed",
    "small": "small · three open models in this process, to download",
}
_LONGEST_SAID = 200
_CLOSED = "settings-closed"
_OPENED = "settings-open"
_HUB_ID = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}", re.ASCII)


def request(task: str, *, plan_only: bool, answering: tuple[str, str] | None = None) -> RunRequest:
    """Returns the request for a run of ``task`` with what is chosen at this moment.

    ``answering``: Conductor and pool of this run alone, instead of the chosen ones. Raises: PoolInvalid, BadInput.
    """
    conductor_ref, pool_ref = answering or (conductor(), pool())
    names = [spec.name for spec in read_specs(pool_ref, current().settings)]
    out = () if pool_ref != pool() else excluded()
    chosen = chosen_policies()
    return RunRequest(
        task=task,
        conductor=conductor_ref,
        pool=pool_ref,
        limits=limits(),
        seed=current().settings.seed,
        door="page",
        plan_only=plan_only,
        excluded=tuple(name for name in out if name in names),
        on_incomplete=chosen.on_incomplete,
        give_question=chosen.give_question,
        gates=tuple(map(read_gate, gates())),
    )


def conductor() -> str:
    return str(_now("conductor"))


def pool() -> str:
    return str(_now("pool"))


def use_pool(ref: str | None, conductor_ref: str | None = None) -> None:
    """Chooses a pool and a Conductor, and keeps that. None: the one that is chosen."""
    for name, chosen in (("pool", ref), ("conductor", conductor_ref)):
        if chosen is not None:
            st.session_state[_key(name)] = chosen
            _keep(name)


def use_conductor(ref: str) -> None:
    use_pool(None, ref)


def was_proposed() -> bool:
    return _kept().proposed


def put_proposal_away(instead: str | None = None) -> None:
    """``instead``: the Conductor that was proposed, if the person takes it."""
    st.session_state[KEPT] = _kept().model_copy(update={"proposed": True})
    _write(proposed=True)
    use_pool(None, instead)


def excluded() -> list[str]:
    return list(st.session_state.get(f"excluded:{pool()}", _kept().excluded.get(pool(), ())))


def leave_out(names: Sequence[str], out: bool = True, *, keep: bool = True) -> None:
    others = [each for each in excluded() if each not in names]
    st.session_state[f"excluded:{pool()}"] = [*others, *(names if out else ())]
    if keep:
        _keep_excluded()


def policies_of_pool(ref: str) -> Policies | None:
    settings = current().settings
    with suppress(InspectorError):
        said = read_pool(ref, settings)
        every_step = settings.give_question if said.give_question is None else said.give_question
        return Policies(said.on_incomplete or settings.on_incomplete, every_step)
    return None


def limits() -> Limits:
    return Limits(**{name: _now(name) for name in Limits.model_fields})


def _setting(name: str) -> Any:
    return _NOTHING[name] if name in _NOTHING else getattr(current().settings, name)


def _now(name: str) -> Any:
    """Returns what the page says of a name, else what was chosen before. Without these three no run can begin."""
    said = st.session_state.get(_key(name), _before(name))
    return said if said or name not in ("conductor", "pool", "max_steps") else _before(name)


def _before(name: str) -> Any:
    """Returns what is chosen and kept of a name, else what the settings say."""
    choice, setting = getattr(_kept(), name), _setting(name)
    return choice.chosen if choice is not None and choice.instead_of == setting else setting


def _kept() -> Kept:
    """Returns the kept choices, read once a session: later choices of another tab do not change this one."""
    state = st.session_state
    if KEPT not in state:
        try:
            state[KEPT] = _without_gone(read_kept(current().settings.data_folder, browser_id()))
        except InspectorError as error:
            state[KEPT], state[KEPT_ERROR] = Kept(), str(error)
    found: Kept = state[KEPT]
    return found


def _without_gone(found: Kept) -> Kept:
    """Returns ``found`` without a Conductor or a pool that is not there any more, and has the page say so once."""
    gone: dict[str, str] = {}
    for name, word, is_there in (("conductor", "Conductor", conductor_available), ("pool", "pool", pool_available)):
        choice: Choice[str] | None = getattr(found, name)
        if choice is not None and not is_there(ref := choice.chosen):
            short = ref if len(ref) <= _LONGEST_SAID else f"{ref[:_LONGEST_SAID]}…"
            gone[name] = f"The {word} {short} is no longer available; {_setting(name)} is selected."
    if gone:
        st.session_state[KEPT_ERROR] = " ".join(gone.values())
    return found.model_copy(update=dict.fromkeys(gone))


def conductor_available(ref: str) -> bool:
    """Tells whether a Conductor has that name: one of this machine, of a file, a server, a folder or the hub."""
    known = "#" in ref or ref in conductor_options() or _HUB_ID.fullmatch(ref)
    return bool(known) or model_folder(ref, current().settings) is not None


def pool_available(ref: str) -> bool:
    with suppress(InspectorError):
        return ref in BUILT_IN_POOLS or is_file(pool_file(ref, current().settings))
    return False


def pool_called(name: str) -> str | None:
    """Returns what to choose for a pool that a run's record calls ``name``; None: there is none."""
    if pool_name() == name:
        return pool()
    called = (ref for ref in offered_pools() if name in (ref, None if ref in BUILT_IN_POOLS else Path(ref).stem))
    return next((ref for ref in called if pool_available(ref)), None)


def put(conductor_ref: str, pool_ref: str) -> None:
    st.session_state[CONDUCTOR], st.session_state[POOL] = conductor_ref, pool_ref


def _keep(name: str) -> None:
    chosen, setting = st.session_state[_key(name)], _setting(name)
    chosen = tuple(chosen) if isinstance(chosen, list) else chosen
    kept_so = chosen != setting and chosen != ""
    _write(**{name: Choice(chosen=chosen, instead_of=setting) if kept_so else None})


def _keep_excluded() -> None:
    out = {ref: names for ref, names in _latest().excluded.items() if ref != pool()}
    if names := excluded():
        out[pool()] = tuple(names)
    _write(excluded=out)


def _latest() -> Kept:
    """Reads what is kept by now: another tab may have chosen too."""
    with suppress(InspectorError):
        return read_kept(current().settings.data_folder, browser_id())
    return Kept()


def _write(**changes: object) -> None:
    st.session_state.pop(KEPT_ERROR, None)
    with kept_fault(KEPT_ERROR):
        write_kept(current().settings.data_folder, _latest().model_copy(update=changes), browser_id())


def offered_pools() -> list[str]:
    """Lists the pool in use, the built-in ones, and the pool files of the data folder whose names are text."""
    settings = current().settings
    found = (file for file in settings.pools_folder.glob("*.toml") if file.is_file())
    files = sorted(str(file) for file in found if is_text(str(file)))
    return list(dict.fromkeys([pool(), settings.pool, *BUILT_IN_POOLS, *files]))


def pool_label(ref: str) -> str:
    name = Path(ref).stem
    return BUILT_IN_POOLS.get(ref) or (ref if ref == name else f"{name} · {ref}")


def pool_name() -> str:
    return pool() if pool() in BUILT_IN_POOLS else Path(pool()).stem


def keys_set(specs: Sequence[WorkerSpec]) -> str:
    """Says how many of the workers that need a key have it, as ``0 of 7 keys``; empty if all have."""
    need = [spec for spec in specs if spec.api_key_env is not None]
    without = sum(len(names) for names in missing_keys(need, typed_keys()).values())
    return f"{len(need) - without} of {plural(len(need), 'key')}" if without else ""


def close(*, opened: bool = False) -> None:
    """Closes the settings: what begins now is what the person wants to see. A new expander is a closed one."""
    st.session_state[_CLOSED], st.session_state[_OPENED] = st.session_state.get(_CLOSED, 0) + 1, opened


def expander(shown: PoolInfo | None = None, answering: str | None = None) -> Sequence[WorkerSpec]:
    """Draws the expander, whose label sums up the choices inside. Returns the pool's workers; none if it is faulty.

    Args:
        shown: the pool of the run on the page. If another is chosen, the label says that it is for the next run.
        answering: who plans and answers the next run instead of the chosen ones; None: they do.
    """
    specs, fault = list[WorkerSpec](), ""
    try:
        specs += read_specs(pool(), current().settings)
    except InspectorError as error:
        fault = str(error)
    key, label = f"settings-{st.session_state.get(_CLOSED, 0)}", inert(answering) if answering else _label(specs, shown)
    opened = bool(fault) or st.session_state.pop(_OPENED, False)
    with st.container(key="settings"), st.expander(label, icon=":material/tune:", expanded=opened, key=key):
        left, middle, right = st.columns([5, 5, 5], gap="large")
        with left:
            _choose_conductor()
        with middle:
            _choose_pool([spec.name for spec in specs], fault)
            choose_gates(specs)
        with right:
            _choose_limits()
            choose_policies()
    return specs


def _label(specs: Sequence[WorkerSpec], shown: PoolInfo | None) -> str:
    chosen, names = limits(), [spec.name for spec in specs]
    out = [name for name in names if name in excluded()]
    workers = plural(len(names), "worker")
    if out:
        workers = f"{len(names) - len(out)} of {workers}, without {listed(out)}"
    parts = [plural(chosen.max_steps, "step"), f"{chosen.max_seconds:g} s" if chosen.max_seconds else "no time limit"]
    if chosen.max_tokens is not None:
        parts.append(f"{chosen.max_tokens:,} tokens")
    if chosen.max_usd is not None:
        parts.append(f"${chosen.max_usd:.2f}")
    if keys := keys_set([spec for spec in specs if spec.name not in out]):
        workers += f", {keys}"
    chips = [f"Conductor: {conductor()}", f"Pool: {pool_name()}, {workers}", f"Limits: {' · '.join(parts)}"]
    policies = chosen_policies()
    if policies.on_incomplete is not None:
        chips.append(f"An incomplete answer {_POLICIES[policies.on_incomplete]}")
    if policies.give_question is not None:
        chips.append(f"The question goes to {_TASK_CHOICES[policies.give_question]}")
    if waiting := gates():
        chips.append(f"Waits: {listed([gate_words(gate) for gate in waiting])}")
    other = shown is not None and (shown.name, set(shown.excluded)) != (pool_name(), set(out))
    return ("Next run " if other else "") + " ".join(f":gray-badge[{inert(chip)}]" for chip in chips)


@st.cache_data(ttl=30, show_spinner=False)
def conductor_options() -> dict[str, ConductorOption]:
    """Returns the Conductors by name, kept for half a minute because a look at disks and memory takes time."""
    return {option.ref: option for option in list_conductors(current().settings)}


def _choose_conductor() -> None:
    options = conductor_options()
    offered = list(dict.fromkeys([conductor(), current().settings.conductor, *options]))
    chosen = st.selectbox(
        "Conductor",
        offered,
        index=offered.index(conductor()),
        accept_new_options=True,
        help="Your conductors files, and what this machine has and could have. You may also type a folder, a hub id, "
        "or URL#MODEL of an OpenAI-compatible server.",
        **_field("conductor") | {"on_change": _take_conductor, "args": (conductor(),)},
    )
    st.caption(_what_running_does(chosen or "", options.get(chosen or "")))
    st.page_link(places.MODELS, label="Models: memory, speed, downloads", icon=":material/neurology:")
    for fault in conductor_faults(current().settings):
        st.warning(inert(fault), icon=":material/warning:")


def _take_conductor(before: str) -> None:
    if leads(str(st.session_state[CONDUCTOR])):
        st.session_state[CONDUCTOR] = before
    else:
        _keep("conductor")


def _what_running_does(ref: str, option: ConductorOption | None) -> str:
    if option is not None:
        glyph = ":material/check_circle:" if option.downloaded else ":material/download:"
        if option.server is not None:
            # The address is code, because it would else become a link.
            key = "" if option.runnable else f" {inert(option.key_state or '')}"
            return f":material/dns: {inert(option.model)} at `{option.server.replace('`', '')}`{key}"
        can = " It chooses among kinds of plan, by the kind of task, and reads no details." if ref == SHIPPED else ""
        return f"{glyph if option.runnable else ':orange[:material/warning:]'} {inert(option.reason)}{can}"
    if "#" in ref:
        return ":material/dns: A model on a server."
    return ":material/download: A folder, or a hub id, if it is on this machine: the Models page downloads models."


def _choose_pool(names: list[str], fault: str) -> None:
    offered = offered_pools()
    st.selectbox(
        "Pool",
        offered,
        index=offered.index(pool()),
        accept_new_options=True,
        format_func=pool_label,
        help="A built-in pool, or the path of a pool file (TOML). The Workers page shows who is in it.",
        **_field("pool"),
    )
    if fault:
        fault_box(fault)
        return
    st.multiselect(
        "Leave out",
        names,
        [name for name in excluded() if name in names],
        key=f"excluded:{pool()}",
        placeholder="No worker is left out",
        on_change=_keep_excluded,
        persist_state="session",
    )


def _choose_limits() -> None:
    deep, none = "How many rounds deep a step may ask the Conductor itself; 0: never.", {"placeholder": "no limit"}
    fields: tuple[tuple[str, str, float, float | None, dict[str, Any]], ...] = (
        ("Steps", "max_steps", 1, MOST_STEPS, {}),
        ("Depth", "max_depth", 0, MOST_DEPTH, {"help": deep}),
        ("Seconds", "max_seconds", 1.0, None, {"step": 60.0, "format": "%.0f", **none}),
        ("Tokens", "max_tokens", 1, None, none),
        ("USD", "max_usd", 0.0, None, none),
    )
    columns = (*st.columns(3, gap="small"), *st.columns(2, gap="small"))
    for column, (label, name, least, most, how) in zip(columns, fields, strict=True):
        column.number_input(label, least, most, _before(name), **_field(name), **how)
