"""The picture of a plan in PNG: readable, in a font that is always there, and bounded."""

import io
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageChops, ImageFont

from conductor_core.errors import BadInput
from conductor_core.export import picture as drawing
from conductor_core.export.picture import INK, png, size_of, too_large
from conductor_core.export.plan import Plan
from conductor_core.workflow.model import Step, Workflow
from tests.pure.export.test_plan_forms import worker


def plan(*instructions: str, chain: bool = False) -> Plan:
    steps = tuple(
        Step(instruction=text, agent="a", access_list=(at - 1,) if chain and at else ())
        for at, text in enumerate(instructions)
    )
    return Plan("T", Workflow(steps=steps), (worker("a"),), "run 1")


def opened(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data)).convert("RGB")


def ink(picture: Image.Image) -> int:
    """Pixels in the colour of text."""
    colours = picture.getcolors(maxcolors=1 << 24) or []
    return sum(count for count, colour in colours if colour == tuple(bytes.fromhex(INK[1:])))


def test_it_has_two_pixels_for_one_of_the_page_and_its_words() -> None:
    some, none = opened(png(plan("Break the journey into legs."))), opened(png(plan("")))
    assert some.size == tuple(round(2 * side) for side in size_of(plan("x")))
    assert ink(some) > ink(none) + 500


def test_its_words_do_not_depend_on_the_fonts_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    given = plan("Größe × Ωmega, Жизнь → 42 ≤ 43 …")
    usual = png(given)
    monkeypatch.setattr(drawing, "OURS", re.compile("(?!)"))  # looks for the machine's fonts as well
    assert ImageChops.difference(opened(usual), opened(png(given))).getbbox() is None


@pytest.mark.parametrize("file", sorted(drawing.FONTS.glob("*.ttf")), ids=lambda file: file.stem)
def test_the_font_has_the_characters_that_it_is_said_to_have(file: Path) -> None:
    font = ImageFont.truetype(file, 40)
    absent = bytes(font.getmask("\U0010ffff"))
    said = [chr(code) for code in range(0x21, 0x2714) if drawing.OURS.fullmatch(chr(code)) and not chr(code).isspace()]
    assert len(said) > 400
    assert [each for each in said if bytes(font.getmask(each)) == absent] == []


def test_a_large_plan_gets_a_smaller_picture_and_one_too_large_is_refused() -> None:
    large, huge = plan(*["x"] * 80, chain=True), plan(*["x"] * 200, chain=True)
    picture = opened(png(large))
    assert (max(picture.size) <= drawing.LONGEST_PX, picture.width * picture.height <= 1.01 * drawing.MOST_PX) == (
        True,
        True,
    )
    assert (too_large(large), too_large(huge)) == (False, True)
    with pytest.raises(BadInput, match="too large for a PNG: use the form svg"):
        png(huge)


def test_other_forms_do_not_load_the_library() -> None:
    code = "import sys, conductor_core.export.formats; sys.exit('resvg_py' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_only_the_words_that_are_drawn_are_given_to_the_renderer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two million characters took it four seconds, though a card shows three lines of them."""
    import resvg_py

    given: list[int] = []
    draw = resvg_py.svg_to_bytes

    def drawn(**options: Any) -> bytes:
        given.append(len(str(options["svg_string"])))
        return bytes(draw(**options))

    monkeypatch.setattr(resvg_py, "svg_to_bytes", drawn)
    long = png(plan("Weigh every word of this. " * 80_000))
    assert given[0] < 20_000
    assert ink(opened(long)) > 500
