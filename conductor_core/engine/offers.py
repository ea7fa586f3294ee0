"""Who could answer a task, as this machine is now: servers, models on disk, keys, and the simulated workers.

Local ones come first and the best of them is proposed. What would leave this machine never is.
"""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from conductor_core.chat.messages import Usage, WorkerSpec
from conductor_core.chat.usage import estimate_tokens
from conductor_core.conductors.catalogue import ConductorOption
from conductor_core.engine.budgets import longest_answer
from conductor_core.engine.models import (
    LEAST_PARAMETERS,
    NO_TEMPLATE,
    FoundServer,
    MachineModel,
    conductors_file_text,
    parameters_by_name,
    pool_file_text,
    ready_workers,
    require_file,
)
from conductor_core.engine.pools import read_specs
from conductor_core.errors import BadInput
from conductor_core.files import is_file
from conductor_core.inference.downloads import Download, downloads
from conductor_core.inference.hardware import Memory, place
from conductor_core.inference.pace import SMALL_WORKERS, paces
from conductor_core.privacy.masking import TYPED_KEY, is_set
from conductor_core.rehearsal import recognise
from conductor_core.run.values import Limits
from conductor_core.settings import SHIPPED, Settings

SMALL_POOL = "small"


@dataclass(frozen=True)
class SmallModel:
    """A model of the small pool.

    Attributes:
        size_bytes: of its weights, on disk or to be downloaded.
        needed_bytes, memory: what it needs to run here, and of which memory.
        answer_s: measured seconds for an answer of ``WRITTEN_TOKENS`` tokens here; None until ``time_answers`` has
            measured it. timing: whether it is being measured.
    """

    spec: WorkerSpec
    parameters: int
    size_bytes: int
    needed_bytes: int
    memory: Memory
    answer_s: float | None
    timing: bool
    download: Download

    @property
    def fits(self) -> bool:
        return self.memory.holds(self.needed_bytes)


def keyed_workers() -> tuple[WorkerSpec, ...]:
    return tuple(spec for spec in read_specs("paper") if spec.api_key_env is not None and is_set(spec.api_key_env))


def small_models(settings: Settings) -> tuple[SmallModel, ...]:
    """Returns the models of the small pool as they are now. Asks no server."""
    found = []
    for spec in read_specs(SMALL_POOL):
        known = SMALL_WORKERS[spec.model]
        shape, measured = known.shape, paces(settings.data_folder)
        pace = measured.known(shape)
        placement = place(shape.parameters)
        download = downloads().state(spec.model)
        found.append(
            SmallModel(
                spec=spec,
                parameters=shape.parameters,
                size_bytes=download.all_bytes or known.size_bytes,
                needed_bytes=placement.needed_bytes,
                memory=placement.memory,
                answer_s=None if pace is None else pace.answer_s,
                timing=measured.is_measured(shape),
                download=download,
            )
        )
    return tuple(found)


def time_answers(settings: Settings) -> None:
    """Begins to measure how long an answer of each model takes here, unless measured: some processor seconds."""
    for known in SMALL_WORKERS.values():
        if place(known.shape.parameters).fits:
            paces(settings.data_folder).measure_soon(known.shape)


def begin(models: Sequence[SmallModel]) -> None:
    downloads().begin([model.spec.model for model in models])


def pause(models: Sequence[SmallModel]) -> None:
    downloads().pause([model.spec.model for model in models])


def save_pool(name: str, specs: Sequence[WorkerSpec], settings: Settings) -> Path:
    """Writes ``specs`` as the pool file ``name`` of the data folder, replacing its content. Raises: BadInput."""
    return _save(settings.pools_folder / f"{name}.toml", pool_file_text(specs), "pool file")


FILES_POOL = "my-models"


def add_worker(model: MachineModel, settings: Settings) -> Path:
    """Adds the model of a GGUF file to the pool of such files, and returns the pool's file. Raises: BadInput."""
    require_file(model)
    pool = settings.pools_folder / f"{FILES_POOL}.toml"
    before = read_specs(str(pool), settings) if is_file(pool) else ()
    spec = _of_file(model.name, model.quantisation, model.parameters, model.note)
    others = [each for each in before if each.model != spec.model and each.name != spec.name]
    return save_pool(FILES_POOL, [*others, spec], settings)


