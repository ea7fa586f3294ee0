"""What a status is called and its glyph, the same as in the live component's ``status.js``: a test compares them."""

RUN_STATUSES = {
    "running": ("◔", "running"),
    "planned": ("◇", "planned"),
    "completed": ("✓", "completed"),
    "refused": ("⊗", "refused"),
    "filtered": ("▽", "filtered"),
    "cut": ("◐", "cut off"),
    "empty": ("∅", "empty"),
    "failed": ("✕", "failed"),
    "cancelled": ("■", "cancelled"),
    "interrupted": ("⚡", "interrupted"),
    "damaged": ("⚠", "damaged"),
    "too_new": ("⇡", "too new"),
}
"""By status of a run: glyph and word."""

STEP_STATUSES = {
    "waiting": ("○", "waiting"),
    "running": ("◔", "running"),
    "completed": ("✓", "done"),
    "refused": ("⊗", "refused"),
    "filtered": ("▽", "filtered"),
    "cut": ("◐", "cut off"),
    "empty": ("∅", "empty"),
    "reused": ("↺", "reused"),
    "failed": ("✕", "failed"),
    "skipped": ("⊘", "skipped"),
    "cancelled": ("■", "cancelled"),
}
"""By status of a step: glyph and word."""


def run_status(status: str) -> str:
    """``✓ completed``."""
    return " ".join(RUN_STATUSES[status])


def step_status(status: str) -> str:
    """``↺ reused``."""
    return " ".join(STEP_STATUSES[status])
