"""Real workers that this machine offers on the Workers page, each one click away.

Servers on this machine serve as the pool or as the Conductor. Some need a key first. The Run page asks by itself who
should answer a task (``run.who_answers``).
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

import streamlit as st

from conductor_core.chat.messages import Price, WorkerSpec
from conductor_core.engine import offers as core
from conductor_core.engine.models import (
    ConductorOption,
    FoundServer,
    Health,
    check_conductor,
    conductor_faults,
    find_servers,
    pool_file_text,
    ready_workers,
)
from conductor_core.engine.offers import SmallModel, save_conductors, save_pool
from conductor_core.errors import InspectorError
from pages.components.app.session import current
from pages.components.app.widgets import across, button, fault_box, kept_fault, show_fault, text_button
from pages.components.models.installed import gb, left
from pages.components.run import settings
from pages.components.style.formats import html, inert, listed, plural

TEMPLATE = "models/models"
HEALTH = "conductor-health"
NOT_CHECKED = ":gray[:material/help: not checked yet]"


def conductors() -> None:
    st.subheader("Conductors", anchor=False)
    with st.container(key="conductors"):
        for number, option in enumerate(shown()):
            with across(f"worker-row-conductor-{number}"):
                _row(number, option)
    for fault in conductor_faults(current().settings):
        st.warning(inert(fault), icon=":material/warning:")
    folder = inert(str(current().settings.conductors_folder))
    st.caption(f"Further ones: `[[conductor]]` tables in {folder}/\\*.toml, with name, model and base_url at least.")


def shown() -> list[ConductorOption]:
    """Lists the one in use, the shipped one, and all that files name. The one in use comes first."""
    known = (*settings.BUILT_IN, settings.conductor())
    here = [option for option in settings.conductor_options().values() if option.named or option.ref in known]
    return sorted(here, key=lambda option: option.ref != settings.conductor())


def keep_health(of: object, health: Health) -> None:
    """Keeps how a check went: ``of`` a Conductor by its reference, of a worker by its pool and name."""
    st.session_state.setdefault(HEALTH, {})[of] = health


def kept_health(of: object) -> Health | None:
    found: Health | None = st.session_state.get(HEALTH, {}).get(of)
    return found


def price_words(price: Price | None) -> str:
    if price is None:
        return "price unknown"
    if not price.input and not price.output:
        return "free"
    return f"${price.input:g} in · ${price.output:g} out"


def _row(number: int, option: ConductorOption) -> None:
    here, in_use = option.server is None, option.ref == settings.conductor()
    cells = (
        ("", True, option.name, "of a conductors file" if option.named else "available"),
        ("", False, option.owner or option.model or option.name, "runs on this machine" if here else option.server),
        ("", False, price_words(option.price), "" if here or option.price is None else "per million tokens"),
    )
    if (health := kept_health(option.ref)) is not None:
        said = health.detail.removeprefix(f"Conductor {option.name}").lstrip(": ")
        state = health_words(health, said, timed=health.ok)
    elif not here:
        state = NOT_CHECKED
    else:
        ready = ":material/check_circle: on this machine"
        state = ready if option.runnable else f":orange[{inert(option.reason)}]"
    who = f"conductor-{number}", f"Conductor {inert(option.name)}"
    if row_and_check(*who, cells, option.reason, state, option.key_state):
        with st.spinner("Asking its server"):
            try:
                keep_health(option.ref, check_conductor(option.ref, current().settings))
            except InspectorError as error:
                keep_health(option.ref, Health(ok=False, latency_ms=None, detail=str(error)))
        st.rerun()
    if in_use:
        st.html(html(TEMPLATE, "muted", words="in use"), width=103)
    else:
        button("Use", f"use-conductor-{number}", settings.use_conductor, option.ref, width=103)


def row_and_check(
    key: str,
    who: str,
    cells: Sequence[tuple[str, bool, str, str | None]],
    title: str,
    state: str,
    key_state: str | None,
) -> bool:
    """Draws a row of a Conductor or a worker up to the button that checks it. Returns whether it was pressed."""
    st.html(html(TEMPLATE, "worker", cells=cells, title=title))
    with st.container(width=200, gap=None):
        st.markdown(state)
        if key_state:
            colour = "orange" if key_state.endswith("missing") else "green"
            st.markdown(f":{colour}[:material/key: {inert(key_state)}]")
    with st.container(width="content", key=f"icon-only-{key}"):
        says = f"Check {who} now"
        return button(says, f"check-{key}", icon="network_check", type="tertiary", help=says)


def health_words(health: Health, said: str, *, timed: bool = True) -> str:
    """Says how a check went; with ``timed``, also how long it took, if that is known."""
    colour, glyph = ("green", "check_circle") if health.ok else ("red", "error")
    took = f" · {health.latency_ms:.0f} ms" if timed and health.latency_ms is not None else ""
    return f":{colour}[:material/{glyph}: {inert(said)}]{took}"


ERROR, STARTED = "real-workers-error", "real-workers-started"
KEYED_POOL, SMALL_POOL = "my-keys", "my-small-models"
EVERY_S = 1.0  # between two drawings of the downloads' progress
_NAME = "\0"
Kind = Literal["primary", "secondary"]


def keys_and_small_models() -> None:
    """Draws the part of the Workers page without servers, which have a part of their own there."""
    st.subheader("More real workers", anchor=False)
    moving = _moving(core.small_models(current().settings))

    @st.fragment(run_every=EVERY_S if moving else None)
    def draw() -> None:
        if st.session_state.pop(STARTED, False):
            st.rerun()
        if message := st.session_state.get(ERROR):
            fault_box(message)
        keyed, small = core.keyed_workers(), core.small_models(current().settings)
        if _moving(small) != moving:
            st.rerun()
        if keyed:
            says = "Their providers charge for each answer, at the prices on the Workers page."
            st.html(html(TEMPLATE, "offer_head", title="Keys in this environment", says=says))
            for variable in dict.fromkeys(spec.api_key_env for spec in keyed):
                names = listed([spec.name for spec in keyed if spec.api_key_env == variable])
                st.html(html(TEMPLATE, "offer_line", name=variable, says=names))
            button(f"Use {_these(keyed, 'worker')}", "use-keys", _save_and_use, KEYED_POOL, keyed, type="primary")
        _small(small, kind="secondary" if keyed else "primary")

    draw()


def _moving(models: Sequence[SmallModel]) -> bool:
    return any(model.download.moving or model.timing for model in models)


def _small(models: Sequence[SmallModel], kind: Kind) -> None:
    says = "No server and no key. They answer anything, quickly and not always rightly; licence Apache-2.0."
    st.html(html(TEMPLATE, "offer_head", title="Small open models, in this process", says=says))
    memory = models[0].memory
    heads = ("Model", "Download", f"Needs, of {gb(memory.total_bytes)} {memory.label}", "An answer", "Here")
    rows = [(each.spec, (gb(each.size_bytes), gb(each.needed_bytes), *_answer_and_state(each))) for each in models]
    st.html(html(TEMPLATE, "small_models", heads=heads, models=rows))
    for model in models:
        if model.download.state == "running" or (model.download.state == "paused" and model.download.here_bytes):
            now, text = model.download, f"{gb(model.download.here_bytes)} of {gb(model.size_bytes)}"
            if now.bytes_per_s:
                left_s = (model.size_bytes - now.here_bytes) / now.bytes_per_s
                text += f", {now.bytes_per_s / 1e6:.1f} MB/s, about {left(left_s)} left"
            elif now.state == "paused":
                text += ", paused"
            st.progress(min(1.0, now.here_bytes / model.size_bytes), f"{inert(model.spec.name)}: {text}")
    for reason in failures(models):
        fault_box(reason)
    _small_buttons(models, kind)


def failures(models: Sequence[SmallModel]) -> list[str]:
    """Returns why downloads failed. A reason that several share comes once, with all their names."""
    named: defaultdict[str, list[str]] = defaultdict(list)
    for model in models:
        if model.download.state == "failed":
            named[model.download.reason.replace(model.spec.model, _NAME)].append(model.spec.model)
    return [
        reason.replace(_NAME, names[0]) + (f". The same for {listed(names[1:])}" if names[1:] else "")
        for reason, names in named.items()
    ]


def _small_buttons(models: Sequence[SmallModel], kind: Kind) -> None:
    here = [model for model in models if model.download.state == "here"]
    away = [model for model in models if model.download.state != "here" and model.fits]
    busy = [model for model in away if model.download.moving]
    with st.container(horizontal=True):
        if here:
            specs = [model.spec for model in here]
            button(f"Use {_these(specs, 'model')}", "use-small", _save_and_use, SMALL_POOL, specs, type=kind)
        if busy:
            button("Pause", "pause-small", core.pause, busy, icon="pause")
        elif away:
            word = "Go on downloading" if any(model.download.here_bytes for model in away) else "Download"
            bytes_left = sum(model.size_bytes - model.download.here_bytes for model in away)
            label, how = f"{word} {_these(away, 'model')} ({gb(bytes_left)})", "secondary" if here else kind
            says = "From the Hugging Face hub. You may close this, or the program: it continues where it was."
            button(label, "download-small", core.begin, away, icon="download", type=how, help=says)
        if any(model.fits and model.answer_s is None and not model.timing for model in models):
            says = "Uses the processor for some seconds; nothing is downloaded for it."
            time = core.time_answers, current().settings
            text_button("Time an answer here", "time-small", *time, icon="timer", help=says)


def _save_and_use(name: str, specs: Sequence[WorkerSpec]) -> None:
    st.session_state.pop(ERROR, None)
    with kept_fault(ERROR):
        settings.use_pool(str(core.save_pool(name, specs, current().settings)))
        st.session_state[STARTED] = True


def _answer_and_state(model: SmallModel) -> tuple[str, str]:
    """Says how many seconds a paragraph takes here, and how far the download is."""
    if not model.fits:
        return "–", "✕ too large"
    answer = "measuring …" if model.timing else "not timed"
    if model.answer_s is not None:
        answer = f"about {max(1, round(model.answer_s))} s"
    words = {"here": "✓ yes", "running": "↓ on its way", "waiting": "waits", "paused": "paused", "failed": "✕ failed"}
    return answer, words.get(model.download.state, "↓ download")


def _these(things: Sequence[object], what: str) -> str:
    return f"this {what}" if len(things) == 1 else f"these {plural(len(things), what)}"


# Servers on this machine.

FOUND = "found-servers"
CHOSEN_POOL = "workers-pool"
LOCAL = "local-servers"
_SAID, _FAULT = "found-servers-said", "found-servers-fault"
_VARIABLES = "found-servers-variables"


def found_servers() -> None:
    st.subheader("Model servers on this machine", anchor=False)
    with across():
        pressed = button("Look for servers", "look", icon="radar")
        st.caption(
            "Asks 127.0.0.1 on the usual ports of Ollama, LM Studio, vLLM, llama.cpp, SGLang and LiteLLM; "
            "`CONDUCTOR_SERVER_PORTS` names others."
        )
    if pressed:
        with st.spinner("Asking the ports"):
            _find_servers()
    show_fault(_FAULT)
    if said := st.session_state.pop(_SAID, None):
        st.success(inert(said), icon=":material/check:")
    servers: tuple[FoundServer, ...] | None = st.session_state.get(FOUND)
    if servers is None:
        return
    if not servers:
        none = "No model server answered. Start one, for instance `ollama serve`, and search again."
        st.info(none, icon=":material/info:")
    for server in servers:
        if server.needs_key:
            _locked(server)
    if found := ready_workers(servers):
        _offer(found)


def _find_servers() -> None:
    variables = st.session_state.pop(_VARIABLES, {})
    with kept_fault(_FAULT):
        st.session_state[FOUND] = find_servers(variables, current().settings)
        st.session_state[_VARIABLES] = variables


def _locked(server: FoundServer) -> None:
    """Draws a server that needs a key. The person names the key's variable, never the key itself."""
    with across(f"locked-{server.base_url}"):
        named = f"**{inert(server.title)}** at {inert(server.base_url)}"
        st.markdown(f":material/key: {named} needs a key", width="content")
        key = f"variable-{server.base_url}"
        st.text_input(
            "Variable that holds its key",
            key=key,
            placeholder="Its variable, as LITELLM_API_KEY",
            label_visibility="collapsed",
            width=260,
            help="The name of an environment variable of the inspector, not the key itself.",
        )
        button("Ask with it", f"ask-{server.base_url}", _ask_with, server.base_url, key)
        if server.base_url in st.session_state.get(_VARIABLES, {}):
            st.caption("It refused that key.")


