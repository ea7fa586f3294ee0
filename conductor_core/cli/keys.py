"""``keys create``, ``list`` and ``revoke``: who may use the endpoint, and how much."""

import json
import sys
from typing import Annotated, Any

import typer

from conductor_core.cli import options
from conductor_core.cli.output import one_line, table
from conductor_core.errors import BadInput
from conductor_core.formats import UNKNOWN, dollars, plural
from conductor_core.run.actor import local_caller
from conductor_core.run.service_key import ServiceKey
from storage.endpoint import MOST_NUMBER, MOST_USD, ServiceKeys


def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who or what will use it.")],
    models: Annotated[
        str | None, typer.Option(metavar="A,B", help="The served models that it may ask for. Default: all.")
    ] = None,
    exclude_provider: Annotated[
        list[str] | None,
        typer.Option(
            metavar="P",
            help="A kind of provider, such as openai, or the host of a server that its requests never reach; may be "
            "repeated.",
        ),
    ] = None,
    usd_per_day: Annotated[
        float | None, typer.Option(min=0, max=MOST_USD, help="USD that its runs may cost in a day of UTC.")
    ] = None,
    tokens_per_day: Annotated[
        int | None, typer.Option(min=1, max=MOST_NUMBER, help="Tokens of its runs in a day of UTC.")
    ] = None,
    requests_per_minute: Annotated[
        int | None, typer.Option(min=1, max=MOST_NUMBER, help="Requests in a minute.")
    ] = None,
    given: options.DbJson = options.NONE,
) -> int:
    """The key goes to stdout, once: only its digest is kept. From the first key on, each request needs one."""
    if models is not None and not models.strip():
        raise BadInput("--models is empty: name one, or leave it out")
    with given.store() as store:
        made, key = store.service_keys.create(
            name,
            local_caller("cli"),
            models=None if models is None else models.split(","),
            excluded_providers=exclude_provider or (),
            usd_per_day=usd_per_day,
            tokens_per_day=tokens_per_day,
            requests_per_minute=requests_per_minute,
        )
    if given.as_json:
        print(json.dumps({"key": key} | made.model_dump(mode="json"), indent=2), flush=True)  # print_json hides keys
        return 0
    print(key, flush=True)
    limits = f" ({limits_in_words(made)})" if limits_in_words(made) else ""
    print(f"key {made.name!r} created{limits}. It is shown only now: keep it where its user finds it", file=sys.stderr)
    return 0


def list_keys(given: options.DbJson = options.NONE) -> int:
    with given.reading() as store:
        keys = store.service_keys.list()
        rows = [_listed(store.service_keys, key) for key in keys]
    head = ("NAME", "ID", "CREATED", "BY", "TODAY", "LAST RUN", "LIMITS", "REVOKED")
    none = "no keys: the endpoint answers this machine only, whatever key is sent"
    given.print(
        lambda: {"keys": rows},
        lambda: table([head, *(_cells(key, row) for key, row in zip(keys, rows, strict=True))]) if keys else [none],
    )
    return 0


def revoke(
    named: Annotated[str, typer.Argument(metavar="NAME", help="The key's name or id.")],
    given: options.DbJson = options.NONE,
) -> int:
    """Requests with it are refused from now on. The runs that it made stay."""
    with given.store(of_a_run=True) as store:
        key = store.service_keys.revoke(named, local_caller("cli"))
    given.print(lambda: key.model_dump(mode="json"), lambda: [f"{one_line(key.name)} ({key.id}): revoked"])
    return 0


def limits_in_words(key: ServiceKey) -> str:
    """Returns ``$5 and 20,000 tokens a day, only fugu``; empty for a key without limits."""
    usd = [] if key.usd_per_day is None else [dollars(key.usd_per_day)]
    tokens = [] if key.tokens_per_day is None else [plural(key.tokens_per_day, "token")]
    a_day = " and ".join(usd + tokens)
    words = [f"{a_day} a day"] if a_day else []
    words += [] if key.requests_per_minute is None else [f"{plural(key.requests_per_minute, 'request')} a minute"]
    words += [] if key.models is None else [f"only {', '.join(key.models)}"]
    words += [f"never {', '.join(key.excluded_providers)}"] if key.excluded_providers else []
    return one_line(", ".join(words))


def _listed(keys: ServiceKeys, key: ServiceKey) -> dict[str, Any]:
    usd, tokens = keys.spent_today(key.id)
    used = keys.last_used(key.id)
    more = {"usd": usd, "tokens": tokens}
    return key.model_dump(mode="json") | {
        "spent_today": more,
        "last_used_at_utc": None if used is None else used.isoformat(),
    }


def _cells(key: ServiceKey, row: dict[str, Any]) -> tuple[str, ...]:
    spent, used, actor = row["spent_today"], row["last_used_at_utc"], key.created_by.actor
    return (
        one_line(key.name),
        key.id,
        f"{key.created_at_utc:%Y-%m-%d %H:%M}",
        UNKNOWN if actor is None else one_line(actor.short, 40),
        f"{dollars(spent['usd'])}, {plural(spent['tokens'], 'token')}",
        UNKNOWN if used is None else used[:16].replace("T", " "),
        limits_in_words(key) or "none",
        UNKNOWN if key.revoked_at_utc is None else f"{key.revoked_at_utc:%Y-%m-%d %H:%M}",
    )
