r"""Finds the value that a text itself marks as its answer, in any of many languages.

A mark is a box (``\boxed{4}``), ``#### 4``, a labelled line ("Answer: 4"), a tag (``<answer>4</answer>``), JSON's key,
or a last sentence "the answer is 4" with something short. A text that is one short sentence is its own value. Of
several the last in the text counts. Nothing is guessed, for a wrong headline is worse than none: "answer is" in the
middle of prose, an echo of the task, a question or a request, a lead-in, a placeholder, and what is denied, struck out,
quoted or hidden mark nothing.
"""

import json
import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from operator import itemgetter

from conductor_core.analysis.answers import boxed
from conductor_core.analysis.plain_text import plain, sentences

SHORT = 80
"""Characters up to which a text of one sentence is its own value."""
_LONGEST_LABELLED, _LONGEST_STATED = 120, 60
"""Characters of what is marked by a label, and by a sentence."""
_MOST_LABELS = 20
_LONGEST_LINE = 2000
_LONGEST_TASK = 20_000

_ANSWER_WORDS = "|".join(
    (
        r"(?:the )?(?:final |correct |short )?answer",
        r"respuesta(?: final)?|resposta(?: final)?|réponse(?: finale)?|risposta(?: finale)?",
        r"antwort|antwoord|svar|vastaus|odpowied[źz]|cevap|jawaban|đáp án",
        r"ответ|відповідь|απάντηση",
        r"(?:最终|最終)?答案|(?:最終)?(?:答え|解答|回答)|정답|답",
        r"(?:الجواب|الإجابة)(?: النهائية| النهائي)?|پاسخ|(?:ה)?תשובה(?: הסופית| סופית)?|उत्तर|คำตอบ",
    )
)
_RESULT_WORDS = r"(?:the )?(?:final )?result|endergebnis|ergebnis|resultado|résultat|risultato|результат|结果"
_COLON = r"[*_]{0,3}[ \t\u00a0]?[:：=][*_]{0,3}[ \t]{0,6}"
_LABEL = re.compile(
    rf"^[ \t]{{0,8}}(?:#{{1,6}} |[*_]{{1,3}})?(?:(?P<answer>{_ANSWER_WORDS})|(?P<result>{_RESULT_WORDS}))"
    rf"(?:{_COLON}|(?<=\S)[*_]{{0,3}}[ \t]*$)",
    re.IGNORECASE | re.MULTILINE,
)
_INLINE_LABEL = re.compile(
    rf"^(?:[^\w`]{{0,3}}|.{{1,40}} \*\*)(?:{_ANSWER_WORDS}){_COLON}(?P<value>.+)$", re.IGNORECASE
)
_QUESTION = re.compile(
    r"^\W{0,6}(?:q|question|frage|pregunta|pergunta|вопрос|问题|質問)\W{0,3}\d{0,3}\W{0,3}[:：]|[?？]\s*$",
    re.IGNORECASE | re.MULTILINE,
)
_TAG = re.compile(r"<answer>([^<]{1,2000})</answer>", re.IGNORECASE)
_HASHES = re.compile(r"^[ \t]{0,3}#### ?([^\n#]{1,200})$", re.MULTILINE)
_HEADING = re.compile(r"^#{1,6} ", re.MULTILINE)
_NUMBER = re.compile(r"[-+−$€£¥]{0,2}\d[\d.,/:  ]*%?")

