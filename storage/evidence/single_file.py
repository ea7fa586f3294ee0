"""Joins the modules of the verifier into one file, in the order in which they need each other."""

import hashlib
import re
from pathlib import Path

from conductor_core import __version__

MODULES = (
    "merkle.formats",
    *(f"evidence.{name}" for name in ("rotation", "history", "alignment", "database_audit", "archive")),
    *(f"evidence.{name}" for name in ("bundle_files", "bundle_audit", "event_record", "verifier")),
)
_OWN_IMPORT = re.compile(r"^from storage\.(?:evidence|merkle)\.\w+ import (?:\([^)]*\)|[^(\n]*)\n", re.MULTILINE)
_IMPORT = re.compile(r"^(?:from [\w.]+ import (?:\([^)]*\)|[^(\n]*)|import [^\n]*)\n", re.MULTILINE)
_HEAD = '''#!/usr/bin/env python3
"""Checks a database or an exported bundle of Conductor Inspector. It needs Python 3.11 and cryptography, nothing else.

    python verify.py DATABASE|BUNDLE --public-key KEY --anchor FILE [--record]

Version {version}, joined from the modules {modules} of storage.
"""

'''


def source() -> str:
    """Returns the text of the one file."""
    imports: dict[str, None] = {}
    bodies = []
    for name in MODULES:
        text = _OWN_IMPORT.sub(
            "", (Path(__file__).parents[1] / f"{name.replace('.', '/')}.py").read_text(encoding="utf-8")
        )
        imports |= dict.fromkeys(each.rstrip("\n") for each in _IMPORT.findall(text))
        doc, body = re.match(r'"""(.*?)"""\n', text, re.DOTALL), _IMPORT.sub("", text)
        if doc is not None:
            said = "\n".join(f"# {line}".rstrip() for line in doc[1].strip().split("\n"))
            body = f"# --- {name}\n{said}\n{body[doc.end() :]}"
        bodies.append(body.strip("\n"))
    ordered = sorted(imports, key=lambda line: (line.startswith("from"), line))
    return (
        _HEAD.format(version=__version__, modules=", ".join(MODULES))
        + "\n".join(ordered)
        + "\n\n\n"
        + "\n\n\n".join(bodies)
        + "\n"
    )


def digest(source: str) -> str:
    """Returns the SHA-256 of the file with this text."""
    return hashlib.sha256(source.encode()).hexdigest()
