"""The command ``serve``: runs as an endpoint for clients of OpenAI's and Anthropic's APIs, without the pages."""

import ipaddress
import logging
import socket
import sys
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from conductor_core.cli import inputs, options
from conductor_core.cli.inputs import opened_store
from conductor_core.cli.live import opened_engine
from conductor_core.cli.output import one_line
from conductor_core.cli.ui import check_free
from conductor_core.errors import BadInput

if TYPE_CHECKING:
    from starlette.types import ASGIApp

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
_STOP_WITHIN_S = 3


def serve(
    port: Port = 8600,
    host: Host = "127.0.0.1",
    conductor: options.Conductor = None,
    pool: options.Pool = None,
    models: Models = None,
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
            app = OwnPagesOnly(endpoint(lambda: gateway), names=lambda: settings.allowed_hosts)
            return _listen(app, host, port)


def _is_of_this_machine(host: str) -> bool:
    addresses = {str(found[4][0]) for found in socket.getaddrinfo(host, None)}
    return all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in addresses)


def _listen(app: "ASGIApp", host: str, port: int) -> int:
    """Serves until SIGINT or SIGTERM, and then for a few seconds what is under way. Raises: BadInput."""
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            shown = f"[{host}]" if ":" in host else host
            print(f"Listening on http://{shown}:{port}/v1", flush=True)

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