def _of_file(title: str, quantisation: str, parameters: int, note: str) -> WorkerSpec:
    """Returns a worker of a GGUF file, named by its title (``ollama: llama3.2:3b``): so records hold no path."""
    name = re.sub(r"[\\#]", "-", title.partition(": ")[2].rsplit("/", 1)[-1])[:60]
    about = f"{quantisation}, {_expected(parameters)}{'; ' if note else ''}{note}"
    return WorkerSpec(name=name, provider="gguf", model=title, description=about, max_concurrency=1, timeout_s=600)


def _expected(parameters: int) -> str:
    """Says how large a model is, and of a small one what to expect of it."""
    if parameters >= 10**9:
        return f"{parameters / 1e9:.1f} billion parameters"
    return f"{parameters / 1e6:.0f} million parameters: real, often wrong"


def save_conductors(name: str, specs: Iterable[WorkerSpec], settings: Settings) -> Path:
    """Saves the models of ``specs`` as the conductors file ``name``. Raises: BadInput."""
    return _save(settings.conductors_folder / f"{name}.toml", conductors_file_text(specs), "conductors file")


def _save(file: Path, text: str, what: str) -> Path:
    """Replaces the file as a whole: a full disk leaves the old content."""
    fresh = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            fresh.write_text(text, encoding="utf-8")
            fresh.replace(file)
        finally:
            fresh.unlink(missing_ok=True)
    except OSError as error:
        raise BadInput(f"the {what} {file} cannot be written: {error.strerror or error}") from error
    return file


# Offers.

SIMULATED_POOL = "rehearsal"
_MOST_ON_DISK = 3
_PROVIDERS = {
    "api.openai.com": "OpenAI",
    "api.anthropic.com": "Anthropic",
    "generativelanguage.googleapis.com": "Gemini",
    "openrouter.ai": "OpenRouter",
}
_PASSES_ON = frozenset({"LiteLLM"})
"""Servers that hand a task on to providers elsewhere, or can."""

Kind = Literal["server", "disk", "key", "typed", "simulated"]


@dataclass(frozen=True)
class Offer:
    """Some workers that can be taken together, and the Conductor that goes with them.

    Attributes:
        id: names it among the offers. title: in a list. short: on a button.
        goes_to: the host that is sent the task; None: it stays on this machine. passed_on: whether what is on this
            machine may send it on.
        planner: the Conductor that this brings, as ``open_conductor`` takes it; None: none that could plan better than
            the shipped one. planner_name: for people.
        strong: whether that one is to be taken unless a person says otherwise.
        seconds: measured seconds for an answer here; None: not measured. latency_ms: of a server that answered.
        about: how large its models are and what to expect of them; empty if that is not known.
    """

    id: str
    kind: Kind
    title: str
    short: str
    specs: tuple[WorkerSpec, ...]
    goes_to: str | None = None
    passed_on: bool = False
    planner: str | None = None
    planner_name: str = ""
    strong: bool = False
    seconds: float | None = None
    latency_ms: float | None = None
    about: str = ""

    @property
    def local(self) -> bool:
        return self.goes_to is None and not self.passed_on


@dataclass(frozen=True)
class Provider:
    """A server that wants a key. Attributes: specs: its workers; none where it names its models only with a key."""

    base_url: str
    title: str
    specs: tuple[WorkerSpec, ...] = ()

    @property
    def host(self) -> str | None:
        """The host that is sent the task; None: this machine."""
        return _host(self.base_url)


def simulated_know(task: str) -> bool:
    return recognise(task) is not None


