"""What the page asks of Streamlit itself."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[4]


def test_a_sessions_scripts_run_one_after_another() -> None:
    """Two at once share the address's parameters, and the page then shows another run than its address (0183)."""
    config = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text("utf-8"))
    assert config["runner"]["fastReruns"] is False
