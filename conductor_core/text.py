"""Texts from elsewhere: the escapes that a plan's text may have (JSON's, Python's), and characters that are not plain.

Such characters are joined where they arrive in pieces, and written out where they would be obeyed.
"""

import re
import sys
from array import array
from functools import lru_cache

_ESCAPE = re.compile(
    r"\\(?:(?P<pair>u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|x(?P<x>[0-9a-fA-F]{2})|u(?P<u>[0-9a-fA-F]{4})|U(?P<U>[0-9a-fA-F]{8})"
    r"|(?P<sign>[\"'\\/abfnrtv]))"
)
_SIGNS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_JSON = re.compile(r'\\(?:[nrtbf"\\/]|u[0-9a-fA-F]{4})')


REASONING_TAGS = {
    "<think>": "</think>",  # DeepSeek, Qwen and most others
    "<thinking>": "</thinking>",
    "<think_intent>": "</think_intent>",
    "<thought>": "</thought>",
    "<reasoning>": "</reasoning>",
    "<reasoning_scratchpad>": "</reasoning_scratchpad>",  # Hermes
    "<seed:think>": "</seed:think>",  # Seed-OSS
    "<mm:think>": "</mm:think>",  # MiniMax
    "[THINK]": "[/THINK]",  # Mistral
    "◁think▷": "◁/think▷",  # Kimi
    "<|start_thinking|>": "<|end_thinking|>",  # Cohere
    "<|begin_of_thought|>": "<|end_of_thought|>",  # OpenThinker
    "<|channel>": "<channel|>",  # Gemma 4
    "<|channel>thought": "<channel|>",
}
"""What encloses reasoning in a text. Models write those in angle brackets in any case."""
HARMONY_FINAL = r"<\|channel\|>final[^<]{0,40}(?:<\|constrain\|>[^<]{0,20})?<\|message\|>"
"""A pattern of where the answer begins in harmony, the format of gpt-oss, whose reasoning may be several messages.

Source: https://cookbook.openai.com/articles/openai-harmony
"""
BARE_FINAL = "assistantfinal"
"""What is left of it where a server drops special tokens: the reasoning is between this and ``analysis``."""


def without_escapes(text: str) -> str:
    """Returns a JSON text without its escapes, for a search by letters and digits."""
    return _JSON.sub("", text) if "\\" in text else text


@lru_cache(maxsize=1)  # each pattern asks for the same text
def unescaped(text: str) -> tuple[str, "array[int] | None"]:
    """Returns the plain text, and where in ``text`` each of its characters begins.

    The end of ``text`` is the last of the places. They are None if ``text`` has no escapes.
    """
    parts: list[str] = []
    begins = array("Q")
    at = 0
    for found in _ESCAPE.finditer(text):
        parts += [text[at : found.start()], _character(found)]
        begins.extend(range(at, found.start()))
        begins.extend([found.start()] * len(parts[-1]))
        at = found.end()
    if not parts:
        return text, None
    begins.extend(range(at, len(text) + 1))
    return "".join([*parts, text[at:]]), begins


def _character(found: re.Match[str]) -> str:
    """Returns what an escape stands for. JSON writes a character above U+FFFF as two escapes."""
    if (pair := found["pair"]) is not None:
        return bytes.fromhex(pair[1:5] + pair[7:]).decode("utf-16-be")
    if (sign := found["sign"]) is not None:
        return _SIGNS.get(sign, sign)
    number = int(found["x"] or found["u"] or found["U"], 16)
    return chr(number) if number <= sys.maxunicode else "\N{REPLACEMENT CHARACTER}"


_HIGH = range(0xD800, 0xDC00)
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but tab and line feed, marks that reorder text, and halves of characters."""
_FROM_THE_RIGHT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e900-\U0001e95f]")


class Pieces:
    """Joins the halves of a character that a server split between two events, as JSON's escapes allow.

    A lone half cannot be stored and becomes U+FFFD.
    """

    def __init__(self) -> None:
        self._half = ""

    def feed(self, text: str) -> str:
        text = self._half + text
        self._half = ""
        if text and ord(text[-1]) in _HIGH:
            text, self._half = text[:-1], text[-1]
        return whole_characters(text)


def whole_characters(text: str) -> str:
    """Joins surrogate pairs in ``text`` and replaces lone surrogates, so that it can be encoded."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def plain(text: str) -> str:
    r"""Writes out every character that a terminal or a page would obey, as in ``\x1b``; lines and tabs stay."""
    return _UNSAFE.sub(_written_out, text.replace("\r\n", "\n"))


def isolated(name: str) -> str:
    """Returns ``plain(name)`` to be put into a line: one that is written from the right turns nothing around it."""
    name = plain(name)
    return f"\u2068{name}\u2069" if _FROM_THE_RIGHT.search(name) else name


def _written_out(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
