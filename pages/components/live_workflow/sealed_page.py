"""An HTML page that opens without a server: it may connect to nothing, and only its own scripts run, by their digest.

What models and people wrote is JSON in elements that no browser runs.
"""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from conductor_core.shared_run import inert_json
from pages.components.live_workflow.bundle import ASSETS, bundle

_COMMENT = re.compile(r"/\*.*?\*/\n?", re.DOTALL)


def sealed_page(title: str, data: Mapping[str, Any], module: str, scripts: Sequence[str] = ()) -> str:
    """Returns the page.

    Args:
        title: of our own words alone.
        data: what becomes JSON, by the id of its element.
        module: the script that draws the page. scripts: what runs before it.
    """
    digests = " ".join(f"'sha256-{_digest(script)}'" for script in (*scripts, module))
    policy = (
        f"default-src 'none'; script-src {digests}; style-src 'unsafe-inline'; img-src data:; font-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return "\n".join(
        (
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="referrer" content="no-referrer">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title} · Conductor Inspector</title>",
            '<link rel="icon" href="data:,">',
            f"<style>{read_text(Path(__file__).with_name('shared.css'))}</style>",
            "</head>",
            "<body>",
            '<main><div id="live"></div></main>',
            "<noscript><p>JavaScript draws this page, and it is off.</p></noscript>",
            *(
                f'<script type="application/json" id="{name}">{inert_json(value)}</script>'
                for name, value in data.items()
            ),
            *(f"<script>{script}</script>" for script in scripts),
            f'<script type="module">{module}</script>',
            "</body>",
            "</html>",
            "",
        )
    )


@cache
def bundle_of(entry: str) -> str:
    """Returns the script of such a page: the module ``entry`` and all that it imports, as one."""
    return bundle(entry, {"base.js": "packed.js"})


@cache
def styles_of(*names: str) -> str:
    """Returns stylesheets of the component as one."""
    return _COMMENT.sub("", "\n".join(read_text(ASSETS / name) for name in names))


def read_text(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
