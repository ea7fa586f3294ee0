"""The files of the pages, for links between them. A page's address is its file's name."""

from pathlib import Path

PAGES = Path(__file__).resolve().parents[2]
FRAME = Path(__file__).with_name("frame.py")  # the script around every page

RUN = PAGES / "run.py"
HISTORY = PAGES / "history.py"
COMPARE = PAGES / "compare.py"
WORKERS = PAGES / "workers.py"
MODELS = PAGES / "models.py"
TRAINING = PAGES / "training.py"
EVALUATE = PAGES / "evaluate.py"
CONTEXT = PAGES / "context.py"
BLAME = PAGES / "blame.py"
AUDIT = PAGES / "audit.py"

FIRST = "first"
"""In the address of the Run page: its first screen, also after the first run. And the address that leads there."""

ICONS = {
    RUN: "play_circle",
    HISTORY: "history",
    COMPARE: "compare_arrows",
    CONTEXT: "account_tree",
    BLAME: "troubleshoot",
    AUDIT: "manage_search",
    WORKERS: "groups",
    MODELS: "neurology",
    EVALUATE: "leaderboard",
    TRAINING: "school",
}
"""By page, the name of its icon among Material's symbols."""

ALL = (RUN, HISTORY, COMPARE, CONTEXT, BLAME, AUDIT, WORKERS, MODELS, TRAINING, EVALUATE)
