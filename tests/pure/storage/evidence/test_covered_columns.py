"""What ``verify`` compares with what, table by table and column by column.

docs/audit.md lists the columns of which not every change is a finding.
"""

import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from benchmarks.changed_cells import Pristine, change_cell, check, pristine

AUDIT = Path(__file__).parents[4] / "docs" / "audit.md"
HEADING = "### What `verify` compares"


class Covered(NamedTuple):
    """Columns of a table, and what they are compared with. ``found``: whether every change of one is a finding."""

    table: str
    columns: str
    by: str
    found: bool = True


ROW = "the events of the run; of an erased run the digest in its record"
COVERED = (
    Covered("events", "sequence run_id kind at_utc payload", "the leaf of the event, and so the anchor"),
    Covered("events", "position", "the place of that leaf"),
    Covered("leaves", "position run_id hash record", "the anchor; what is not published yet, with events and records"),
    Covered("evidence_log", "origin", "the public key"),
    Covered("evidence_log", "covered_from", "the record `log.began`"),
    Covered("checkpoints", "size note", "their signatures"),
    Covered("checkpoints", "peaks", "the checkpoint that is signed"),
    Covered("checkpoints", "at_utc", "its type alone; no event says when a checkpoint was published", found=False),
    Covered(
        "runs",
        "run_id sequence created_at_utc status task door conductor pool parent_run_id simulated plan_only topology "
        "agents steps steps_completed steps_reused steps_failed input_tokens output_tokens cost_usd duration_ms error "
        "batch_id batch_row known_usd cost_estimated actor purpose asked_for imported imported_answers recorded "
        "batch_name batch_size conversation_id about_run_id",
        ROW,
    ),
    Covered(
        "runs",
        "owner_id",
        "the state of the run; empty unless it goes on",
        found=False,
    ),
    Covered(
        "runs",
        "vocabulary",
        "its type alone; it says whether a run that cannot be read is of a newer program",
        found=False,
    ),
    Covered("snapshots", "run_id sequence trace events_sha256 sha256", "the events of the run, folded again"),
    Covered("snapshots", "fold_digest", "the digest of the snapshot; one of another version is of no use to readers"),
    Covered(
        "deletions", "run_id deleted_at_utc door created_at_utc status events events_sha256 actor erased", "records"
    ),
    Covered("deletions", "id", "the order of the records, and the last number given", found=False),
    Covered("holds", "run_id held at_utc door actor", "records"),
    Covered("holds", "id", "the order of the records, and the last number given", found=False),
    Covered(
        "service_keys",
        "id name created_at_utc actor door models excluded_providers usd_per_day tokens_per_day requests_per_minute "
        "digest revoked_at_utc",
        "records, which have a digest of the row",
    ),
    Covered("deleted_responses", "response_id run_id at_utc actor door", "records, which have a digest of the row"),
    Covered(
        "judgements",
        "id run_id path mark score note judged_by judge source_run_id compared_with at_utc actor door salt",
        "records, which have a digest of the row",
    ),
    Covered("commands", "id run_id kind at_utc payload", "the proof of the machine that sent it, and its record"),
    Covered("contents", "sha256 data", "each other, and the images that events name"),
    Covered(
        "contents",
        "media_type",
        "the images that events name; what no run names, with the types there are",
        found=False,
    ),
    Covered("contents", "created_at_utc", "its type alone; it says when an image goes that no run names", found=False),
    Covered("run_contents", "run_id sha256", "the images that the events of the run name"),
    Covered("search_runs", "run run_id fault", "the events of the run"),
    Covered("search_runs", "indexed_to", "where the run came to rest"),
    Covered("search_texts", "run dense text", "the events of the run"),
    Covered("search_texts", "id", "the order of the texts in the run, and their places", found=False),
    Covered("search_places", "text_id run field event path agent detail", "the events of the run"),
    Covered("search_places", "id", "the order of the places in the run", found=False),
    Covered(
        "search_calls",
        "run event at_utc purpose path agent provider host simulated how ended messages images input_tokens "
        "output_tokens cost_usd",
        "the events of the run",
    ),
    Covered("search_calls", "id", "the order of the calls in the run", found=False),
    Covered("search_facets", "kind value run times", "the events of the run"),
    Covered("search_failures", "run event kind code path agent served said", "the events of the run"),
    Covered("search_failures", "id", "the order of the failures in the run", found=False),
    Covered("search_state", "reached", "the newest event, and the runs that are in the index", found=False),
    Covered("search_state", "id residue", "their types alone; no answer is made of them", found=False),
    Covered("sqlite_sequence", "name seq", "the newest event, and the last row of each table", found=False),
    Covered("alembic_version", "version_num", "the versions that there are, and the schema of that one"),
    Covered("search_words", "*", "the words of `search_texts`, and what a search for each finds", found=False),
    Covered("search_signs", "*", "the words of `search_texts`, and what a search for each finds", found=False),
)


def listed() -> str:
    """Returns the list of the docs: columns of which not every change is found, by what they are compared with."""
    columns: dict[str, list[str]] = {}
    for each in COVERED:
        if not each.found:
            columns.setdefault(each.by, []).extend(f"`{each.table}.{name}`" for name in each.columns.split())
    return "\n".join(f"- {', '.join(names)}: {by}" for by, names in columns.items())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Pristine:
    return pristine(tmp_path_factory.mktemp("made") / "kept")


def test_every_column_of_the_schema_is_in_the_list_once(whole: Pristine) -> None:
    with closing(sqlite3.connect(whole.path)) as connection:
        tables = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'search_words%'"
        )
        names = [name for (name,) in tables if not name.startswith("search_signs")]
        there = [(table, row[1]) for table in names for row in connection.execute(f"PRAGMA table_info({table})")]
    in_list = [(each.table, name) for each in COVERED for name in each.columns.split() if name != "*"]
    assert sorted(in_list) == sorted(there)


def test_the_docs_have_this_list() -> None:
    text = AUDIT.read_text(encoding="utf-8")
    assert text.count(HEADING) == 1
    assert listed() in text.partition(HEADING)[2].partition("\n## ")[0]


@pytest.mark.parametrize(
    "covered", [each for each in COVERED if each.found], ids=lambda each: f"{each.table} {each.by}"
)
def test_a_change_of_a_column_that_is_compared_is_found(whole: Pristine, tmp_path: Path, covered: Covered) -> None:
    rng = random.Random(1)
    for column in covered.columns.split():
        for kind in ("step", "other"):
            shutil.rmtree(tmp_path / "copy", ignore_errors=True)
            shutil.copytree(whole.path.parent, tmp_path / "copy")
            path = tmp_path / "copy" / whole.path.name
            if (what := change_cell(path, covered.table, column, kind, rng)) is not None:
                assert check(path).findings, what
