"""What a pool file says beside its workers, and which workers answer in the place of others."""

from pathlib import Path

import pytest

from conductor_core.engine.pools import open_pool
from conductor_core.settings import Settings
from conductor_core.workers.pool_file import read_pool_file
from tests.support.model_files import parse_pool

TWO = """
[[worker]]
name = "a"
provider = "openai"
model = "m"
fallback = "b"

[[worker]]
name = "b"
provider = "openai"
model = "m"
"""


def test_a_pool_file_says_how_its_runs_go(tmp_path: Path) -> None:
    file = tmp_path / "pool.toml"
    file.write_text(f'on_incomplete = "fallback"\ngive_question = true\n{TWO}')
    read = read_pool_file(file)
    assert (read.on_incomplete, read.give_question) == ("fallback", True)
    assert [spec.fallback for spec in read.workers] == ["b", None]
    pool = open_pool(str(file), Settings(on_incomplete="stop"))
    assert (pool.on_incomplete, pool.give_question) == ("fallback", True)


def test_what_it_does_not_say_is_as_the_settings_have_it(tmp_path: Path) -> None:
    file = tmp_path / "pool.toml"
    file.write_text(TWO)
    pool = open_pool(str(file), Settings(on_incomplete="stop", give_question=True))
    assert (pool.on_incomplete, pool.give_question) == ("stop", True)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            f'on_incomplete = "retry"\n{TWO}',
            'line 1, on_incomplete: "retry" is not allowed; use "allow", "stop", "more_',
        ),
        (f"on_incomplete = true\n{TWO}", 'line 1, on_incomplete: true or false is not allowed; use "allow"'),
        (f"on_incomplete = []\n{TWO}", 'line 1, on_incomplete: a list is not allowed; use "allow"'),
        (f"give_question = 1\n{TWO}", "line 1, give_question: must be true or false"),
        (
            TWO.replace('"b"\n\n', '"c"\n\n'),
            "line 6, worker[0].fallback: the file has no worker of that name; it has b",
        ),
        (TWO.replace('"b"\n\n', '"a"\n\n'), "line 6, worker[0].fallback: is this worker itself"),
        (TWO.replace('fallback = "b"', "fallback = 3"), "line 6, worker[0].fallback: must be text in quotes"),
    ],
)
def test_each_fault_is_named_with_its_place(text: str, fault: str) -> None:
    specs, faults = parse_pool(text)
    assert specs == ()
    (only,) = faults
    assert only.startswith(fault)
