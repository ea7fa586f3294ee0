"""Grades answers that are text: a letter of a multiple choice that the prose settles on, or the reference's words."""

import re
from collections.abc import Sequence
from string import ascii_uppercase

from conductor_core.analysis.answers import bold, boxed, last_line, last_paragraph, stated, tail
from conductor_core.analysis.conclusion import normal
from conductor_core.errors import BadInput
from conductor_core.grading.tasks import Graded, Task

# Repetitions are possessive (``*+``). Otherwise a failing match would try every way to split a run between two of them.
_OPEN = r"(?:[*_`$\s\"'“‘]|\\text(?:bf)?\{|\\mathrm\{|\\mathbf\{|\\boxed\{|\\\(|\\\[|\{)*+"
_NOUN = r"(?:(?:the|an?)\s++)?(?:(?:correct|right|best|final)\s++)?(?:option|choice|letter|answer|statement)?\s*+:?\s*+"
_LETTER = r"(?:[(\[]{1,2}\s?(?P<bracketed>[A-Za-z])\s?[)\]]{1,2}|(?P<bare>[A-Z])(?![A-Za-z0-9'’-]))"
_SECOND = re.compile(
    r"[)\].*_`$}\s]*+(?:,|/|;|&|\bor\b|\band\b|\beither\b)[*_`$\s]*+"
    r"(?:(?:option|choice|answer|maybe|perhaps|possibly)\s++)*+[*_`$]*+(?:[(\[]\s?([A-Z])\s?[)\]]|([A-Z])(?![A-Za-z0-9'’-]))"
)
_STATED = re.compile(
    rf"(?<![\w-])(?:answer|choice|option|statement|conclusion)\b[\"'”]?"
    rf"(?:\s+(?:choice|option|letter|here|to\s+this\s+question))?{_OPEN}"
    rf"(?:is|was|would\s+be|must\s+be|should\s+be|=|:|：|→|->|>)(?P<not>\s+(?:not|never)\b)?{_OPEN}"
    rf"(?:(?:clearly|therefore|thus|either|still|indeed)\s++)?:?{_OPEN}{_NOUN}{_OPEN}{_LETTER}",
    re.IGNORECASE,
)
_CHOSEN = re.compile(
    r"(?i:choose|chose|select|pick|go\s+with|going\s+with|settle\s+on|opt\s+for)\s++"
    rf"{_OPEN}(?i:{_NOUN}){_OPEN}{_LETTER}"
)
_CALLED_RIGHT = re.compile(
    rf"(?<![\w'’]){_LETTER}[)\]*_`$}}\s]*\s(?i:is|seems|must\s+be|would\s+be)\s+"
    r"(?i:(?:the|clearly|therefore|thus|most\s+likely)\s+)*(?i:correct|right|true|best|answer)\b"
)
_CONCLUDED = re.compile(
    rf"(?<!\w)(?i:hence|thus|therefore|must\s+be|has\s+to\s+be)[,:]?\s++{_OPEN}{_LETTER}(?=[)\]*_`$}}]*(?:[.,;:]|\s+\w|\s*$))"
)
_BOLD = re.compile(
    r"\*\*\s*+(?:(?i:option|choice|answer)\s*+:?\s*+)?[(\[]?(?P<bare>[A-Z])[)\]]?(?:[.:)][^*\n]{0,300})?\s*\*\*"
)
_LINE = re.compile(
    r"^[ \t]*(?:[-*•>]\s++)?(?:(?i:option|choice|answer)\s*+:?\s*+)?[*_`$]*+[(\[]?(?P<bare>[A-Z])"
    r"(?:[)\]]?[*_`$]*+[.)]?[*_`$]*+$|[)\].:][*_`]*\s+\S.{0,300}$)",
    re.MULTILINE,
)
_LONE = re.compile(
    r"^(?:(?i:option|choice|answer)\s*+:?\s*+)?[*_`$]*+[(\[]{0,2}(?P<bare>[A-Z])[)\]]{0,2}[*_`$]*+[.)]?[*_`$]*+$"
)
_BRACKETED = re.compile(r"(?<!\w)\((?P<bare>[A-Z])\)(?!\w)")
_AFTER_ARTICLE = re.compile(
    r"\s+(?!because|since|as\b|for\b|and\b|or\b|with\b|which|by\b|due|given|in\b|here|is\b)[a-z]"
)


def grade_choice(task: Task, text: str) -> Graded:
    """Grades an answer as right if the text settles on the reference's letter.

    ``extra["choices"]`` has the texts of the letters, from A on. A text that settles on two letters or on none is
    wrong. Raises: BadInput as ``lettered_choices`` does.
    """
    given = find_choice(text, lettered_choices(task))
    if len(given) == 1:
        right = given == task.reference
        return Graded(
            float(right), f"The choice is {given}." if right else f"The choice is {given}, not {task.reference}."
        )
    if given:
        return Graded(0.0, f"The answer leaves it between {' and '.join(given)}.")
    return Graded(0.0, "The answer settles on no choice.")


def lettered_choices(task: Task) -> list[str]:
    """Returns the texts of the letters. Raises: BadInput if they are not 2 to 26, or the reference is not a letter."""
    choices = task.extra.get("choices", ())
    if not isinstance(choices, Sequence) or isinstance(choices, str) or not 2 <= len(choices) <= len(ascii_uppercase):
        raise BadInput(f"task {task.task_id}: choices must be a list of 2 to 26 texts")
    letters = ascii_uppercase[: len(choices)]
    if task.reference not in letters or len(task.reference) != 1:
        raise BadInput(f"task {task.task_id}: the reference {task.reference!r} is not a letter from A to {letters[-1]}")
    return [str(choice) for choice in choices]


