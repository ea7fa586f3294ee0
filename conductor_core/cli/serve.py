"""The command ``serve``: runs as an endpoint for clients of OpenAI's and Anthropic's APIs, without the pages."""

import ipaddress
import json
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from conductor_core.cli import inputs, options
from conductor_core.cli.inputs import read_settings
from conductor_core.cli.output import one_line
from conductor_core.cli.ui import check_free
from conductor_core.engine.pools import read_specs
from conductor_core.errors import BadInput
from conductor_core.serving.served_models import ServedModels
from conductor_core.settings import Settings

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from conductor_core.serving.pass_through import PassThrough, Upstream

_STOP_WITHIN_S = 3


@dataclass(frozen=True)
class ServeOptions(options.Options):
    models: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Served models (TOML), beside fugu and fugu-ultra; else served-models.toml of the data folder.",
        ),
    ] = None
    pass_through: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            callback=inputs.named,
            help="Forward what is asked of other models than the served ones, unchanged, and record it: URL#MODEL, or "
            "a worker of the pool.",
        ),
    ] = None
    pass_through_key_env: Annotated[
        str | None,
        typer.Option(metavar="VAR", help="The variable that holds the key of the model at URL#MODEL."),
    ] = None
    shadow: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            min=0,
            max=1,
            help="The share of the forwarded requests that a served model answers, too, after the client has its "
            "answer.",
        ),
    ] = None
    shadow_model: Annotated[str, typer.Option(metavar="ID", help="The served model that does.")] = "fugu"
    shadow_usd_a_day: Annotated[
        float | None,
        typer.Option(metavar="USD", min=0, max=1e9, help="What shadows and judges may spend in a day (UTC)."),
    ] = None
    shadow_at_once: Annotated[int, typer.Option(min=1, max=2, help="How many shadows run at once.")] = 1
    grader: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Tasks with right answers, a suite file as `evaluate --suite` reads: where a request is one of them, "
            "the forwarded answer and the shadow's are both judged.",
        ),
    ] = None
    judge: Annotated[
        str | None,
        typer.Option(metavar="WORKER", help="A worker of the pool that says which of two answers is better."),
    ] = None

    @cached_property
    def settings(self) -> Settings:
        chosen = {"conductor": self.conductor, "pool": self.pool}
        return read_settings().model_copy(update={name: each for name, each in chosen.items() if each is not None})

    @cached_property
    def served(self) -> ServedModels:
        return ServedModels.read(self.settings, None if self.models is None else Path(self.models))


_SHARED = (
    "conductor", "pool", "models", "pass_through", "pass_through_key_env", "shadow", "shadow_model", "shadow_usd_a_day",
    "shadow_at_once", "grader", "judge", "db",
)  # fmt: skip


