"""The published profile is the one in use."""

from pathlib import Path

from tests.rehearsal_page import page

ROOT = Path(__file__).resolve().parents[3]


def test_the_page_is_as_generated() -> None:
    assert (ROOT / "docs" / "research" / "rehearsal.md").read_text(encoding="utf-8") == page()
