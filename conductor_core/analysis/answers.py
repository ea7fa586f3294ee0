r"""Finds the final answer in a model's prose: ``\boxed{}``, ``####``, "the answer is", bold words; and refusals.

``refuses`` tells by words, in many languages, whether a text says at its beginning that its writer cannot answer.
"""

import re
from dataclasses import dataclass

LONGEST_TEXT = 100_000
"""Characters that are read, from the end: what a model concludes comes last."""

_MOST_MARKS = 50
"""Statements of an answer that are looked at, from the end: no text makes a grader work for minutes."""
_LONGEST_MARK = 1000

_PHRASE = re.compile(
    r"(?<![\w-])(?:final\s+answer|answer)\b(?:\s+(?:choice|option|letter))?[*_`]*\s*"
    r"(?:(?:is|was|are|would\s+be|must\s+be|should\s+be|=|:)[*_`]*\s*){1,2}(?:therefore|thus|then)?\s*:?\s*",
    re.IGNORECASE,
)
_HASHES = re.compile(r"^[^\S\n]*+####[ \t]*(?P<answer>[^\n]+)$", re.MULTILINE)
_BOLD = re.compile(r"\*\*(?P<answer>[^*\n]{1,300})\*\*")
_BOXED = re.compile(r"\\(?:boxed|framebox|fbox)\s*(?=\{)")
_FENCE = re.compile(r"^[ \t]{0,12}(?P<ticks>`{3,}+|~{3,}+)[ \t]*+(?P<language>[^\n`]*+)$", re.MULTILINE)


def tail(text: str) -> str:
    return text[-LONGEST_TEXT:]


def boxed(text: str) -> list[tuple[int, str]]:
    r"""The contents of every ``\boxed{...}`` with the place where it starts; braces inside are followed."""
    found = []
    for match in list(_BOXED.finditer(text))[-_MOST_MARKS:]:
        content = _braced(text, match.end())
        if content is not None:
            found.append((match.start(), content))
    return found


def stated(text: str) -> list[tuple[int, str]]:
    """Returns what the text calls its answer, in order of place: boxed, after ``####``, or after "answer is"."""
    marks = boxed(text)
    hashes = list(_HASHES.finditer(text))[-_MOST_MARKS:]
    marks += [(match.start(), match["answer"][:_LONGEST_MARK]) for match in hashes]
    return sorted(marks + introduced(text))


def introduced(text: str) -> list[tuple[int, str]]:
    """Returns the line after each "answer is", with the place where these words are."""
    marks = []
    for match in list(_PHRASE.finditer(text))[-_MOST_MARKS:]:
        rest = text[match.end() : match.end() + _LONGEST_MARK].lstrip("\n ")
        line = rest.split("\n", 1)[0].strip()
        # An opened box or formula may run over several lines.
        if line.startswith(("\\[", "$$")):
            line = " ".join(rest.split("\n")[:4])
        if line:
            marks.append((match.start(), line))
    return marks


def bold(text: str) -> list[tuple[int, str]]:
    return [(match.start(), match["answer"]) for match in list(_BOLD.finditer(text))[-_MOST_MARKS:]]


@dataclass(frozen=True)
class Block:
    """A fenced block. ``closed`` is False for one whose end is missing: an answer that was cut.

    ``first`` and ``end``: the lines of the text that it takes with its fences, from 0, ``end`` not being one of them.
    """

    language: str
    code: str
    closed: bool
    first: int
    end: int


def fenced_blocks(text: str) -> list[Block]:
    """Returns the blocks of a Markdown text in order, without the indentation of their fence."""
    blocks: list[Block] = []
    fence, language, indent, first, lines = "", "", 0, 0, list[str]()
    every = text.split("\n")
    for number, line in enumerate(every):
        line = line.removesuffix("\r")
        mark = _FENCE.match(line)
        if not fence:
            if mark is not None:
                fence, language, first, lines = mark["ticks"], mark["language"].strip().lower(), number, []
                indent = len(line) - len(line.lstrip())
        elif mark is not None and mark["ticks"].startswith(fence) and not mark["language"].strip():
            blocks.append(Block(language, "\n".join(lines), True, first, number + 1))
            fence = ""
        else:
            lines.append(line[indent:] if not line[:indent].strip() else line)
    if fence:
        blocks.append(Block(language, "\n".join(lines), False, first, len(every)))
    return blocks


