"""The graph of a plan as a picture in PNG: the picture in SVG, drawn by resvg."""

import math
import re
from pathlib import Path

from conductor_core.errors import BadInput
from conductor_core.export.plan import Plan
from conductor_core.export.svg import drawn, size_of

FONTS = Path(__file__).parent / "fonts"
FAMILY = "Plan Sans"
OURS = re.compile("[\n -~\u00a0-\u017f\u0391-\u03a1\u03a3-\u03a9\u03b1-\u03c9\u0410-\u044f‐–—‘’“”„…·→←↑↓≤≥≠±×÷€✓]*")
"""Characters of our font: those that most plans have."""
SCALE, LEAST_SCALE = 2.0, 0.75
"""Pixels of the picture for one of the page; below the least, no instruction can be read."""
LONGEST_PX = 30_000
MOST_PX = 60_000_000
"""Limits of a picture: most programs open no longer side than 32,767, and drawing takes 4 bytes for each pixel."""


def png(plan: Plan) -> bytes:
    """Returns the picture, with two pixels for one of the page where it is not too large.

    Its font comes with the program, so that it looks the same everywhere. Characters that the font lacks are drawn in
    fonts of this machine, if it has any.

    Raises: BadInput for a plan so large that nothing could be read in the picture.
    """
    import resvg_py  # when used: few commands draw

    width, height = size_of(plan)
    scale = _scale(width, height)
    if scale < LEAST_SCALE:
        raise BadInput(
            f"the graph of this plan has {width:.0f} by {height:.0f} points, too large for a PNG: use the form svg"
        )
    document = drawn(plan, f"'{FAMILY}', sans-serif", tooltips=False)
    return resvg_py.svg_to_bytes(
        svg_string=document,
        zoom=scale,
        font_files=[str(file) for file in sorted(FONTS.glob("*.ttf"))],
        font_family=FAMILY,
        sans_serif_family=FAMILY,
        skip_system_fonts=OURS.fullmatch(document) is not None,  # looking for them takes time
    )


def too_large(plan: Plan) -> bool:
    """Tells whether ``png`` refuses the plan."""
    return _scale(*size_of(plan)) < LEAST_SCALE


def _scale(width: float, height: float) -> float:
    return min(SCALE, LONGEST_PX / max(width, height), math.sqrt(MOST_PX / (width * height)))
