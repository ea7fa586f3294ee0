"""The Keys page: a row for each key with what it spent today, the form for a new one, and how to use one."""

import re
from collections.abc import Sequence
from functools import partial

import streamlit as st
from markupsafe import Markup

from conductor_core.formats import dollars, plural
from conductor_core.run.actor import local_caller
from conductor_core.run.service_key import ServiceKey
from pages.components.app.session import current
from pages.components.app.widgets import across, button, confirm, kept_fault, remember, show_fault
from pages.components.style.formats import ago, html, inert, moment

TEMPLATE = "keys/keys"
NEW = "new-service-key"
"""In the session: name and text of a key from its creation until it is shown, which is once."""
NAME = "key-name"
_ASKED, _FAULT, _SAID = "revoke-asked", "key-fault", "keys-said"
_NOT_MADE = "key-not-made"
_MODELS, _PROVIDERS, _USD, _TOKENS, _REQUESTS = "key-models", "key-providers", "key-usd", "key-tokens", "key-requests"
_HEADS = ("Key", "Allowed", "USD today", "Tokens today", "Created", "Last run")
_SHOWN_AT = re.compile(
    r"(?P<above>https?://(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?(?:/[A-Za-z0-9._-]+)*?)(?:/keys)?/?"
)
_USUAL = "http://127.0.0.1:8501"


def endpoint(shown: str | None) -> str:
    """Returns the endpoint's address, below the one under which the browser shows this page: anybody may have sent it.

    It becomes part of commands that people paste, so it may hold nothing but a host and names.
    """
    found = _SHOWN_AT.fullmatch((shown or "").partition("?")[0].partition("#")[0])
    return f"{found['above'] if found else _USUAL}/v1"


def rows(keys: Sequence[ServiceKey]) -> None:
    """Draws the keys, the newest first; those that were revoked are folded away."""
    show_fault(_FAULT)
    if said := st.session_state.pop(_SAID, None):
        st.toast(said, icon=":material/check_circle:")
    valid = [key for key in reversed(keys) if key.revoked_at_utc is None]
    revoked = [key for key in reversed(keys) if key.revoked_at_utc is not None]
    if not keys:
        st.info(
            "There is no key yet. Without any, the endpoint answers programs of this machine only, whatever key they "
            "send. From the first key on, every request needs one.",
            icon=":material/lock_open:",
        )
    elif not valid:
        st.warning("Every key is revoked: the endpoint answers nobody until you create one.", icon=":material/lock:")
    else:
        with st.container(key="service-keys"):
            with across("key-row-head"):
                st.html(html(TEMPLATE, "head", names=_HEADS))
            for key in valid:
                with across(f"key-row-{key.id}"):
                    st.html(_cells(key))
                    with st.container():
                        button("Revoke", f"revoke-{key.id}", remember, _ASKED, key.id, help=f"Revoke {inert(key.name)}")
    if revoked:
        with st.expander(f"{plural(len(revoked), 'revoked key')}", icon=":material/key_off:"):
            st.html(html(TEMPLATE, "revoked", keys=[(key, _by(key)) for key in revoked]))
    asked = next((key for key in valid if key.id == st.session_state.get(_ASKED)), None)
    if asked is None:
        st.session_state.pop(_ASKED, None)
        return
    said = (
        f"Every further request with the key **{inert(asked.name)}** is refused. Its runs stay in History. A revoked "
        "key never becomes valid again."
    )
    confirm(_ASKED, "Revoke this key?", said, "Revoke", "key_off", partial(_revoke, asked))


def _revoke(key: ServiceKey) -> None:
    with kept_fault(_FAULT):
        current().store.service_keys.revoke(key.id, local_caller("page"))
        st.session_state[_SAID] = f"{inert(key.name)} is revoked"


