"""Word lists and templates of the cold-start corpus, as TOML, and the reader of both."""

import random
import re
import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_SLOT = re.compile(r"<([a-z_]+)>")


@cache
def table(name: str) -> dict[str, Any]:
    """Returns the parsed ``{name}.toml`` of this folder."""
    return tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8"))


def choose(template: str, rng: random.Random) -> str:
    """Returns ``template`` with one alternative taken from each ``[a|b|c]``, innermost first.

    Brackets without a bar are text (``arr[0]``). So are formulas in ``$ $`` and code, because they hold no bars.
    """

    def one(match: re.Match[str]) -> str:
        inner = match.group(1)
        # Other brackets are put aside as control characters, so that the search below ends.
        return rng.choice(inner.split("|")) if "|" in inner else f"\x02{inner}\x03"

    while _CHOICE.search(template):
        template = _CHOICE.sub(one, template)
    return template.replace("\x02", "[").replace("\x03", "]")


def fill(template: str, rng: random.Random, slots: Mapping[str, Callable[[], str]]) -> str:
    """Returns ``template`` with choices taken and each ``<slot>`` drawn: from ``slots``, else from its bank.

    Slots inside a drawn entry are drawn too. Unknown slots are text (``<script>``).
    """
    banks = table("banks")

    def one(match: re.Match[str]) -> str:
        name = match.group(1)
        if name in slots:
            return slots[name]()
        return choose(str(rng.choice(banks[name])), rng) if name in banks else match.group(0)

    text = choose(template, rng)
    for _ in range(3):
        text = _SLOT.sub(one, text)
    return text
