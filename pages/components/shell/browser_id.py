"""Which browser a page is in: a random number in a cookie, set with the page itself, that no script can read.

It names a file of choices and nothing else. Without cookies there is none: what was chosen last here counts.
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
    return _valid(st.context.cookies)


def give_id(cookies: Mapping[str, str], response: Response) -> None:
    """Gives the browser that asked with ``cookies`` a number, unless it has one."""
    if _valid(cookies) is None:
        response.set_cookie(COOKIE, secrets.token_hex(16), max_age=_YEAR_S, httponly=True, samesite="lax")


def _valid(cookies: Mapping[str, str]) -> str | None:
    # A cookie is what somebody sent: it becomes part of a file's name.
    found = cookies.get(COOKIE)
    return found if isinstance(found, str) and _ID.fullmatch(found) else None
