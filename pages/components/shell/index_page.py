"""The HTML behind the pages' addresses: Streamlit's own, with the address of its server, our style sheets and scripts.

Streamlit's script does not know how much of an address is the page's name. By itself it would ask for its server below
the page (``/history/_stcore/health``), get two errors, and only then ask at the right place.

Through ``st.html`` the sheets would come after the first elements, which would then jump. Here they end the body, after
what Streamlit adds to the head: of equal rules the later one counts.
"""

from pathlib import Path

import streamlit as st
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from pages.components.shell import places
from pages.components.shell.browser_id import give_id

ROOMS = Path(__file__).parents[1]
SHEETS = (
    ROOMS / "shell" / "frame.css",
    ROOMS / "look" / "look.css",
    ROOMS / "records" / "records.css",
    ROOMS / "context" / "context.css",
    ROOMS / "blame" / "blame.css",
    ROOMS / "audit" / "audit.css",
    ROOMS / "models" / "models.css",
)
_TOLD = b'<script>window.__streamlit = { BACKEND_BASE_URL: new URL(".", location.href).href }</script>\n    '
SCRIPTS = (ROOMS / "shell" / "waiting.js", ROOMS / "shell" / "image_drop.js")
_FIRST_MODULE = b'<script type="module"'
_BODY_END = b"</body>"


def _html() -> bytes:
    own = (Path(st.__file__).parent / "static" / "index.html").read_bytes()
    styles = b"".join(b"<style>\n%s</style>\n" % sheet.read_bytes() for sheet in SHEETS)
    # Each in a block, so that its names are its own.
    scripts = b"".join(b"<script>{\n%s}</script>\n" % script.read_bytes() for script in SCRIPTS)
    return own.replace(_FIRST_MODULE, _TOLD + _FIRST_MODULE, 1).replace(_BODY_END, styles + scripts + _BODY_END, 1)


HTML = _html()


async def _page(request: Request) -> HTMLResponse:
    response = HTMLResponse(HTML, headers={"cache-control": "no-cache"})
    give_id(request.cookies, response)
    return response


ROUTES = [Route("/", _page), *(Route(f"/{page.stem}", _page) for page in places.ALL)]