def from_servers(servers: Iterable[FoundServer]) -> tuple[Offer, ...]:
    found = []
    for server in servers:
        specs = ready_workers([server])
        if not specs:
            continue
        offer = Offer(
            id=f"server-{urlsplit(server.base_url).port}",
            kind="server",
            title=_called(server),
            short=f"port {urlsplit(server.base_url).port}" if server.guessed else server.title,
            specs=specs,
            passed_on=server.title in _PASSES_ON,
            latency_ms=server.latency_ms,
        )
        found.append(_with_planner(offer, server))
    return tuple(found)


def _called(server: FoundServer) -> str:
    """Says what answered; of a server that does not say what it is, where it answered and what usually does there."""
    if not server.guessed:
        return f"{server.title} on this machine"
    port = f"port {urlsplit(server.base_url).port}"
    return f"A server on {port} of this machine{'' if server.title == port else f', usually {server.title}'}"


def _with_planner(offer: Offer, server: FoundServer) -> Offer:
    """Adds the largest model, to be taken if it is known to be large enough."""

    def size(spec: WorkerSpec) -> int:
        return server.parameters.get(spec.model) or parameters_by_name(spec.model)

    best = max(offer.specs, key=size)
    planner = f"{best.base_url}#{best.model}"
    return replace(offer, planner=planner, planner_name=best.model, strong=size(best) >= LEAST_PARAMETERS)


def from_disk(small: Iterable[SmallModel], options: Iterable[ConductorOption]) -> Offer | None:
    """Returns the models that are on this machine's disk and run in this process; None: there are none."""
    here = [model for model in small if model.download.state == "here" and model.fits]
    specs = [model.spec for model in here]
    taken = {spec.model for spec in specs}
    sizes = [model.parameters for model in here]
    others = [
        option
        for option in options
        if option.ref not in SHIPPED
        and option.downloaded
        and option.runnable
        and option.server is None
        and not option.named
    ]
    if here or any(option.has_chat_template for option in others):
        others = [option for option in others if option.has_chat_template]  # the rest may not answer at all
    others.sort(key=lambda option: -option.parameters)
    for option in others[: max(0, _MOST_ON_DISK - len(specs))]:
        if option.ref in taken:
            continue
        model = option.model or option.ref
        if option.owner:
            note = "" if option.has_chat_template else NO_TEMPLATE
            spec = _of_file(option.name, option.quantisation, option.parameters, note)
        else:
            name = re.sub(r"[\\#]", "-", option.name.rsplit("/", 1)[-1])[:60]
            spec = WorkerSpec(name=name, provider="local", model=model, max_concurrency=1, timeout_s=600)
        if all(each.name != spec.name for each in specs):
            specs.append(spec)
            sizes.append(option.parameters)
    if not specs:
        return None
    large = next((option for option in others if option.parameters >= LEAST_PARAMETERS), None)
    timed = [model.answer_s for model in here if model.answer_s is not None]
    return Offer(
        id="disk",
        kind="disk",
        title="A model on this disk" if len(specs) == 1 else "Models on this disk",
        short="this disk",
        specs=tuple(specs),
        planner=None if large is None else large.ref,
        planner_name="" if large is None else large.name,
        strong=large is not None,
        about=f"{'up to ' if len(specs) > 1 else ''}{_expected(max(sizes))}",
        seconds=max(timed, default=None) if len(timed) == len(specs) else None,
    )


def from_keys() -> tuple[Offer, ...]:
    keyed = keyed_workers()
    found = []
    for variable in dict.fromkeys(spec.api_key_env for spec in keyed):
        specs = tuple(spec for spec in keyed if spec.api_key_env == variable)
        short = _title(specs[0])
        asked = _speaking_openai(specs)
        found.append(
            Offer(
                id=f"key-{variable}",
                kind="key",
                title=f"Key {variable}",
                short=short,
                specs=specs,
                goes_to=_host(specs[0].base_url),
                planner=None if asked is None else f"{asked.name} ({short})",
                planner_name="" if asked is None else asked.name,
                strong=asked is not None,
            )
        )
    return tuple(found)