def _ask_with(base_url: str, key: str) -> None:
    if variable := str(st.session_state.get(key) or "").strip():
        st.session_state[_VARIABLES] = {**st.session_state.get(_VARIABLES, {}), base_url: variable}
        _find_servers()


def _offer(found: Sequence[WorkerSpec]) -> None:
    names = [spec.name for spec in found]
    columns = {"Worker": names, "Model": [spec.model for spec in found], "Server": [spec.base_url for spec in found]}
    st.dataframe(columns, hide_index=True)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        label = f"Use {'these' if len(found) > 1 else 'this'} as the pool"
        button(label, "use-found", _use_found, found, type="primary", icon="groups")
        chosen = st.selectbox("Conductor", names, key="found-conductor", width=260, label_visibility="collapsed")
        spec = found[names.index(chosen or names[0])]
        button("Use as Conductor", "use-as-conductor", _conduct, found, spec, icon="music_note")
    with st.expander("The same as a pool file, to save and edit"):
        st.code(pool_file_text(found), language="toml")


def _use_found(found: Sequence[WorkerSpec]) -> None:
    with kept_fault(_FAULT):
        file = str(save_pool(LOCAL, found, current().settings))
        settings.use_pool(file)
        st.session_state[CHOSEN_POOL] = file


def _conduct(found: Sequence[WorkerSpec], spec: WorkerSpec) -> None:
    """Chooses a found model as Conductor: by its address, or by a conductors file where it needs a key."""
    ref = f"{spec.base_url}#{spec.model}"
    with kept_fault(_FAULT):
        if spec.api_key_env is not None:
            save_conductors(LOCAL, [each for each in found if each.api_key_env is not None], current().settings)
            settings.conductor_options.clear()
            ref = spec.name
        settings.use_conductor(ref)
        st.session_state[_SAID] = f"Conductor of the next run: {ref}"
