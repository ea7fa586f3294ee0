"""Reads which role an instruction asks for from its own words, without the question."""

import re
from operator import itemgetter

from conductor_core.rehearsal.profiles import Role

_OUTPUT = (
    r"(?:answer|solution|attempt|result|opinion|output|candidate|response|proposal|draft|finding|case|side|derivation)"
)
_OUTPUTS = rf"{_OUTPUT}s?"
_MADE = rf"(?:{_OUTPUTS}|calculation|working|proof|code|function|text|item|choice|translation|figure|step)s?"
"""What an earlier step may have made."""

_PHRASES: dict[Role, tuple[str, ...]] = {
    "plan": (
        r"(?:make|write|draft|devise|give|set|propose|produce|create|sketch) (?:\w+ ){0,3}"
        r"(?:plan|subtasks|outline|approach)\b",
        r"plan\b", r"outline\b", r"break\b", r"decompose", r"strategy\b",
        r"list (?:the|what) (?:steps|stages|parts|facts)", r"divide\b", r"split\b", r"lay out\b",
        r"name the (?:main idea|steps|stages|parts)", r"say (?:how|in which order)",
    ),
    "code": (
        r"implement\b", r"write (?:\w+ ){0,4}(?:function|code|program|script)\b", r"code (?:it|the|a)\b",
        r"program (?:it|the)\b",
    ),
    "aggregate": (
        rf"(?:compare|weigh|judge)\b[^.:]{{0,40}}\b(?:{_OUTPUT}s|both|two|all)\b",
        rf"(?:take|collect|consider) (?:the|all|these|both|every) (?:\w+ )?{_OUTPUTS}\b",
        rf"(?:read|examine|test|look at) (?:both|all|the (?:two|three|four)) {_OUTPUTS}\b", r"combine\b", r"merge\b",
        r"aggregate", r"majority\b", r"reconcile", r"vote\b", r"synthesi[sz]e", r"consolidate",
        rf"(?:choose|pick|select|decide)\b[^.:]{{0,30}}\b(?:best|which|between|among|right {_OUTPUTS})\b", r"debate\b",
        r"settle\b", r"put (?:it|them|the parts|the results) together",
    ),
    "verify": (
        r"verif", r"(?:double-|re-?)?check", r"validat", r"review\b", r"confirm", r"(?:recompute|recalculate|redo)",
        r"audit\b", r"criti(?:que|cise)", r"referee\b", r"refute\b", r"test (?:the|it|this|each|every)\b", r"inspect\b",
        r"(?:go over|go through|examine|trace|try|correct|repair|read|compare|improve|edit|revise) the "
        rf"(?:\w+ )?{_MADE}\b",
        r"(?:find|look for|list) (?:\w+ ){0,3}(?:mistake|error|fault|gap|flaw|wrong step)", r"find where\b",
        r"fix what\b", r"see (?:whether|if|that)\b", r"say what (?:may be|is) wrong",
    ),
    "compute": (r"comput", r"calculat", r"evaluate\b", r"do the (?:arithmetic|sums|numbers)"),
    "format": (r"format", r"rewrite\b", r"as json\b", r"put\b[^.:]{0,30}\binto (?:\w+ ){0,2}form"),
    "write": (
        r"write\b", r"state\b", r"present\b", r"summari[sz]e", r"report\b", r"phrase\b", r"(?:the|a) final answer",
        r"explain\b", r"word\b",
    ),
    "solve": (
        r"solve", r"answer (?:this|the|it|to|from|in|now|only|as)\b", r"find\b", r"determine",
        r"work (?:it |this |them )?(?:out|on|through|with)\b", r"reason\b", r"derive", r"(?:make an )?attempt\b",
        r"look up\b", r"identify", r"read off\b", r"choose the right option",
        r"(?:keep|hold) (?:strictly )?to the form", r"prove the claim",
    ),
}  # fmt: skip
# The first of equals at one place: "write a plan" is a plan, "compare the answers" is no check.
_ORDER: tuple[Role, ...] = ("plan", "code", "aggregate", "verify", "solve", "compute", "format", "write")
_ROLES = tuple((role, re.compile(rf"\b(?:{'|'.join(_PHRASES[role])})", re.IGNORECASE)) for role in _ORDER)
# "Using the plan above, compute ..." asks for a computation, not for a plan.
_MENTIONS = re.compile(
    r"\b(?:follow(?:ing)?|us(?:e|ing)|per|by|from|with|given|carry(?:ing)? out|execut(?:e|ing)|apply(?:ing)?|along"
    r"|against|in|on|of|to)\s+(?:(?:the|this|that|your|a|its|earlier)\s+)?(?:\w+\s+)?"
    r"(?:plan|outline|approach|strategy)\b",
    re.IGNORECASE,
)
_NOT_YET = re.compile(
    r"\b(?:(?:do not|don't) (?:solve|compute|calculate|answer|write|code)\b[^.;:]{0,20}\byet"
    r"|without (?:solving|computing|calculating|answering))\b",
    re.IGNORECASE,
)
_LONGEST_READ = 4000


def read_role(own_words: str) -> Role:
    """Returns the role that an instruction, without the question, asks for first; ``solve`` if it names none.

    An instruction not to do something yet asks for a plan.
    """
    text = _MENTIONS.sub(" ", own_words[:_LONGEST_READ])
    if _NOT_YET.search(text):
        return "plan"
    found = [(match.start(), role) for role, pattern in _ROLES if (match := pattern.search(text)) is not None]
    # Of equal starts ``min`` takes the first, which is the order of ``_ORDER``.
    return min(found, key=itemgetter(0))[1] if found else "solve"
