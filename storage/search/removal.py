"""Takes a run out of the search index."""

import sqlite3


def forget(cursor: sqlite3.Cursor, run_id: str) -> None:
    """Takes a run out of the index. Call it in a transaction of the writer, with ``secure_delete`` on for an erasure.

    The full-text tables keep words of it among others until the next ``catch_up`` or ``sweep``.
    """
    found = cursor.execute("SELECT run FROM search_runs WHERE run_id = ?", (run_id,)).fetchall()
    for (run,) in found:
        for table, only in (("search_words", ""), ("search_signs", " AND dense")):
            cursor.execute(
                f"INSERT INTO {table} ({table}, rowid, text) "  # noqa: S608  own names
                f"SELECT 'delete', id, text FROM search_texts WHERE run = ?{only}",
                (run,),
            )
        for table in ("search_places", "search_texts", "search_calls", "search_facets", "search_runs"):
            cursor.execute(f"DELETE FROM {table} WHERE run = ?", (run,))  # noqa: S608  own names
    if found:
        cursor.execute("UPDATE search_state SET residue = 1")