_LEAD = (
    r"(?:\d{1,2}[.)] )?(?:(?:so|thus|therefore|hence|finally|consequently|in conclusion|and|por (?:lo )?tanto|entonces"
    r"|portanto|donc|ainsi|quindi|dunque|daher|somit|also|dus|итак|таким образом|因此|所以|したがって|따라서),? ?)?"
)
_PHRASES = "|".join(
    (
        r"(?:the|our|my) (?:(?:final|correct|right) )?answer"
        r"(?: (?:to|for) (?:(?! (?:and|can|could|may|might|that|which) )[^.:?!]){1,80}?| here)?"
        r" (?:is|was|would be|must be|should be)(?: (?:therefore|thus|then))?",
        r"la respuesta (?:final |correcta )?es|a resposta (?:final |correta )?é|la réponse (?:finale |correcte )?est",
        r"la risposta (?:finale |corretta )?è|die (?:richtige )?antwort (?:lautet|ist)|het antwoord is",
        r"(?:最终|正确)?答案(?:是|为|為)|答えは|정답은|답은",
        r"(?:الجواب|الإجابة)(?: النهائية)? (?:هو|هي)|התשובה(?: הסופית)? היא",
    )
)
_STATES = re.compile(rf"^{_LEAD}(?:{_PHRASES})[*_]{{0,3}} ?[:：]? ?(?P<value>.+)$", re.IGNORECASE)
_STATES_LATER = re.compile(
    r"(?:[,;:.!][*_]{0,2}|\b(?:so|thus|hence|therefore|which means)),?(?: (?:and|so|thus|hence|therefore|that))?"
    r" (?:the (?:final |correct )?answer is|answer:) (?P<value>[^,;]+?)[.!]?$",
    re.IGNORECASE,
)
_UNSURE = re.compile(
    r"^(?:if|when|unless|assuming|suppose|supposing|were)\b|\b(?:doubts?|unsure|not sure|unlikely)\b", re.IGNORECASE
)
_REASON = re.compile(r",? (?:because|since|given that|weil|porque|parce que) .*$", re.IGNORECASE | re.DOTALL)
_SAYS_NOTHING = re.compile(
    r"(?:not|no longer|as|the following|below|above|given|shown|unknown|unclear|undefined|that|based|still|in|on|to|at"
    r"|by|from|for|with|here|there|always|never|often|usually|actually|indeed|probably|correct|incorrect|right|wrong|clear"
    r"|complete|which|what|how|why|whether|when|if|very|more|most|too|so|also|only|just)\b|[不没未根正错]",
    re.IGNORECASE,
)
_ONE_WORD = re.compile(
    r"(?:yes|no|true|false|none|both|neither|nothing|nobody|(?:option |choice )?[a-z]"
    r"|oui|non|sí|sim|ja|nein|да|нет|是|否)",
    re.IGNORECASE,
)
_EMPHASIS = re.compile(r"\W{0,2}(?:\*\*|__|[`\"'“‘«$]|\\\()")
_PLACEHOLDER = re.compile(
    r"\W*|[\[<{].*[\]>}]"
    r"|\W*(?:(?:your|the|final|insert|short) ){0,3}(?:answer|result|value|number|letter|text)\W*",
    re.IGNORECASE,
)
_NO_OTHER_SAYS = re.compile(r" (?:which|until|unless) ")
_ASKS = re.compile(
    r"^(?:(?:ok|okay|sure|well|great|certainly|of course|so|first|next|then)[,.!]? )?"
    r"(?:let me|let['’]s|let us|(?:i|we)(?:['’]ll| will|['’]m going to| am going to|['’]re going to| are going to)"
    r"|now,|here(?: is| are|['’]s)) |\b(?:please|por favor|bitte|s'il vous plaît|пожалуйста)\b|请提供|ください",
    re.IGNORECASE,
)
# Code in a line, comments, what is folded away, and what is struck out.
_HIDDEN = re.compile(
    r"(?P<code>(?P<ticks>(?<!`)`{1,3})[^`\n]{1,400}(?P=ticks)(?!`))"
    r"|<!--(?:.*?-->|.*)|<details\b.*?(?:</details>|\Z)"
    r"|~~[^~\n]{1,400}~~|<(?P<struck>s|del|strike)>[^<]{1,400}</(?P=struck)>",
    re.IGNORECASE | re.DOTALL,
)
_QUOTED = re.compile(r"^ {0,3}>.*$", re.MULTILINE)
_ITEM = re.compile(r"\s{0,12}(?:[-*+]|\d{1,3}[.)])\s")
_DENIED = re.compile(
    r"(?:\b(?:not|never|(?:is|was)n['’]t|can(?:not|['’]t) be)(?: equal)?(?: to)?|≠| !=|\\neq?|\\not ?=)"
    r"[\s$({\\\[:*]{0,6}$",
    re.IGNORECASE,
)
_IS_WRONG = re.compile(
    r"[\s$)\\\]*]{0,6}(?:(?:is|was) (?:not|wrong|incorrect|false)\b|(?:isn|wasn)['’]t\b)", re.IGNORECASE
)
_JOINED = re.compile(r"[\s$]{0,3}?(, ?(?:or|and)?| or| and)[\s$]{0,3}(?:[A-Za-z] ?= ?)?")
_OPTION = re.compile(r"[(\[]?[A-Ha-h][).:\]]")


