"""The name and the glyph of each status. A test compares them with the live component's ``status.js``."""

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
}


def run_status(status: str) -> str:
    """Returns ``✓ completed``."""
    return " ".join(RUN_STATUSES[status])


def step_status(status: str) -> str:
    """Returns ``↺ reused``."""
    return " ".join(STEP_STATUSES[status])
