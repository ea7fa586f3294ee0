"""Tells by words, in many languages, whether a text says at its beginning that its writer cannot answer."""

import re

_READ = 600
"""Characters in which a refusal shows itself; what comes later is about something else."""

_VERBS = (
    r"(?:answer|help|assist|comply|fulfil\w*|provide|offer|give|do (?:this|that|so)|complete|solve|determine|respond"
    r"|discuss|engage|create|generate|write|produce|share|support|process|access|browse|tell|know|say|plan|compute"
    r"|check|weigh|word|put|verify|combine|continue|proceed|make)\b"
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
