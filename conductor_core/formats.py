"""Durations, amounts, counts and statuses as terminal and pages write them.

The live component writes them too (``format.js``, ``status.js``); tests compare both.
"""

from decimal import ROUND_HALF_UP, Decimal

UNKNOWN = "–"


def seconds(duration_ms: float | None) -> str:
    """Writes a duration: ``4.2 s``, ``3 min 05 s``, ``2 h 10 min``; a dash if it is unknown."""
    if duration_ms is None:
        return UNKNOWN
    if duration_ms < 59_950:
        return f"{_rounded(duration_ms / 1000, 1)} s"
    total_s = int(duration_ms / 1000 + 0.5)
    if total_s < 3600:
        return f"{total_s // 60} min {total_s % 60:02} s"
    return f"{total_s // 3600} h {total_s % 3600 // 60:02} min"


def dollars(usd: float) -> str:
    """Writes an amount; never ``$0`` for one above zero."""
    if usd == 0:
        return "$0"
    if usd < 0.000001:
        return "<$0.000001"
    if usd < 1:
        return f"${_rounded(usd, 6 if usd < 0.01 else 4)}"
    # Intl.NumberFormat rounds the shortest decimal of a number, toFixed its exact value.
    return f"${Decimal(repr(usd)).quantize(Decimal('0.01'), ROUND_HALF_UP):,}"


def plural(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _rounded(value: float, digits: int) -> Decimal:
    """Rounds as JavaScript's ``toFixed`` does: halves go up, Python's ``round`` takes them to the even digit."""
    return Decimal(value).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)


# By status: glyph and word.
RUN_STATUSES = {
    "queued": ("◌", "queued"),
    "running": ("◔", "running"),
    "waiting": ("‖", "waits"),
    "planned": ("◇", "planned"),
    "completed": ("✓", "completed"),
    "refused": ("⊗", "refused"),
    "filtered": ("▽", "filtered"),
    "cut": ("◐", "cut off"),
    "empty": ("∅", "empty"),
    "failed": ("✕", "failed"),
    "denied": ("⊖", "denied"),
    "cancelled": ("■", "cancelled"),
    "interrupted": ("⚡", "interrupted"),
    "damaged": ("⚠", "damaged"),
    "too_new": ("⇡", "too new"),
    "key_away": ("▣", "key away"),
    "erased": ("▒", "erased"),
}
STEP_STATUSES = {
    "waiting": ("○", "waiting"),
    "running": ("◔", "running"),
    "completed": ("✓", "done"),
    "refused": ("⊗", "refused"),
    "filtered": ("▽", "filtered"),
    "cut": ("◐", "cut off"),
    "empty": ("∅", "empty"),
    "reused": ("↺", "reused"),
    "written": ("✎", "by a person"),
    "failed": ("✕", "failed"),
    "denied": ("⊖", "denied"),
    "skipped": ("⊘", "skipped"),
    "cancelled": ("■", "cancelled"),
    "tool_results": ("⚒", "waits for tools"),
    "calls_tools": ("⚒", "calls tools"),
}
"""A step that waits for its client's tools, or calls those of its pool, has the status ``running``
(``StepTrace.shown_status``)."""
TOOL_OUTCOMES = {
    "returned": ("✓", "returned"),
    "error": ("✕", "failed"),
    "unreachable": ("⊘", "not reached, nothing was sent"),
    "timed_out": ("◷", "timed out"),
    "broke_off": ("⚡", "broke off"),
    "changed": ("⇄", "tool changed, nothing was sent"),
    "unoffered": ("∄", "no such tool, nothing was sent"),
    "denied": ("⊖", "denied, nothing was sent"),
    "unknown": ("⚠", "outcome unknown, not repeated"),
}
"""By ``ToolOutcome``: what became of a call of a tool server."""
EFFECTS = {True: ("◆", "has effects"), False: ("◇", "no effects")}
"""Whether a tool changes something."""


APIS = {"chat": "Chat Completions", "responses": "Responses", "messages": "Messages"}
"""By ``ClientRequest.api``, what the API is called."""


def run_word(status: str) -> str:
    return RUN_STATUSES[status][1]


def step_word(status: str) -> str:
    return STEP_STATUSES[status][1]


def tool_outcome(outcome: str) -> str:
    """Writes ``✓ returned``."""
    return " ".join(TOOL_OUTCOMES[outcome])


def effects_word(effects: bool) -> str:
    return EFFECTS[effects][1]


def size_in_bytes(size: int) -> str:
    """Writes a size: ``512 bytes``, ``32.0 kB``, ``1.2 MB``."""
    if size < 1_000:
        return plural(size, "byte")
    return f"{_rounded(size / 1_000, 1)} kB" if size < 999_950 else f"{_rounded(size / 1_000_000, 1)} MB"