def find_choice(text: str, choices: Sequence[str]) -> str:
    """Returns the letter that ``text`` settles on; several letters if it is undecided, "" if it names none.

    The ranks, highest first: what is boxed or called the answer; an option that is chosen or called right; a letter in
    bold; a line that is one letter or begins with one; letters in brackets; the words of one choice. In a rank the last
    letter counts. Lines and brackets may only list the choices, so they count if they agree.
    """
    text = tail(text)
    letters = ascii_uppercase[: len(choices)]
    chosen = [mark for pattern in (_CHOSEN, _CALLED_RIGHT, _CONCLUDED) for mark in _marks(pattern, text, letters)]
    for rank in (_stated(text, letters), chosen, _marks(_BOLD, text, letters)):
        if rank:
            return max(rank)[1]
    final = _marks(_LONE, last_line(text), letters)
    if final:
        return final[-1][1]
    for pattern in (_LINE, _BRACKETED):
        named = sorted({letter for _, several in _marks(pattern, text, letters) for letter in several})
        if named:
            return "".join(named)
    return _by_words(text, choices, letters)


def _stated(text: str, letters: str) -> list[tuple[int, str]]:
    found = []
    for place, content in boxed(text):
        inside = re.sub(r"\\(?:text|textbf|mathrm|mathbf)\s*\{([^{}]*)\}", r"\1", content).strip(" ().[]*$")
        named = re.match(r"([A-Za-z])(?=[).:,\s]|$)", inside)
        if named and named[1].upper() in letters:
            # A box often follows "the answer is". As the later place, it wins, and it is the more exact reading.
            found.append((place, _with_second(named[1].upper(), inside, 1, letters)))
    return found + _marks(_STATED, text, letters)


def _marks(pattern: re.Pattern[str], text: str, letters: str) -> list[tuple[int, str]]:
    found = []
    for match in pattern.finditer(text):
        groups = match.groupdict()
        letter = next(value for key, value in groups.items() if key != "not" and value)
        if groups.get("not") or letter.upper() not in letters:
            continue
        bare = groups.get("bare") == letter
        if bare and pattern in (_STATED, _CHOSEN, _CONCLUDED) and not _is_letter(letter, text, match.end()):
            continue
        found.append((match.start(), _with_second(letter.upper(), text, match.end(), letters)))
    return found


def _is_letter(letter: str, text: str, end: int) -> bool:
    """Says whether a bare letter after "the answer is" names a choice, and is not an article or another word."""
    if letter.islower():
        return text[end : end + 1] in ("", ".", ")", "\n") or letter not in "ai"
    return letter not in "AI" or _AFTER_ARTICLE.match(text, end) is None


def _with_second(letter: str, text: str, place: int, letters: str) -> str:
    """Returns the letter with all letters that follow it at ``place`` after "or", "and" or a comma."""
    named = [letter]
    for _ in letters:
        match = _SECOND.match(text, place)
        if match is None:
            break
        other = match[1] or match[2]
        if other not in letters or (match[2] == "A" and _AFTER_ARTICLE.match(text, match.end())):
            break
        named.append(other)
        place = match.end()
    return "".join(sorted(set(named)))


def _by_words(text: str, choices: Sequence[str], letters: str) -> str:
    """Returns letters of choices that are the last line, else of those in it that are not part of another one there."""
    line = normal(last_line(text))
    words = [normal(choice) for choice in choices]
    equal = [letter for letter, choice in zip(letters, words, strict=True) if choice and choice == line]
    if equal:
        return "".join(equal)
    inside = [
        (letter, choice)
        for letter, choice in zip(letters, words, strict=True)
        if len(choice) > 1 and re.search(rf"(?<!\w){re.escape(choice)}(?!\w)", line)
    ]
    return "".join(
        letter for letter, choice in inside if not any(choice != other and choice in other for _, other in inside)
    )


# The reference's words.


def grade_exact(task: Task, text: str) -> Graded:
    """Grades an answer as right if it, or the whole text, is the reference or one of ``extra["accept"]``.

    The comparison ignores case (unless ``extra["case_sensitive"]``), white space, quotation marks, emphasis and the end
    mark. Raises: BadInput as ``require_words`` does.
    """
    require_words(task)
    fold = not task.extra.get("case_sensitive", False)
    accepted = {normal(form, fold=fold) for form in (task.reference, *task.extra.get("accept", ()))}
    text = tail(text)
    candidates = [mark for _, mark in reversed(stated(text))][:1]
    if not candidates:
        candidates = [mark for _, mark in reversed(bold(last_paragraph(text)))][:1]
        candidates.append(last_line(text))
    candidates.append(text)
    if any(normal(candidate, fold=fold) in accepted for candidate in candidates):
        return Graded(1.0, f"The answer given is {task.reference!r}.")
    return Graded(0.0, f"The answer given is {_short(candidates[0])!r}, not {_short(task.reference)!r}.")


def require_words(task: Task) -> None:
    """Raises: BadInput if there is no reference, or ``extra["accept"]`` is not a list of texts."""
    if not task.reference.strip():
        raise BadInput(f"task {task.task_id}: the reference is empty")
    accept = task.extra.get("accept", ())
    if not isinstance(accept, Sequence) or isinstance(accept, str) or not all(isinstance(form, str) for form in accept):
        raise BadInput(f"task {task.task_id}: accept must be a list of texts")


def _short(text: str) -> str:
    text = re.sub(r"\s+", " ", text).strip()
    return text if len(text) <= 60 else text[:57] + "..."