def _cells(key: ServiceKey) -> Markup:
    kept = current().store.service_keys
    (usd, tokens), used = kept.spent_today(key.id), kept.last_used(key.id)
    models = "all models" if key.models is None else ", ".join(key.models)
    never = [f"never {', '.join(key.excluded_providers)}"] if key.excluded_providers else []
    often = [] if key.requests_per_minute is None else [f"{key.requests_per_minute:,} a minute"]
    cells = (
        (key.name, key.id),
        (models, " · ".join(often + never)),
        _spent(usd, key.usd_per_day, dollars(usd), "" if key.usd_per_day is None else dollars(key.usd_per_day)),
        _spent(tokens, key.tokens_per_day, f"{tokens:,}", f"{key.tokens_per_day or 0:,}"),
        (f"{key.created_at_utc:%Y-%m-%d}", _by(key)),
        ("never", "") if used is None else (ago(used), moment(used)),
    )
    return html(TEMPLATE, "key", cells=list(zip(_HEADS, cells, strict=True)))


def _spent(spent: float, limit: float | None, words: str, most: str) -> tuple[str, str]:
    if limit is None:
        return words, "no limit"
    share = min(1.0, spent / limit) if limit else float(spent > 0)  # without cost it may go on
    return words, html(TEMPLATE, "spent", words=words, most=most, share=share)


def _by(key: ServiceKey) -> str:
    actor = key.created_by.actor
    return "" if actor is None else f"by {actor.short}"


# A new key.


def creation() -> None:
    """Draws the form, or once in its place the key that it has just made: then the session forgets it."""
    show_fault(_NOT_MADE)
    if (new := st.session_state.get(NEW)) is None:
        _form()
        return
    name, text = new
    with st.container(border=True, key="new-key"):
        st.markdown(f":material/key: The key **{inert(name)}**. Copy it now: it is not shown again.")
        st.code(text, language=None, wrap_lines=True)
        button("Done", "key-copied", type="primary", icon="check")
    del st.session_state[NEW]  # not before it is drawn


def _form() -> None:
    with st.form("new-key-form", enter_to_submit=False, border=False):
        st.text_input("Name", key=NAME, max_chars=80, placeholder="Who or what will use it")
        with st.expander("Limits"):
            one, two, three = st.columns(3, gap="small")
            one.number_input("USD a day", 0.0, value=None, key=_USD, placeholder="no limit", step=1.0, format="%g")
            two.number_input("Tokens a day", 1, value=None, key=_TOKENS, placeholder="no limit", step=1000)
            three.number_input("Requests a minute", 1, value=None, key=_REQUESTS, placeholder="no limit", step=1)
            st.text_input("Models", key=_MODELS, placeholder="all, or names with commas: fugu, fugu-ultra")
            st.text_input(
                "Providers that it never reaches",
                key=_PROVIDERS,
                placeholder="none, or kinds and hosts: openai, api.example.com",
            )
            st.caption("A day is one of UTC. USD count as far as the prices of its runs are known.")
        add = ":material/add:"
        st.form_submit_button("Create the key", on_click=_create, type="primary", icon=add, key="create-key")


def _create() -> None:
    given = st.session_state
    if NEW in given:  # pressed twice; typing.js passes over a press that comes later
        return
    with kept_fault(_NOT_MADE):
        key, text = current().store.service_keys.create(
            str(given.get(NAME) or ""),
            local_caller("page"),
            models=_split(_MODELS) or None,
            excluded_providers=_split(_PROVIDERS),
            usd_per_day=given.get(_USD),
            tokens_per_day=given.get(_TOKENS),
            requests_per_minute=given.get(_REQUESTS),
        )
        given[NEW] = (key.name, text)


def _split(field: str) -> list[str]:
    return [name.strip() for name in str(st.session_state.get(field) or "").split(",") if name.strip()]


# How to use one.

_PYTHON = """\
import os
from openai import OpenAI

client = OpenAI(
    base_url="{address}",
    api_key=os.environ["SERVICE_KEY"],
)
answer = client.chat.completions.create(
    model="fugu",
    messages=[{{"role": "user", "content": "What is 6 x 7?"}}],
)
print(answer.choices[0].message.content)
"""
_CURL = """\
curl {address}/chat/completions \\
  -H "Authorization: Bearer $SERVICE_KEY" \\
  -H "Content-Type: application/json" \\
  -d '{{"model": "fugu",
       "messages": [{{"role": "user", "content": "What is 6 x 7?"}}]}}'
"""


def usage() -> None:
    python, curl = st.tabs(["Python", "curl"])
    address = endpoint(st.context.url)
    python.code(_PYTHON.format(address=address), language="python")
    curl.code(_CURL.format(address=address), language="bash")
