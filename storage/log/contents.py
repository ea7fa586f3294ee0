"""Keeps the bytes that events name by their digest: the images of tasks."""

import hashlib
import sqlite3
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from conductor_core.chat.messages import ImagePart, LoadedImage
from conductor_core.errors import ContentMissing

UNUSED_KEPT = timedelta(days=1)
"""How long a content stays that no run names: between its choice on the page and the run."""

_KEEP = "INSERT OR IGNORE INTO contents (sha256, media_type, data, created_at_utc) VALUES (?, ?, ?, ?)"
_READ = "SELECT media_type, data FROM contents WHERE sha256 = ?"
_NAME = (
    "INSERT OR IGNORE INTO run_contents (run_id, sha256) SELECT ?1, ?2 "
    "WHERE EXISTS (SELECT 1 FROM contents WHERE sha256 = ?2)"
)
_FORGET = "DELETE FROM run_contents WHERE run_id = ?"
_UNUSED = "DELETE FROM contents WHERE sha256 NOT IN (SELECT sha256 FROM run_contents) AND created_at_utc < ?"
_OF_RUN = "SELECT sha256 FROM run_contents WHERE run_id = ?"
_UNNAMED = "DELETE FROM contents WHERE sha256 = ? AND sha256 NOT IN (SELECT sha256 FROM run_contents)"


def keep(cursor: sqlite3.Cursor, images: Iterable[LoadedImage]) -> None:
    """Keeps images, each once, and drops those that no run has named for a day. Call it in the writer's transaction."""
    now = datetime.now(UTC)
    cursor.execute(_UNUSED, ((now - UNUSED_KEPT).isoformat(),))
    rows = [(image.sha256, image.media_type, image.data, now.isoformat()) for image in images]
    cursor.executemany(_KEEP, rows)


def name(cursor: sqlite3.Cursor, run_id: str, images: Iterable[ImagePart]) -> None:
    """Records which images a run names, as far as they are here. Call it in the writer's transaction."""
    cursor.executemany(_NAME, [(run_id, image.sha256) for image in images])


def forget(cursor: sqlite3.Cursor, run_id: str) -> None:
    """Deletes the images that this run names and no other does. Call it in the transaction of the run's deletion."""
    named = cursor.execute(_OF_RUN, (run_id,)).fetchall()
    cursor.execute(_FORGET, (run_id,))
    cursor.executemany(_UNNAMED, named)


def read(connection: sqlite3.Connection, sha256: str) -> tuple[str, bytes]:
    """Returns a content's media type and bytes. Raises: ContentMissing if it is not there, or was changed."""
    row = connection.execute(_READ, (sha256,)).fetchone()
    if row is None:
        raise ContentMissing(f"the database has no content {sha256[:12]}: it was deleted, or never kept here")
    media_type, data = row
    if not isinstance(data, bytes) or hashlib.sha256(data).hexdigest() != sha256:
        raise ContentMissing(f"the content {sha256[:12]} was changed in the database: its bytes have another digest")
    return str(media_type), data
