import re
from pathlib import Path

from conductor_core.export.picture import LIGHT, NO_AGENT_LIGHT
from pages.components.style import figures

STYLE = Path(figures.__file__).parents[1] / "live_workflow" / "assets" / "style.css"


def test_charts_and_the_live_component_give_an_agent_the_same_colour() -> None:
    found: dict[str, list[str]] = {}
    for name, colour in re.findall(r"--agent-(\w+):\s*(#[0-9a-f]{6})", STYLE.read_text()):
        found.setdefault(name, []).append(colour)
    for number, (light, dark) in enumerate(zip(LIGHT, figures.DARK, strict=True)):
        assert found[str(number)] == [light, dark]
    assert found["none"] == [NO_AGENT_LIGHT, figures.NO_AGENT_DARK]


def test_an_agent_that_is_not_in_the_pool_is_grey() -> None:
    assert figures.agent_colour("conductor", ["solver"], dark=False) == NO_AGENT_LIGHT


def test_a_dot_has_a_colour_for_either_theme() -> None:
    dot = figures.agent_dot("checker", ["solver", "checker"])
    assert f"light-dark({LIGHT[1]}, {figures.DARK[1]})" in dot
