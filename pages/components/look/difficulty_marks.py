"""The mark of each difficulty in figures. It goes by the name, so a suite with only some of them has the same marks."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Mark(NamedTuple):
    """Plotly's name of a mark, and the sign for it in a legend."""

    symbol: str
    sign: str


_USUAL: Mapping[str, Mark] = {
    "": Mark("circle-open", "○"),
    "easy": Mark("circle-open", "○"),
    "medium": Mark("diamond-open", "◇"),
    "hard": Mark("square", "■"),
}
_OTHERS = (
    Mark("triangle-up-open", "△"),
    Mark("triangle-down-open", "▽"),
    Mark("triangle-right-open", "▷"),
    Mark("triangle-left-open", "◁"),
    Mark("star-open", "☆"),
)


def marks(names: Sequence[str]) -> Mapping[str, Mark]:
    """Returns a mark for each name. The usual three have their own; from the sixth other on, marks repeat."""
    others = [name for name in names if name not in _USUAL]
    return {name: _USUAL.get(name) or _OTHERS[others.index(name) % len(_OTHERS)] for name in names}


def legend(names: Sequence[str]) -> str:
    """Returns ``○ easy, ◇ medium, ■ hard``, not escaped."""
    return ", ".join(f"{mark.sign} {name}" for name, mark in marks(names).items() if name)