def open_fence(text: str) -> str:
    """Returns the fence of the block that is open at the end of ``text``; "": there is none."""
    fence = ""
    for mark in _FENCE.finditer(text):
        if not fence:
            fence = mark["ticks"]
        elif mark["ticks"].startswith(fence) and not mark["language"].strip():
            fence = ""
    return fence


def last_paragraph(text: str) -> str:
    return re.split(r"\n\s*\n", text.strip())[-1]


def last_line(text: str) -> str:
    return text.strip().rsplit("\n", 1)[-1].strip()


def _braced(text: str, start: int) -> str | None:
    depth = 0
    for place in range(start, min(len(text), start + 2000)):
        character = text[place]
        if character in "{}" and text[place - 1] != "\\":
            depth += 1 if character == "{" else -1
            if depth == 0:
                return text[start + 1 : place]
    return None


_READ = 600
"""Characters in which a refusal shows itself; what comes later is about something else."""

_VERBS = (
    r"(?:answer|help|assist|comply|fulfil\w*|provide|offer|give|do (?:this|that|so)|complete|solve|determine|respond"
    r"|discuss|engage|create|generate|write|produce|share|support|process|access|browse|tell|know|say|plan|compute"
    r"|check|weigh|word|put|verify|combine|continue|proceed|make(?! it\b))\b"
)
_UNABLE = r"(?:can(?:no|['’])t|can not|(?:am|['’]m) (?:unable|not able|not allowed)(?: to)?|won['’]t|will not)"
_ENGLISH = (
    rf"\bI {_UNABLE} (?:\w+ ){{0,2}}?{_VERBS}",
    rf"\bI['’]m (?:unable|not able|not allowed) to (?:\w+ ){{0,2}}?{_VERBS}",
    r"\bI (?:must|have to) (?:decline|refuse)\b",
    r"\bI (?:do not|don['’]t) know (?:the answer|this)\b",
    r"\bI (?:do not|don['’]t) have (?:access|enough|the (?:information|ability)|any information)\b",
)
_ELSEWHERE = (
    # Spanish, Portuguese, French, Italian
    r"\bno (?:puedo|me es posible)\b|\bn[ãa]o (?:posso|consigo)\b",
    r"\bje ne (?:peux|suis pas en mesure)\b|\bnon (?:posso|sono in grado)\b",
    # German, Dutch, Polish, Turkish
    r"\bich kann\b[^.!?\n]{0,60}\bnicht\b|\bik kan\b[^.!?\n]{0,60}\bniet\b",
    r"\bnie mog[ęe]\b|\b(?:cevaplayam|yanıtlayam|yardımcı olam)\w+",
    # Russian, Ukrainian
    r"\bя не (?:могу|знаю|можу)\b|\bне могу (?:ответить|помочь)\b",
    # Chinese, Japanese, Korean
    r"(?:我|抱歉|对不起|對不起)[^。！？\n]{0,12}(?:无法|無法|不能|不知道)",
    r"(?:お答え|回答|対応|お手伝い)(?:は)?(?:でき|いたしかね)|(?:답변|도와드릴|대답)[^.!?\n]{0,12}수 없",
    # Arabic, Persian, Hebrew, Hindi
    r"لا (?:أستطيع|يمكنني|أعرف)|نمی[\u200c ]?توانم",
    r"(?:אני לא|אינני|איני) (?:יכול|יודע|מסוגל)",
    r"मैं[^।\n]{0,60}नहीं (?:कर|दे|बता) सक",
)
_REHEARSED = (
    r"\bsimulated worker\b[^\n]{0,120}\bI cannot\b",
    r"\bThis is a simulation\b[^\n]{0,120}\bcannot\b",
    r"^There is nothing to (?:verify|combine)\b",
)
"""How the workers of the rehearsal pool say it; a test holds their words to this."""
_BY_REHEARSAL = re.compile("|".join(_REHEARSED))
_BY_ANYONE = re.compile("|".join((*_ENGLISH, *_ELSEWHERE, *_REHEARSED)), re.IGNORECASE)


def refuses(sentence: str, *, simulated_only: bool = False) -> bool:
    """Whether ``sentence``, one of a text's first, says that its writer cannot or will not answer.

    ``simulated_only``: counts only the words of the rehearsal pool, which mean nothing else.
    """
    return bool((_BY_REHEARSAL if simulated_only else _BY_ANYONE).search(sentence[:_READ]))