Mark = tuple[int, str]
"""Where in a text a mark is, and what it marks."""


def said_itself(text: str) -> str:
    """Returns ``text`` without what it quotes, hides or strikes out. It keeps its lines."""
    return _QUOTED.sub("", _indented_left_out(_HIDDEN.sub(_kept, text)))


def marked(prose: str) -> Mark | None:
    """Returns the last of what boxes, tags, hashes and labels mark; None: there is no such mark."""
    found = (_boxes(prose), _tags(prose), _hashes(prose), _labels(prose))
    return max((mark for mark in found if mark is not None), key=itemgetter(0), default=None)


def in_json(texts: Sequence[str]) -> str | None:
    """Returns the answer in a JSON object, by its usual names."""
    for text in texts:
        if not text.lstrip().startswith("{"):
            continue
        try:
            found = json.loads(text, parse_int=str, parse_float=str, parse_constant=str)
        except (ValueError, RecursionError):
            continue
        for name in ("final_answer", "answer", "result"):
            value = found.get(name)
            value = json.dumps(value) if isinstance(value, bool) else value
            if isinstance(value, str) and 0 < len(value.strip()) <= _LONGEST_LABELLED:
                return value
    return None


def stated(prose: str, task: str) -> Mark | None:
    """Returns X if the last sentence says "the answer is X", or labels X, and X is short; None: it does not."""
    line = prose.rstrip().rpartition("\n")[2][-_LONGEST_LINE:].strip()
    said = _last_sentence(line)
    found = _STATES.match(said)
    if found is None and not _LABEL.match(line):
        found = _INLINE_LABEL.match(said)
    later = None if found else _STATES_LATER.search(said)
    if later is not None and _UNSURE.search(said[: later.start()]):
        return None
    match = found or later
    if match is None or (_echoes(said, task) and not re.search(r"\d", match["value"])):
        return None
    value = _REASON.sub("", match["value"]).strip()
    good = _is_short(value) and (found or _NUMBER.match(plain(value)))
    return (prose.rfind(match["value"]), value) if good else None


def alone(body: str, task: str) -> str | None:
    """Returns ``body`` if it is one short sentence that says something of its own; None otherwise."""
    if "\n" in body or len(body) > SHORT or body.endswith((":", "：", "?", "？", "…", "...")):
        return None
    if len(list(sentences(body))) != 1 or _STATES.match(body.lstrip("\"'“")):
        return None
    if _PLACEHOLDER.fullmatch(body) or _ASKS.search(body):
        return None
    return None if _echoes(body, task) else re.sub(r"^#{1,6} +", "", body)


def first_sentence(marked_text: str) -> str:
    """Returns a marked value alone, in a line and without an end mark."""
    line = plain(marked_text[:_LONGEST_LINE], line=False)
    said = next(sentences(line), "")
    said = line if re.fullmatch(r"\S+[^\s.!?]|\d", line[len(said) :].strip()) else said
    return said.rstrip(".。।;,").strip() or said


def _usable(value: str) -> bool:
    said = value.strip()
    return bool(said) and not _PLACEHOLDER.fullmatch(said) and not said.rstrip("*_ ").endswith((":", "：", "?", "？"))


def _kept(hidden: re.Match[str]) -> str:
    """Returns the line feeds of what is hidden; all of a piece of code that has no mark in it."""
    code = hidden["code"]
    return code if code and not re.search(r"\\f?(?:box|framebox)|<answer", code) else "\n" * hidden[0].count("\n")


def _indented_left_out(text: str) -> str:
    """Returns ``text`` without its blocks of indented code. Below the item of a list, indented lines belong to it."""
    lines, code, blank, listed = text.split("\n"), False, True, False
    for number, line in enumerate(lines):
        indented = line.startswith(("    ", "\t"))
        if line.strip():
            code = indented and not listed and (code or blank)
            listed = bool(_ITEM.match(line)) or (listed and (indented or not blank))
            lines[number] = "" if code else line
        blank = not line.strip()
    return "\n".join(lines)


