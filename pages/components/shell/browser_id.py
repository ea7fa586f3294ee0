"""The browser's id: a random number in a cookie that comes with the page and that no script can read.

It names a file of choices and nothing else. A browser without cookies has none and uses the last choice of any browser.
"""

import re
import secrets
from collections.abc import Mapping

import streamlit as st
from starlette.responses import Response

COOKIE = "conductor_inspector_browser"
_ID = re.compile(r"[0-9a-f]{32}")
_YEAR_S = 365 * 24 * 3600


def browser_id() -> str | None:
    """Returns the id of the browser whose page is being drawn; None if it has none."""
    return valid_id(st.context.cookies)


def give_id(cookies: Mapping[str, str], response: Response) -> None:
    """Gives the browser that sent ``cookies`` an id, unless it has one."""
    if valid_id(cookies) is None:
        response.set_cookie(COOKIE, secrets.token_hex(16), max_age=_YEAR_S, httponly=True, samesite="lax")


def valid_id(cookies: Mapping[str, str]) -> str | None:
    """Returns the id in a browser's cookies; None: there is none."""
    # Anybody can send a cookie, and this one becomes part of a file's name.
    found = cookies.get(COOKIE)
    return found if isinstance(found, str) and _ID.fullmatch(found) else None