def providers(servers: Iterable[FoundServer] = ()) -> tuple[Provider, ...]:
    """Returns who can be given a typed key: servers of this machine that want one, then the paper's providers."""
    locked = [Provider(server.base_url, _called(server)) for server in servers if server.needs_key]
    paper: dict[str, list[WorkerSpec]] = {}
    for spec in read_specs("paper"):
        paper.setdefault(str(spec.base_url), []).append(spec.model_copy(update={"api_key_env": TYPED_KEY}))
    known = [Provider(url, _title(specs[0]), tuple(specs)) for url, specs in paper.items()]
    order = [*_PROVIDERS.values(), *(provider.title for provider in known)]
    return (*locked, *sorted(known, key=lambda provider: order.index(provider.title)))


def from_typed_key(provider: Provider) -> Offer:
    """Returns the workers of ``provider`` with a key that is typed, or is to be."""
    asked = _speaking_openai(provider.specs)
    return Offer(
        id="typed",
        kind="typed",
        title="A key that you type in",
        short=provider.title,
        specs=provider.specs,
        goes_to=provider.host,
        passed_on=provider.host is None,
        planner=None if asked is None else f"{provider.base_url}#{asked.model}",
        planner_name="" if asked is None else asked.name,
        strong=asked is not None and provider.host is not None,
    )


def simulated() -> Offer:
    return Offer("simulated", "simulated", "Simulated workers", "simulated workers", read_specs(SIMULATED_POOL))


def best(offers: Sequence[Offer]) -> Offer:
    """Returns the first that keeps the task on this machine. The simulated workers are the last of ``offers``."""
    return next(offer for offer in offers if offer.local)


def saved(offer: Offer, planner: str | None, settings: Settings) -> str:
    """Returns the pool of an offer that is taken: a name, or a file that is written here. No key is in it.

    Args:
        planner: the Conductor that plans. Where it is a worker with a key of the environment, it gets a file, too.

    Raises: BadInput if a file cannot be written.
    """
    if offer.kind == "simulated":
        return SIMULATED_POOL
    name = "found-" + "-".join(filter(None, (re.sub(r"\W+", "-", offer.short.lower()).strip("-"), offer.kind)))
    if offer.kind == "key" and planner == offer.planner:
        named = [spec.model_copy(update={"name": planner}) for spec in offer.specs if spec.name == offer.planner_name]
        save_conductors(name, named, settings)
    return str(save_pool(name, offer.specs, settings))


def most_usd(offer: Offer, planner: str | None, task: str, limits: Limits, plan_tokens: int) -> float | None:
    """Returns what a run can cost at most by the limits and the prices known; None: a price is not known.

    Every step is taken to be the dearest worker's, to write all that it may, and to read all that was written before.
    """
    if offer.local and offer.kind != "server":  # a server may pass a task on, and bill for it
        return 0.0
    if any(spec.price is None for spec in offer.specs) or not offer.specs:
        return None
    said, steps = estimate_tokens(task), limits.max_steps
    written = max(map(longest_answer, offer.specs))
    usages = [Usage(input_tokens=said * 3 + step * written, output_tokens=written) for step in range(steps)]
    costs = [sum(spec.price.cost_usd(usage) for usage in usages) for spec in offer.specs if spec.price is not None]
    most = max(costs)
    if planner == offer.planner and planner is not None:
        plan = Usage(input_tokens=2_000 + said, output_tokens=plan_tokens)
        most += max(spec.price.cost_usd(plan) for spec in offer.specs if spec.price is not None)
    return most if limits.max_usd is None else min(most, limits.max_usd)


def _speaking_openai(specs: Iterable[WorkerSpec]) -> WorkerSpec | None:
    """Returns the first worker that a Conductor can be, too: Conductors speak OpenAI's protocol."""
    return next((spec for spec in specs if spec.provider == "openai"), None)


def _title(spec: WorkerSpec) -> str:
    host = urlsplit(str(spec.base_url)).hostname or ""
    return _PROVIDERS.get(host, host)


def _host(base_url: str | None) -> str | None:
    host = urlsplit(str(base_url)).hostname
    return None if host in ("127.0.0.1", "::1", "localhost") else host