def _boxes(prose: str) -> Mark | None:
    """Returns what is in the last box, together with the boxes that an "or", "and" or comma joins to it."""
    found: Mark | None = None
    joined_from = 0
    for start, content in reversed(boxed(prose)):
        end = prose.index("{", start) + len(content) + 2
        if found is not None:
            joined = _JOINED.fullmatch(prose[end:joined_from][:20])
            if joined is None:
                break
            found = found[0], f"{content}\\text{{{joined[1]} }}{found[1]}"
        elif _usable(content) and not _DENIED.search(prose[max(0, start - 40) : start]):
            found = None if _IS_WRONG.match(prose[end : end + 40]) else (start, content)
        joined_from = start
    return found


def _tags(prose: str) -> Mark | None:
    return next(((tag.start(), tag[1]) for tag in reversed(list(_TAG.finditer(prose))) if _usable(tag[1])), None)


def _hashes(prose: str) -> Mark | None:
    """Returns what follows the last ``####``: a number on any line, else what ends a text without headings."""
    lines = list(_HASHES.finditer(prose))
    for line in reversed(lines):
        if _NUMBER.fullmatch(line[1].strip()):
            return line.start(), line[1]
    if len(lines) == 1 and len(_HEADING.findall(prose)) == 1 and lines[0].end() == len(prose.rstrip()):
        return (lines[0].start(), lines[0][1]) if _usable(lines[0][1]) else None
    return None


def _labels(prose: str) -> Mark | None:
    """Returns what the last labelled line says. The labels of a list of questions mark no answer of the text."""
    labels = list(_LABEL.finditer(prose))[-_MOST_LABELS:]
    if len(labels) > 1 and _QUESTION.search(prose):
        return None
    for label in reversed(labels):
        value = _labelled(prose, label.end())
        if not _usable(value) or len(first_sentence(value)) > _LONGEST_LABELLED:
            continue
        if label["answer"] or re.search(r"\d", value):
            return label.start(), value
    return None


def _labelled(prose: str, end: int) -> str:
    """Returns what a label marks: the rest of its line, else a line of its own below it."""
    rest, _, below = prose[end : end + 2 * _LONGEST_LINE].partition("\n")
    if rest.strip(" *_"):
        return rest
    paragraph = below.lstrip("\n").partition("\n\n")[0].strip()
    return "" if "\n" in paragraph or re.match(r"[-*•#>|] |\d{1,2}[.)] ", paragraph) else paragraph


def _last_sentence(line: str) -> str:
    said = [*sentences(line), ""][-2] if line else ""
    return said.strip() if said.count("**") in (2, 4) else said.strip("*_ ")


def _is_short(value: str) -> bool:
    """Whether ``value`` is a value and not the beginning of an explanation."""
    said = first_sentence(value)
    if not _usable(value) or len(said) > _LONGEST_STATED or _SAYS_NOTHING.match(said) or _NO_OTHER_SAYS.search(said):
        return False
    words = said.split()
    if re.search(r"\d", said) or _EMPHASIS.match(value):
        return len(words) <= 10
    return len(words) <= 5 and (not said[0].islower() or bool(_ONE_WORD.fullmatch(said)))


def _echoes(said: str, task: str) -> bool:
    """Whether ``said`` repeats the task: three words or more that are all in it, or four in five, in its order."""
    if _OPTION.match(said):
        return False
    task = task[:_LONGEST_TASK]
    if not re.search("[A-Za-zА-я]", said):
        return len(said) >= 8 and said.strip("。. ") in task
    ours, theirs = _words(said), _words(task)
    run = SequenceMatcher(None, ours, theirs, autojunk=False).find_longest_match().size
    return run >= (3 if run == len(ours) else 4) and run >= 0.8 * len(ours)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


def opening(body: str, most: int) -> str:
    """Returns how ``body`` begins, in a line of at most ``most`` characters."""
    said = " ".join(filter(None, _plain_lines(body, most)))
    return said if len(said) <= most else f"{said[: most - 1].rstrip()}…"


def _plain_lines(body: str, most: int) -> Iterator[str]:
    read = 0
    for line in body.split("\n"):
        if read > most:
            return
        if not line.strip().startswith(("```", "~~~")):
            yield plain(line[: 4 * most])
            read += len(line)
