import re
from urllib.parse import quote

from conductor_core.run.request import new_run_id


def test_ids_sort_in_the_order_they_were_made_and_never_repeat() -> None:
    ids = [new_run_id() for _ in range(5000)]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)


def test_ids_are_safe_in_urls_and_file_names() -> None:
    run_id = new_run_id()
    assert quote(run_id, safe="") == run_id
    assert re.fullmatch(r"[0-9a-f]{12}-[0-9a-f]{16}", run_id)