def serve(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8600,
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="Address to listen on. 127.0.0.1 is this machine only; others need a key (conductor keys create). "
            "CONDUCTOR_ALLOWED_HOSTS sets further host names that are answered.",
        ),
    ] = "127.0.0.1",
    given: Annotated[ServeOptions, *_SHARED] = ServeOptions(),
) -> int:
    """POST /v1/chat/completions, /v1/responses and /v1/messages are answered by runs, which the inspector shows."""
    settings = given.settings
    for each in given.served.all:
        try:
            read_specs(each.pool or settings.pool, settings)
        except BadInput as fault:  # otherwise only clients would hear of it, who cannot mend it
            raise BadInput(f"served model {each.id}: {fault}") from fault
    upstream = _upstream(given.pass_through, given.pass_through_key_env, settings)
    _check_shadow(given)
    check_free(host, port)
    with given.store() as store:
        from conductor_core.mcp.http import OverHttp
        from conductor_core.serving.app import endpoint
        from conductor_core.serving.compaction import sealing_key
        from conductor_core.serving.gateway import Gateway
        from conductor_core.serving.guard import OwnPagesOnly
        from conductor_core.serving.turns import Turns

        if not store.service_keys.any():
            if not _is_of_this_machine(host):
                raise BadInput(
                    f"no key exists, so anybody who reaches {one_line(host, 60)} could use this: create one first "
                    "(conductor keys create NAME), or listen on 127.0.0.1"
                )
            print("No key exists: only programs of this machine are answered.", file=sys.stderr)
        _log_to_stderr()
        with given.engine(store, serves=True) as engine:
            engine.carry_on_all()
            if settings.warm_up:
                engine.warm_up(settings.conductor, settings.pool)
            turns = Turns(engine, store, settings, given.served)
            seal = sealing_key(settings.data_folder)
            kept = store.service_keys, seal, store.deleted_responses, store.judgements
            gateway = Gateway(turns, given.served, *kept, inspector_url=settings.inspector_url, tools=OverHttp(store))
            if upstream is not None:
                from conductor_core.serving.counts import Counts
                from conductor_core.serving.pass_through import PassThrough

                counts = Counts(settings.data_folder)
                gateway.passing = PassThrough(upstream, engine.sink, store, turns, counts)
                if given.shadow:
                    from conductor_core.serving.shadow import Shadow

                    at_once = given.shadow_at_once
                    gateway.passing.shadow = Shadow(COMMAND, asdict(given), given.shadow, at_once, counts)
            app = OwnPagesOnly(endpoint(lambda: gateway), names=lambda: settings.allowed_hosts)
            return _listen(app, host, port, gateway.passing)


def _upstream(named: str | None, key_variable: str | None, settings: Settings) -> "Upstream | None":
    """Returns where requests are forwarded to. Raises: BadInput."""
    if named is None:
        if key_variable is not None:
            raise BadInput("--pass-through-key-env is for --pass-through URL#MODEL: give that, too")
        return None
    from conductor_core.chat.messages import WorkerSpec
    from conductor_core.privacy import masking
    from conductor_core.providers.errors import ServerFault
    from conductor_core.providers.model_files import check_spec
    from conductor_core.serving.pass_through import Upstream

    if "://" in named:
        url, _, model = named.partition("#")
        if not model.strip() or not url.lower().startswith(("http://", "https://")) or "@" in url or "?" in url:
            raise BadInput("--pass-through is URL#MODEL, such as https://api.openai.com/v1#gpt-5, or a worker's name")
        spec = WorkerSpec(
            name=model.strip()[:80],
            provider="openai",
            model=model.strip(),
            base_url=url.rstrip("/"),
            api_key_env=key_variable,
        )
    else:
        if key_variable is not None:
            raise BadInput("--pass-through-key-env is for URL#MODEL: a worker's pool file names its own api_key_env")
        specs = {each.name: each for each in read_specs(settings.pool, settings)}
        if named not in specs:
            raise BadInput(f"unknown worker {one_line(named, 80)!r}; the pool has {', '.join(specs)}")
        spec = specs[named]
        if spec.provider not in ("openai", "anthropic"):
            raise BadInput(f"worker {spec.name} is not behind a server: requests cannot be forwarded to it")
    check_spec(spec, settings.key_variables)
    masking.remember_variable(spec.api_key_env)
    upstream = Upstream(spec, any_api="://" in named)
    try:
        upstream.check_key()
    except ServerFault as fault:
        raise BadInput(str(fault)) from fault
    return upstream


def _check_shadow(given: ServeOptions) -> None:
    """Raises: BadInput for what the process of the shadow would only find out later."""
    if given.shadow is None:
        for option in ("shadow_usd_a_day", "grader", "judge"):
            if getattr(given, option) is not None:
                raise BadInput(f"--{option.replace('_', '-')} is for --shadow SHARE: give that, too")
        return
    if given.pass_through is None:
        raise BadInput("--shadow is a share of forwarded requests: give --pass-through MODEL, too")
    model = given.served.get(given.shadow_model)
    if model is None:
        known = ", ".join(each.id for each in given.served.all)
        raise BadInput(f"unknown served model {one_line(given.shadow_model, 80)!r}; choose {known}")
    workers = read_specs(model.pool or given.settings.pool, given.settings)
    if given.judge is not None:
        judges = read_specs(given.settings.pool, given.settings)
        if given.judge not in {spec.name for spec in judges}:
            names = ", ".join(spec.name for spec in judges)
            raise BadInput(f"unknown judge {one_line(given.judge, 80)!r}; the pool has {names}")
        workers = (*workers, *(judge for judge in judges if judge not in workers))
    if given.shadow_usd_a_day is not None:
        from conductor_core.engine.budgets import CostCap
        from conductor_core.serving.admission import Spent

        CostCap(Spent(0.0, 0), max_usd=given.shadow_usd_a_day).check_workers(workers)
    _grader_of(given.grader)


