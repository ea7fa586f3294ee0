"""Joins the component's modules into one script, for a page that can fetch nothing.

Our modules use a few plain forms of import and export, and this module knows no others: it refuses what it does not
know. A bundler would bring its own toolchain for two dozen files.
"""

import re
from collections.abc import Mapping
from pathlib import Path

ASSETS = Path(__file__).parent / "assets"

_IMPORT = re.compile(r'^import\s+(?:\{(?P<names>[^}]*)\}|(?P<default>\w+))\s+from\s+"\./(?P<file>[\w./-]+)"\n', re.M)
_EXPORTED = re.compile(r"^export (?=(?:async )?function (\w+)|class (\w+)|const (\w+))", re.M)
_LIST = re.compile(r"export\s*\{([^{}]*)\};?\s*$")
_LEFT = re.compile(r"^(?:import|export)\b|\bimport\.meta\b|\bimport\(", re.M)
_COMMENT = re.compile(r"^\s*//.*\n", re.M)

_INDENT = re.compile(r"^[ ]+|^\n", re.M)


def bundle(entry: str, replaced: Mapping[str, str]) -> str:
    """Returns one script that runs the module ``entry`` of the assets.

    Args:
        replaced: the names of modules, each with the one that stands in its place.

    Raises: ValueError for a form of import or export that it does not know, and for modules that import each other.
    """
    done: dict[str, str] = {}
    parts: list[str] = []

    def add(name: str, above: tuple[str, ...]) -> str:
        name = replaced.get(name, name)
        if name in above:
            raise ValueError(f"modules import each other: {' -> '.join((*above, name))}")
        if name not in done:
            source, names = _source(name)
            imports = "".join(
                f"const {_bound(found)} = {add(found['file'], (*above, name))};\n" for found in _IMPORT.finditer(source)
            )
            done[name] = f"$module{len(done)}"
            parts.append(
                f"const {done[name]} = (() => {{\n{imports}{_IMPORT.sub('', source)}\nreturn {{ {names} }};\n}})();"
            )
        return done[name]

    add(entry, ())
    # No text of the script may end its element.
    return "\n".join(parts).replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _source(name: str) -> tuple[str, str]:
    """Returns a module's source without its exports, and their names as the inside of an object."""
    source = (ASSETS / name).read_text(encoding="utf-8")
    names = [next(filter(None, found.groups())) for found in _EXPORTED.finditer(source)]
    if not name.startswith("vendor/"):
        # No module has a text over several lines, which would lose its indentation.
        source = _INDENT.sub("", _COMMENT.sub("", source))
    source = _EXPORTED.sub("", source)
    if listed := _LIST.search(source):
        source = source[: listed.start()]
        for each in filter(None, (part.strip() for part in listed[1].split(","))):
            inner, _, outer = each.partition(" as ")
            names.append(f"{outer or inner}: {inner}")
    if left := _LEFT.search(_IMPORT.sub("", source)) if not name.startswith("vendor/") else None:
        line = source[left.start() :].splitlines()[0]
        raise ValueError(f"{name}: this form cannot be joined: {line}")
    return source, ", ".join(names)


def _bound(found: re.Match[str]) -> str:
    if found["default"]:
        return f"{{ default: {found['default']} }}"
    names = (part.strip() for part in found["names"].split(","))
    return "{ " + ", ".join(name.replace(" as ", ": ") for name in names if name) + " }"
