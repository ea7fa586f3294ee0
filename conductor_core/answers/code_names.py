"""Finds the name of a piece of code: the function, class or type that it defines, in common languages."""

import re
from collections.abc import Iterator, Sequence

_READ = 20_000
"""Characters of a piece that are looked at."""
_LONGEST_SIGNATURE = 120
_WITH_PARAMETERS = r" *(?P<rest>\([^\n]{0,200})?"
_DEFINES = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        # Python
        rf"^(?:async +)?def +(?P<name>\w+){_WITH_PARAMETERS}",
        # JavaScript and TypeScript
        rf"^[ \t]{{0,8}}(?:export +)?(?:default +)?(?:async +)?function\*? +(?P<name>\w+){_WITH_PARAMETERS}",
        r"^(?:export +)?(?:const|let|var) +(?P<name>\w+) *= *(?:async *)?(?P<rest>\([^()\n]{0,200}\))(?= *=>)",
        # Rust
        r"^[ \t]{0,8}(?:pub(?:\(\w+\))? +)?(?:const +|async +)?fn +(?P<name>\w+)(?:<[^>\n]{0,80}>)?" + _WITH_PARAMETERS,
        # Go
        rf"^func +(?:\([^)\n]{{0,60}}\) *)?(?P<name>\w+)(?:\[[^\]\n]{{0,80}}\])?{_WITH_PARAMETERS}",
        # C, C++, Java, C#
        r"^(?:(?:public|private|static|inline|constexpr|unsigned) +){0,3}[\w:<>\[\],*&]{2,40}[ *&]+(?P<name>\w+)"
        r"(?P<rest>\([^;{}\n]{0,200}\))(?= *\{?[ \t]*$)",
        # Types of any of them
        r"^(?:(?:export|public|final|abstract|pub|data) +){0,3}(?:class|struct|interface|trait|enum|record) +"
        r"(?P<name>\w+)(?P<rest>)",
    )
)
_BEGINS = re.compile(
    r"\s{0,20}(?:from [\w.]+ import|import [\w{*\"']|(?:async )?def \w|class \w+[:({ ]|(?:async )?function\*? \w+\("
    r"|#include ?[<\"]|package \w+;?\n|(?:pub )?fn \w+[(<]|func \w+\(|func \(|@\w+\n|#!/)"
)
_COMMENT = re.compile(r"\s*(?://|#|--|/\*|\*|;;|%|<!--|[{}()\[\]]+\s*$)")
_HELPER = re.compile(r"main$|_?test|check$|_")


def begins_as_code(text: str) -> bool:
    """Whether a text without fences is code: it has several lines and begins like a file of code."""
    return "\n" in text.strip() and _BEGINS.match(text) is not None


def defines_something(code: str) -> bool:
    return next(_definitions(code[:_READ]), None) is not None


def defined_name(pieces: Sequence[str], task: str) -> str:
    """Returns the last definition: what ``task`` names, else one that is no helper and no test if possible.

    The last one usually calls the others. It has its parameters if they are on its line. If nothing is defined, returns
    the first line that is no comment.
    """
    for piece in reversed(pieces):
        found = list(_definitions(piece[:_READ]))
        if not found:
            continue
        asked = [each for each in found if re.search(rf"\b{re.escape(each[0])}\b", task)]
        usual = [each for each in found if not _HELPER.match(each[0])]
        name, parameters = (asked or usual or found)[-1]
        return f"{name}{parameters}"
    lines = [line for line in "\n".join(pieces)[:_READ].split("\n") if line.strip()]
    return next((line for line in lines if not _COMMENT.match(line)), lines[0] if lines else "").strip()


def _definitions(code: str) -> Iterator[tuple[str, str]]:
    """Returns names with parameters, in order of place."""
    found: dict[int, tuple[str, str]] = {}
    for pattern in _DEFINES:
        for match in pattern.finditer(code):
            found.setdefault(match.start(), (match["name"], _parameters(match["rest"] or "")))
    for place in sorted(found):
        yield found[place]


def _parameters(rest: str) -> str:
    """Returns the parameters in brackets at the start of ``rest``; three dots for those on further lines."""
    depth = 0
    for place, character in enumerate(rest):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0:
            whole = rest[: place + 1]
            return whole if len(whole) <= _LONGEST_SIGNATURE else "(…)"
    return "(…)" if rest else ""