def _is_of_this_machine(host: str) -> bool:
    addresses = {str(found[4][0]) for found in socket.getaddrinfo(host, None)}
    return all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in addresses)


def _listen(app: "ASGIApp", host: str, port: int, passing: "PassThrough | None" = None) -> int:
    """Serves until SIGINT or SIGTERM, and then for a few seconds what is under way. Raises: BadInput."""
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            shown = f"[{host}]" if ":" in host else host
            print(f"Listening on http://{shown}:{port}/v1", flush=True)

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            await super().shutdown(sockets)
            if passing is not None:
                await passing.aclose()

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            """Ends the server; a second signal does not wait. Uvicorn would raise the signal again afterwards."""
            self.force_exit, self.should_exit = self.should_exit, True

    server = Server(
        uvicorn.Config(
            app,
            host=host,
            port=port,
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=_STOP_WITHIN_S,
        )
    )
    try:
        server.run()
    except SystemExit:
        if not server.started:
            raise BadInput(f"cannot listen on {one_line(host, 60)}:{port}") from None
        raise
    return 0


def _log_to_stderr() -> None:
    """Shows what goes wrong, which the other commands say in a line at their end."""
    root = logging.getLogger()
    if not any(type(handler) is logging.StreamHandler for handler in root.handlers):
        handler = logging.StreamHandler()
        handler.setLevel(logging.WARNING)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        root.addHandler(handler)


# The process of the shadow (see ``conductor_core.serving.shadow``). It reads a line of JSON, the options of ``serve``,
# then the id of a forwarded run a line, and writes ``RUN HOW`` for each. It ends with its input: when the server is
# gone, so is it.

COMMAND = (sys.executable, "-m", "conductor_core.cli.serve")
_NICE = 10


def _grader_of(file: str | None) -> Callable[[str, str], bool | None]:
    """Returns what says whether an answer to a task is right; None where the suite lacks the task. Raises: BadInput."""
    if file is None:
        return lambda _task, _answer: None
    from conductor_core.grading.grade import grade
    from conductor_core.lab.evaluation.suites import load_suite

    tasks = {task.question.strip(): task for task in load_suite(file).tasks}

    def right(task: str, answer: str) -> bool | None:
        known = tasks.get(task.strip())
        return None if known is None else grade(known, answer).right

    return right


def shadow_requests() -> None:
    from conductor_core.serving.shadow_runs import ShadowRuns

    os.nice(_NICE)
    given = ServeOptions(**json.loads(sys.stdin.readline()))
    settings, saying = given.settings, threading.Lock()
    judges = [] if given.judge is None else read_specs(settings.pool, settings)
    with given.store() as store, given.engine(store) as engine:
        runs = ShadowRuns(
            engine,
            store,
            store.judgements,
            store.service_keys,
            settings,
            given.served,
            given.served.by_id[given.shadow_model],
            grade=_grader_of(given.grader),
            judge=next((spec for spec in judges if spec.name == given.judge), None),
            usd_a_day=given.shadow_usd_a_day,
        )

        def carry_out(run_id: str) -> None:
            how = runs.run(run_id)
            with saying:
                print(run_id, how, flush=True)

        with ThreadPoolExecutor(given.shadow_at_once) as several:
            for line in sys.stdin:
                several.submit(carry_out, line.strip())
            # The server is gone: what is under way is not waited for.
            os._exit(0)


if __name__ == "__main__":
    shadow_requests()
