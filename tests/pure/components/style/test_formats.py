"""Terminal, pages and the live component write the same text for the same value."""

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

from conductor_core.formats import dollars, plural, seconds
from conductor_core.run.costs import Cost
from pages.components.style import formats

FORMAT_JS = Path(formats.__file__).parents[1] / "live_workflow" / "assets" / "format.js"
SCRIPT = f"""
import {{ plural, seconds, usd, usdInLine }} from {json.dumps(FORMAT_JS.as_uri())}
const {{ times, amounts, counts }} = JSON.parse(await new Promise((done) => {{
  let text = ""
  process.stdin.on("data", (part) => (text += part)).on("end", () => done(text))
}}))
console.log(JSON.stringify([
  times.map((each) => seconds(each)),
  amounts.map((each) => usd(each)),
  amounts.map((each) => usdInLine(null, each)),
  counts.map((each) => plural(each, "step")),
]))
"""


def test_a_value_is_the_same_text_in_terminal_and_browser() -> None:
    draw = random.Random(20)
    # Halves, which Python and JavaScript round differently, and both sides of each change of form.
    times: list[float | None] = [
        None,
        0,
        50,
        250,
        1250,
        59_949,
        59_950,
        60_500,
        61_500,
        3_599_499,
        3_599_500,
        3_600_000,
        7_199_999,
    ]
    times += [draw.uniform(0, 10 ** draw.uniform(0, 8)) for _ in range(300)]
    times += [draw.randrange(10**6) for _ in range(100)]
    amounts = [0, 1e-7, 1e-6, 2**-7, 2**-9, 0.01, 0.00999999, 0.5**12, 0.99995, 1, 1.005, 1.015, 2.675, 1234.5, 999.995]
    amounts += [10 ** draw.uniform(-8, 6) for _ in range(300)]
    counts = [0, 1, 2, 999, 1000, *(draw.randrange(10**9) for _ in range(50))]
    said = subprocess.run(
        [_node(), "--input-type=module", "--eval", SCRIPT],
        input=json.dumps({"times": times, "amounts": amounts, "counts": counts}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(said.stdout) == [
        [seconds(each) for each in times],
        [dollars(each) for each in amounts],
        [Cost(None, each).in_line for each in amounts],
        [plural(each, "step") for each in counts],
    ]


def _node() -> str:
    """Returns Node of this environment, or of the machine."""
    node = shutil.which("node", path=str(Path(sys.executable).parent)) or shutil.which("node")
    assert node is not None, "Node comes with requirements-dev.txt"
    return node
