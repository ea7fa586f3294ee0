"""The frame as plain HTML and one style sheet: what is painted before Streamlit runs, and around pages without it.

Its names stand where Streamlit's navigation will stand, so that nothing seems to move when that comes.
"""

import re
from pathlib import Path

import streamlit as st

from pages.components.app import places

NAME = "Conductor Inspector"
STREAMLITS_OWN = Path(st.__file__).parent / "static" / "index.html"
_STYLE = Path(__file__).with_name("shell.css").read_text(encoding="utf-8")
_FONT = re.search(r'static/media/SourceSansVF-Upright[^"]*', STREAMLITS_OWN.read_text(encoding="utf-8"))
_ICONS = next((STREAMLITS_OWN.parent / "static" / "media").glob("MaterialSymbols-Rounded*.woff2"), None)
_GROUPS = (
    (places.RUN, places.HISTORY, places.COMPARE, places.CONTEXT, places.BLAME, places.AUDIT),
    (places.EVALUATE, places.TRAINING),
    (places.WORKERS, places.MODELS),
)
_HEADINGS = ("", "Conductor", "System")


def style(up: str = "") -> str:
    """Returns the style sheet, with Streamlit's own font."""
    source = "" if _FONT is None else f'src: url("{up}{_FONT[0]}");'
    face = f'@font-face {{ font-family: "Source Sans"; {source} font-weight: 200 900; font-display: swap; }}\n'
    if _ICONS is not None:
        face += (
            f'@font-face {{ font-family: "Material Symbols Rounded"; src: url("{up}static/media/{_ICONS.name}"); '
            "font-weight: 100 700; font-display: block; }\n"
        )
    return f"<style>\n{face}{_STYLE}</style>\n"


def frame(up: str, *, links: bool) -> str:
    """Returns the rail. ``up`` leads to the app's root. ``links``: whether its names are links, not only painted."""
    groups = []
    for heading, group in zip(_HEADINGS, _GROUPS, strict=True):
        names = [page.stem.capitalize() for page in group]
        items = [
            f'<li><a href="{up}{page.stem}">{_icon(page)}{name}</a></li>' if links else f"<li><span>{name}</span></li>"
            for page, name in zip(group, names, strict=True)
        ]
        groups.append(f"{f'<p>{heading}</p>' if heading else ''}<ul>{''.join(items)}</ul>")
    name = f'<a href="{up}first">{NAME}</a>' if links else f"<span>{NAME}</span>"
    return f'<nav class="shell-rail"><b>{name}</b>{"".join(groups)}</nav>'


def _icon(page: Path) -> str:
    return "" if _ICONS is None else f'<i translate="no" aria-hidden="true">{places.ICONS[page]}</i>'


def coming() -> str:
    """Returns what lies over the page until Streamlit has painted. It is for the eyes alone."""
    return f'<div class="shell" aria-hidden="true">{frame("", links=False)}<div class="shell-main"></div></div>\n'


def page(title: str, content: str, up: str) -> str:
    """Returns a whole page without a script. ``content`` is HTML, ``title`` plain words of ours."""
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{title} · {NAME}</title><link rel="icon" href="{up}favicon.png">{style(up)}</head>'
        f'<body class="shell-page">{frame(up, links=True)}<main class="shell-said">{content}</main></body></html>'
    )
