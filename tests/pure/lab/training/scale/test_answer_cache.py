import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from conductor_core.chat.messages import Finished, Usage
from conductor_core.errors import StoreDamaged, StoreLocked, StoreReadOnly, StoreTooNew
from conductor_core.lab.training.worker_reward import AnswerCache, CachedAnswer, RolloutOutcome, Spent

USAGE = Usage(input_tokens=3, output_tokens=4, estimated=True)
ANSWER = CachedAnswer("zwölf", Finished(finish_reason="length", usage=USAGE, cost_usd=0.25, model="m-\ud800"))
OTHER = CachedAnswer("other", Finished(finish_reason="stop", usage=Usage()))
MOST = Usage(input_tokens=10, output_tokens=100, estimated=True)
OUTCOME = RolloutOutcome("t1", "run", "model_id = [0]\n", None, 0.0, "wrong")


def test_what_is_kept_is_there_after_the_file_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "new" / "answers.sqlite3"
    cache = AnswerCache(path)
    cache.keep_answer("a", 0, cache.begin_call("alpha", MOST, 9.0), ANSWER, USAGE, 0.25)
    cache.keep_answer("a", 1, cache.begin_call("alpha", MOST, 9.0), OTHER, Usage(), 0.0)
    cache.begin_call("beta", Usage(input_tokens=5), 0.5)
    cache.drop_call(cache.begin_call("beta", MOST, 9.0))
    cache.keep_outcome("d", OUTCOME)
    cache.close()
    cache = AnswerCache(path)
    assert cache.answer("a", 0) == ANSWER
    assert cache.answer("a", 1) == OTHER
    assert cache.answer("a", 2) is None
    assert cache.answer("b", 0) is None
    assert cache.spent() == Spent(answered=2, broken_off=1, tokens=12, usd=0.75)
    assert cache.outcome("d") == OUTCOME
    assert cache.outcome("e") is None
    assert cache.outcomes("t1") == [OUTCOME]
    cache.close()


def test_an_answer_and_its_price_are_kept_together_or_not_at_all(tmp_path: Path) -> None:
    cache = AnswerCache(tmp_path / "answers.sqlite3")
    cache.keep_answer("a", 0, cache.begin_call("alpha", MOST, 9.0), ANSWER, USAGE, 1.0)
    again = cache.begin_call("alpha", MOST, 9.0)
    with pytest.raises(Exception, match="UNIQUE"):
        cache.keep_answer("a", 0, again, ANSWER, USAGE, 1.0)
    assert cache.spent().usd == 10.0
    cache.close()


def test_nothing_that_was_kept_is_lost_when_the_process_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "answers.sqlite3"
    script = (
        "import os, signal, sys; from pathlib import Path\n"
        "from conductor_core.chat.messages import Finished, Usage\n"
        "from conductor_core.lab.training.worker_reward import AnswerCache, CachedAnswer\n"
        "cache = AnswerCache(Path(sys.argv[1]))\n"
        "number = cache.begin_call('alpha', Usage(), 2.0)\n"
        "cache.keep_answer('a', 0, number, CachedAnswer('kept', Finished(finish_reason='stop')), Usage(), 0.5)\n"
        "cache.begin_call('alpha', Usage(input_tokens=5, output_tokens=7), 2.0)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script, str(path)], check=False, env=os.environ | {"PYTHONPATH": "."})
    assert ended.returncode == -9
    cache = AnswerCache(path)
    found = cache.answer("a", 0)
    assert found is not None
    assert found.output == "kept"
    # Nobody knows how far the call came that was under way.
    assert cache.spent() == Spent(answered=1, broken_off=1, tokens=12, usd=2.5)
    cache.close()


def test_only_one_training_at_a_time_uses_a_file(tmp_path: Path) -> None:
    path = tmp_path / "answers.sqlite3"
    cache = AnswerCache(path)
    with pytest.raises(StoreLocked, match="in use by another training"):
        AnswerCache(path)
    cache.close()
    AnswerCache(path).close()


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    text = tmp_path / "text.sqlite3"
    text.write_text("no database, but long enough to be looked at as one. " * 20)
    with pytest.raises(StoreDamaged, match=r"text\.sqlite3"):
        AnswerCache(text)
    newer = tmp_path / "newer.sqlite3"
    AnswerCache(newer).close()
    with closing(sqlite3.connect(newer)) as db, db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(StoreTooNew, match="another version"):
        AnswerCache(newer)
    with pytest.raises(StoreReadOnly, match="cannot be made"):
        AnswerCache(text / "below" / "answers.sqlite3")
