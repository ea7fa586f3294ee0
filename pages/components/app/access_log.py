"""Puts on record what a page shows of runs, and to which browser (docs/audit.md)."""

import hashlib
import secrets
from collections.abc import Iterable, Mapping

import streamlit as st

from conductor_core.run.actor import local_caller
from pages.components.app.security import valid_id
from pages.components.app.session import current
from pages.components.style.formats import inert

_SALT = secrets.token_bytes(16)
_OWN = "looking-session"


def viewed(run_ids: Iterable[str], what: str) -> None:
    """Keeps that the person at this page sees content of these runs. Draws a warning if that could not be kept."""
    current().store.access_log.viewed(run_ids, what, local_caller("page"), this_browser())
    fault_note()


def exported(run_ids: Iterable[str], what: str, browser: str) -> None:
    """Keeps that the person at ``browser`` saves these runs in a file of the form ``what``. Any thread may call it."""
    current().store.access_log.exported(run_ids, what, local_caller("page"), browser)


def searched(typed: str, filters: Iterable[str], what: str) -> None:
    """Keeps that the person at this page searched all texts: digests of the words, and the filters' names."""
    current().store.access_log.searched(typed, filters, what, local_caller("page"), this_browser())


def fault_note() -> None:
    """Says that looks are not on record, if that is so."""
    if (fault := current().store.access_log.fault) is not None:
        said = f"Views cannot be logged: {fault}. Everything is shown all the same."
        st.warning(inert(said), icon=":material/visibility_off:")


def asked_by_browser(cookies: Mapping[str, str]) -> str:
    """Returns the name of the browser that sent ``cookies`` in the log; empty if it keeps no cookies.

    It is the same for all tabs, says nothing about the cookie, and is another one after the server was started again.
    """
    browser = valid_id(cookies)
    return "" if browser is None else hashlib.sha256(_SALT + browser.encode()).hexdigest()[:8]


def this_browser() -> str:
    """Returns the name in the log of the browser whose page is being drawn; without cookies, that of the tab."""
    return asked_by_browser(st.context.cookies) or st.session_state.setdefault(_OWN, secrets.token_hex(4))
