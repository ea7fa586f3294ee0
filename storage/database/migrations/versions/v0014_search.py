"""The search index: texts of runs with their places, calls, facets, and two full-text tables over the texts."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

# Words in lower case without accents; and every three signs, for scripts that put no space between words. The text
# itself is in search_texts alone. Nothing is ranked, so no lengths are kept.
FULL_TEXT = {"search_words": "unicode61 remove_diacritics 2", "search_signs": "trigram"}
TABLES = ("search_runs", "search_texts", "search_places", "search_calls", "search_facets", "search_state")


def _text(name: str, *, primary_key: bool = False, unique: bool = False) -> "sa.Column[str]":
    return sa.Column(name, sa.Text, nullable=False, primary_key=primary_key, unique=unique or None)


def _whole(name: str, *, primary_key: bool = False) -> "sa.Column[int]":
    return sa.Column(name, sa.Integer, nullable=False, primary_key=primary_key)


def upgrade() -> None:
    op.create_table(
        "search_runs",
        _whole("run", primary_key=True),
        _text("run_id", unique=True),
        _whole("indexed_to"),
        _text("fault"),
    )
    op.create_table(
        "search_texts",
        _whole("id", primary_key=True),
        _whole("run"),
        sa.Column("dense", sa.Boolean, nullable=False),
        _text("text"),
    )
    op.create_index("ix_search_texts_run", "search_texts", ["run"])
    op.create_index("ix_search_texts_dense", "search_texts", ["id"], sqlite_where=sa.text("dense"))
    op.create_table(
        "search_places",
        _whole("id", primary_key=True),
        *(_whole(name) for name in ("text_id", "run")),
        _text("field"),
        _whole("event"),
        *(_text(name) for name in ("path", "agent", "detail")),
    )
    op.create_index("ix_search_places_text_id", "search_places", ["text_id"])
    op.create_index("ix_search_places_run", "search_places", ["run"])
    op.create_index(
        "ix_search_places_error", "search_places", ["detail", "run"], sqlite_where=sa.text("field = 'error'")
    )
    op.create_table(
        "search_calls",
        _whole("id", primary_key=True),
        *(_whole(name) for name in ("run", "event")),
        *(_text(name) for name in ("at_utc", "purpose", "path", "agent", "provider", "host")),
        sa.Column("simulated", sa.Boolean, nullable=False),
        *(_text(name) for name in ("how", "ended")),
        *(_whole(name) for name in ("messages", "images", "input_tokens", "output_tokens")),
        sa.Column("cost_usd", sa.Float),
    )
    op.create_index("ix_search_calls_event", "search_calls", ["event"])
    op.create_index("ix_search_calls_run", "search_calls", ["run"])
    op.create_table(
        "search_facets",
        *(_text(name, primary_key=True) for name in ("kind", "value")),
        _whole("run", primary_key=True),
        _whole("times"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_search_facets_run", "search_facets", ["run"])
    op.create_table(
        "search_state",
        _whole("id", primary_key=True),
        _whole("reached"),
        sa.Column("residue", sa.Boolean, nullable=False),
    )
    op.execute("INSERT INTO search_state (id, reached, residue) VALUES (1, 0, 0)")
    for name, tokenizer in FULL_TEXT.items():
        op.execute(
            f"CREATE VIRTUAL TABLE {name} USING fts5(text, content='search_texts', content_rowid='id', "
            f"columnsize=0, tokenize='{tokenizer}')"
        )


def downgrade() -> None:
    for name in (*FULL_TEXT, *TABLES):
        op.drop_table(name)
