"""Documentation that cannot drift: links lead somewhere, commands exist, tables are as generated."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.settings_table import table

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\]\((?!https?://|#)([^)#\s]+)")
FENCED = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(bin/|`|^)conductor ([a-z]+)", re.MULTILINE)


def test_the_settings_page_is_as_generated() -> None:
    assert (ROOT / "docs" / "settings.md").read_text(encoding="utf-8") == table()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file(page: Path) -> None:
    missing = [link for link in LINK.findall(page.read_text(encoding="utf-8")) if not (page.parent / link).exists()]
    assert missing == []


def prose(text: str) -> list[str]:
    """The lines of a Markdown text without code blocks, table rows, headings and pictures."""
    return [line for line in FENCED.sub("", text).splitlines() if not line.startswith(("|", "#", "!["))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_of_prose_are_at_most_120_characters(page: Path) -> None:
    assert [line for line in prose(page.read_text(encoding="utf-8")) if len(line) > 120] == []


def test_every_command_of_the_readme_exists() -> None:
    pages = [ROOT / "README.md", ROOT / "docs" / "command-line.md"]
    named = {command for page in pages for _, command in COMMAND.findall(page.read_text(encoding="utf-8"))}
    offered = subprocess.run(
        [sys.executable, "-m", "conductor_core", "--help"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    assert named
    assert {command for command in named if not re.search(rf"^\s+{command}\b", offered, re.MULTILINE)} == set()


def test_every_make_target_of_the_readme_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"`make (\w+)`", (ROOT / "README.md").read_text(encoding="utf-8")))
    assert named >= {"run", "test", "check"}
    assert {target for target in named if not re.search(rf"^{target}:", makefile, re.MULTILINE)} == set()


def test_the_clauses_name_tests_that_exist_and_claim_no_more() -> None:
    text = (ROOT / "docs" / "audit.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text)
    assert len(named) > 20
    missing = [
        (file, test)
        for file, test in named
        if not (ROOT / file).is_file() or f"def {test}" not in (ROOT / file).read_text(encoding="utf-8")
    ]
    assert missing == []
    assert re.findall(r"(?i)immutable|tamper-?proof|compliant with|guarantee", text) == []


def test_every_decision_has_its_three_parts() -> None:
    for note in (ROOT / "docs" / "decisions").glob("*.md"):
        text = note.read_text(encoding="utf-8")
        assert all(part in text for part in ("**Goal", "**Design", "**Acceptance")), note.name
