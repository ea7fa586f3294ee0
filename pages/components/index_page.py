"""The HTML that the pages' addresses answer with: Streamlit's own, told where its server is.

Streamlit's script does not know how much of an address is the page's name. So it asks for its server below the page
first (``/history/_stcore/health``), gets two errors, and only then asks where the server is.
"""

from pathlib import Path

import streamlit as st
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from pages.components import places

_TOLD = b'<script>window.__streamlit = { BACKEND_BASE_URL: new URL(".", location.href).href }</script>\n    '
_FIRST_MODULE = b'<script type="module"'


def _html() -> bytes:
    own = (Path(st.__file__).parent / "static" / "index.html").read_bytes()
    return own.replace(_FIRST_MODULE, _TOLD + _FIRST_MODULE, 1)


HTML = _html()


async def _page(_request: Request) -> HTMLResponse:
    return HTMLResponse(HTML, headers={"cache-control": "no-cache"})


ROUTES = [Route(f"/{page.stem}", _page) for page in places.ALL]
