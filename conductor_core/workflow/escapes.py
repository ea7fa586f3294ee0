"""Escape sequences in string literals: reading them as Python and JSON do, writing them so that both can read them."""

import re

LATEX = re.compile(
    r"\\(?:[abfv](?=[A-Za-z])|t(?=imes|heta|ext|frac|riangle|an\b|au\b|o\b)|r(?=ight|ho\b|angle)|n(?=eq\b|abla\b))"
)
"""A backslash and letter that Python reads as a control character, but which begin a LaTeX command (``\\frac``)."""

_ESCAPE = re.compile(
    r"\\(?:u(?P<high>[dD][89abAB][0-9a-fA-F]{2})\\u(?P<low>[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|(?P<hex>x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"
    r"|(?P<octal>[0-7]{1,3})"
    r"|(?P<line>\r\n|\r|\n)"
    r"|(?P<char>.))",
    re.DOTALL,
)
_SIMPLE = {
    "n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "\\": "\\", "'": "'", '"': '"',
}  # fmt: skip
_COMMAND = re.compile(r"\\[A-Za-z]{1,30}")
_LINE_END = re.compile(r"\r\n?")
_DANGLING = re.compile(r"(?<!\\)(?:\\\\)*(\\(?:u[0-9a-fA-F]{0,3}|x[0-9a-fA-F]?|U[0-9a-fA-F]{0,7})?)\Z")
_MUST_ESCAPE = re.compile('[\x00-\x1f"\\\\\x7f-\x9f\u2028\u2029]')


def decode(body: str, *, raw: bool = False, json: bool = False, latex: bool = False) -> tuple[str, tuple[str, ...]]:
    """The text that the inside of a string literal stands for, and the LaTeX commands kept as written.

    Unknown escapes keep their backslash, as in Python. Line ends become ``\\n``. A half character becomes U+FFFD.

    Args:
        raw: escapes mean nothing (``r"..."``).
        json: ``\\/`` is a slash, and a backslash before a line end is kept.
        latex: a control character that would begin a LaTeX command is kept as written.
    """
    kept: list[str] = []

    def replace(match: re.Match[str]) -> str:
        if latex and LATEX.match(body, match.start()):
            command = _COMMAND.match(body, match.start())
            kept.append(command.group() if command else match.group())
            return match.group()
        return _character(match, json=json)

    if "\r" in body:
        body = _LINE_END.sub("\n", body)
    if raw or "\\" not in body:
        return body, ()
    return _ESCAPE.sub(replace, body), tuple(kept)


def _character(match: re.Match[str], *, json: bool) -> str:
    if match["high"]:
        return chr(0x10000 + ((int(match["high"], 16) - 0xD800) << 10) + int(match["low"], 16) - 0xDC00)
    if match["hex"] or match["octal"]:
        code = int(match["hex"][1:], 16) if match["hex"] else int(match["octal"], 8)
        if code > 0x10FFFF:
            return match.group()
        return "\ufffd" if 0xD800 <= code <= 0xDFFF else chr(code)
    if match["line"]:
        return match.group() if json else ""
    char = match["char"]
    return "/" if json and char == "/" else _SIMPLE.get(char, "\\" + char)


def without_dangling_escape(body: str) -> str:
    """The inside of a string that is still being written, without an escape of which only the beginning is there."""
    match = _DANGLING.search(body, max(0, len(body) - 64))
    return body[: match.start(1)] if match else body


def quote(text: str) -> str:
    """A double-quoted literal of one line that Python, JSON and this package's reader all read as ``text``.

    Control characters are written as ``\\uXXXX``, so that none is mistaken for LaTeX; only line ends are ``\\n``.
    """

    def escape(match: re.Match[str]) -> str:
        char = match.group()
        if char in '"\\':
            return "\\" + char
        if char == "\n" and not LATEX.match("\\n" + text[match.end() : match.end() + 8]):
            return "\\n"
        return f"\\u{ord(char):04x}"

    return f'"{_MUST_ESCAPE.sub(escape, text)}"'
