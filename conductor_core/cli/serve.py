"""The command ``serve``: runs as an endpoint for clients of OpenAI's and Anthropic's APIs, without the pages."""

import ipaddress
import logging
import socket
import sys
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from conductor_core.cli import inputs, options
from conductor_core.cli.inputs import opened_store
from conductor_core.cli.live import opened_engine
from conductor_core.cli.output import one_line
from conductor_core.cli.ui import check_free
from conductor_core.errors import BadInput

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from conductor_core.serving.pass_through import PassThrough, Upstream
    from conductor_core.serving.served_models import ServedModels
    from conductor_core.settings import Settings

Port = Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")]
Host = Annotated[
    str,
    typer.Option(
        metavar="ADDRESS",
        help="Address to listen on. 127.0.0.1 is this machine only; others need a key (conductor keys create). "
        "CONDUCTOR_ALLOWED_HOSTS sets further host names that are answered.",
    ),
]
Models = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Served models (TOML), beside fugu and fugu-ultra; else served-models.toml of the data folder.",
    ),
]
PassThroughTo = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL",
        callback=inputs.named,
        help="Forward what is asked of other models than the served ones, unchanged, and record it: URL#MODEL, or a "
        "worker of the pool.",
    ),
]
PassThroughKey = Annotated[
    str | None,
    typer.Option(metavar="VAR", help="The variable that holds the key of the model at URL#MODEL."),
]
ShadowShare = Annotated[
    float | None,
    typer.Option(
        "--shadow",
        metavar="SHARE",
        min=0,
        max=1,
        help="The share of the forwarded requests that a served model answers, too, after the client has its answer.",
    ),
]
ShadowModel = Annotated[str, typer.Option(metavar="ID", help="The served model that does.")]
ShadowUsd = Annotated[
    float | None, typer.Option(metavar="USD", min=0, max=1e9, help="What shadows and judges may spend in a day (UTC).")
]
ShadowAtOnce = Annotated[int, typer.Option(min=1, max=2, help="How many shadows run at once.")]
Grader = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Tasks with right answers, a suite file as `evaluate --suite` reads: where a request is one of them, the "
        "forwarded answer and the shadow's are both judged.",
    ),
]
Judge = Annotated[
    str | None,
    typer.Option(metavar="WORKER", help="A worker of the pool that says which of two answers is better."),
]
_STOP_WITHIN_S = 3


def serve(
    port: Port = 8600,
    host: Host = "127.0.0.1",
    conductor: options.Conductor = None,
    pool: options.Pool = None,
    models: Models = None,
    pass_through: PassThroughTo = None,
    pass_through_key_env: PassThroughKey = None,
    shadow: ShadowShare = None,
    shadow_model: ShadowModel = "fugu",
    shadow_usd_a_day: ShadowUsd = None,
    shadow_at_once: ShadowAtOnce = 1,
    grader: Grader = None,
    judge: Judge = None,
    db: options.Db = None,
) -> int:
    """POST /v1/chat/completions, /v1/responses and /v1/messages are answered by runs, which the inspector shows."""
    from conductor_core.engine.pools import read_pool
    from conductor_core.serving.served_models import ServedModels

    given = {name: value for name, value in (("conductor", conductor), ("pool", pool)) if value is not None}
    settings = inputs.read_settings().model_copy(update=given)
    served = ServedModels.read(settings, models)
    for each in served.all:
        try:
            read_pool(each.pool or settings.pool, settings)
        except BadInput as fault:  # otherwise only clients would hear of it, who cannot mend it
            raise BadInput(f"served model {each.id}: {fault}") from fault
    upstream = _upstream(pass_through, pass_through_key_env, settings)
    shadowing = {
        "db": db,
        "conductor": conductor,
        "pool": pool,
        "models": None if models is None else str(models),
        "model": shadow_model,
        "at_once": shadow_at_once,
        "usd_a_day": shadow_usd_a_day,
        "grader": grader,
        "judge": judge,
    }
    _check_shadow(shadow, shadowing, served, settings, forwards=upstream is not None)
    check_free(host, port)
    with opened_store(db, settings) as store:
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
        with opened_engine(store, settings, serves=True) as engine:
            engine.carry_on_all()
            if settings.warm_up:
                engine.warm_up(settings.conductor, settings.pool)
            turns = Turns(engine, store, settings, served)
            seal = sealing_key(settings.data_folder)
            kept = store.service_keys, seal, store.deleted_responses, store.judgements
            gateway = Gateway(turns, served, *kept, inspector_url=settings.inspector_url, tools=OverHttp(store))
            if upstream is not None:
                from conductor_core.serving.counts import Counts
                from conductor_core.serving.pass_through import PassThrough

                counts = Counts(settings.data_folder)
                gateway.passing = PassThrough(upstream, engine.sink, store, turns, counts)
                if shadow:
                    from conductor_core.cli.shadowing import COMMAND
                    from conductor_core.serving.shadow import Shadow

                    gateway.passing.shadow = Shadow(COMMAND, shadowing, shadow, shadow_at_once, counts)
            app = OwnPagesOnly(endpoint(lambda: gateway), names=lambda: settings.allowed_hosts)
            return _listen(app, host, port, gateway.passing)


def _upstream(named: str | None, key_variable: str | None, settings: "Settings") -> "Upstream | None":
    """Returns where requests are forwarded to. Raises: BadInput."""
    if named is None:
        if key_variable is not None:
            raise BadInput("--pass-through-key-env is for --pass-through URL#MODEL: give that, too")
        return None
    from conductor_core.chat.messages import WorkerSpec
    from conductor_core.engine.pools import read_specs
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


def _check_shadow(
    share: float | None, asked: dict[str, Any], served: "ServedModels", settings: "Settings", *, forwards: bool
) -> None:
    """Raises: BadInput for what the process of the shadow would only find out later."""
    if share is None:
        for option in ("usd_a_day", "grader", "judge"):
            if asked[option] is not None:
                name = f"--shadow-{option.replace('_', '-')}" if option == "usd_a_day" else f"--{option}"
                raise BadInput(f"{name} is for --shadow SHARE: give that, too")
        return
    from conductor_core.cli.shadowing import grader_of
    from conductor_core.engine.pools import read_specs

    if not forwards:
        raise BadInput("--shadow is a share of forwarded requests: give --pass-through MODEL, too")
    model = served.get(asked["model"])
    if model is None:
        known = ", ".join(each.id for each in served.all)
        raise BadInput(f"unknown served model {one_line(asked['model'], 80)!r}; choose {known}")
    workers = read_specs(model.pool or settings.pool, settings)
    if asked["judge"] is not None:
        judges = read_specs(settings.pool, settings)
        if asked["judge"] not in {spec.name for spec in judges}:
            names = ", ".join(spec.name for spec in judges)
            raise BadInput(f"unknown judge {one_line(asked['judge'], 80)!r}; the pool has {names}")
        workers = (*workers, *(judge for judge in judges if judge not in workers))
    if asked["usd_a_day"] is not None:
        from conductor_core.engine.budgets import CostCap
        from conductor_core.serving.admission import Spent

        CostCap(Spent(0.0, 0), max_usd=asked["usd_a_day"]).check_workers(workers)
    grader_of(asked["grader"])


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
