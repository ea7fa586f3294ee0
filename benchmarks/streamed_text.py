"""What a piece of streamed text costs the browser, early and late in an answer: `python -m benchmarks.streamed_text`.

Answers of each kind arrive in pieces of a token or so in the page's own renderer, in a real Chromium. The processor
time of the page's thread per piece, in the first and in the last quarter, says whether rendering slows as it grows.
`--assets FOLDER` measures another revision's files in the same run, in turns.
"""

import argparse
import http.server
import json
import threading
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from playwright.sync_api import CDPSession, Page, sync_playwright

from tests.browser.find_chromium import FLAGS, find_chromium

ROOT = Path(__file__).parents[1]
ASSETS = ROOT / "pages" / "components" / "live_workflow" / "assets"
KATEX = ROOT / "pages" / "components" / "live_workflow" / "vendor" / "katex"
PIECE = 8
ROUNDS = 2
KINDS = {
    "prose": "A paragraph with **bold** words, `code` and some length, as models write them, {0}.\n\n",
    "formulas": "By \\(a_{{{0}}} = \\frac{{b_{{{0}}}}}{{c}}\\) and $x_{{{0}}}^2$ it follows that\n\n"
    "\\[\\sum_{{i=0}}^{{{0}}} i^2\\]\n\n",
    "one long table": "| row {0} | $x_{{{0}}}$ | some words |\n",
    "JSON": '{{"row": {0}, "words": ["some", "more"]}}, ',
}
BEGIN = """
async (folder) => {
  const { StreamedMarkdown } = await import(`${folder}/text.js`)
  const host = document.createElement("div")
  document.body.replaceChildren(host)
  const root = host.attachShadow({ mode: "open" })
  // As in a pane: of its own size, scrolled to its end.
  const pane = document.createElement("div")
  pane.style = "width: 260px; height: 200px; overflow: auto; contain: strict"
  const prose = document.createElement("div")
  pane.append(prose)
  root.append(pane)
  prose.className = "prose streaming"
  for (const name of ["style.css", "prose.css"]) {
    const found = await fetch(`${folder}/${name}`)
    if (found.ok) root.adoptedStyleSheets.push(await new CSSStyleSheet().replace(await found.text()))
  }
  const drawing = await import(`${folder}/draw_formulas.js`).catch(() => null)
  drawing?.enter(root)
  window.streamed = { markdown: new StreamedMarkdown(prose), pane }
}
"""
SHOW = """
async ([text, from, to, piece]) => {
  const { markdown, pane } = window.streamed
  for (let end = from + piece; end <= to; end += piece) {
    markdown.show(text.slice(0, end), false)
    pane.scrollTop = pane.scrollHeight
    await new Promise((resolve) => setTimeout(resolve))
  }
}
"""


class _Files(http.server.SimpleHTTPRequestHandler):
    """The assets as the app serves them, below ``/_stcore/``, and KaTeX."""

    def __init__(self, *args: Any, folders: dict[str, Path], **kwargs: Any) -> None:
        self._folders = folders
        super().__init__(*args, **kwargs)

    def translate_path(self, path: str) -> str:
        for prefix, folder in self._folders.items():
            if path.startswith(prefix):
                return str(folder / path.removeprefix(prefix))
        return str(ROOT / "absent")

    def do_GET(self) -> None:
        if self.path == "/":
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><body></body>")
        else:
            super().do_GET()

    def log_message(self, *_: object) -> None:
        pass


def answer(kind: str, characters: int) -> str:
    line, parts, size = KINDS[kind], ["["] if kind == "JSON" else [], 0
    if kind == "one long table":
        parts.append("| a | b | c |\n|---|---|---|\n")
    while size < characters:
        parts.append(line.format(len(parts)))
        size += len(parts[-1])
    return "".join(parts)


def measure(page: Page, folder: str, text: str) -> tuple[float, float]:
    """Milliseconds of processor time a piece, in the first and in the last quarter of ``text``."""
    cdp = page.context.new_cdp_session(page)
    cdp.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.evaluate(BEGIN, folder)
    quarter = len(text) // 4
    spent: list[float] = []
    for number in range(4):
        before = _task_s(cdp)
        page.evaluate(SHOW, [text, number * quarter, (number + 1) * quarter, PIECE])
        spent.append((_task_s(cdp) - before) * 1e3 / (quarter / PIECE))
    cdp.detach()
    return spent[0], spent[-1]


def _task_s(cdp: CDPSession) -> float:
    metrics = cdp.send("Performance.getMetrics")["metrics"]
    return next(float(each["value"]) for each in metrics if each["name"] == "TaskDuration")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--assets", type=Path, help="the assets folder of another revision, measured beside")
    parser.add_argument("--characters", type=int, default=20_000)
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    options = parser.parse_args()
    folders = {"/_stcore/now/": ASSETS, "/api/katex/": KATEX}
    if options.assets:
        folders["/_stcore/before/"] = options.assets
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Files, folders=folders))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(find_chromium()), args=list(FLAGS))
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.server_port}/")
        for kind in options.kinds:
            text = answer(kind, options.characters)
            names = [each.split("/")[2] for each in folders if each.startswith("/_stcore/")]
            # In turns, after a round that loads what is loaded once.
            rounds = [{name: measure(page, f"/_stcore/{name}", text) for name in names} for _ in range(ROUNDS + 1)][1:]
            for name in names:
                first, last = (median(each[name][place] for each in rounds) for place in (0, 1))
                print(json.dumps({"kind": kind, "files": name, "first_ms": round(first, 3), "last_ms": round(last, 3)}))
        browser.close()
    server.shutdown()


if __name__ == "__main__":
    main()
