from pathlib import Path

import pytest

from conductor_core.engine.pools import open_pool, pool_info, read_specs, reopen_pool
from conductor_core.errors import BadInput, PoolInvalid
from conductor_core.run.values import PoolInfo
from conductor_core.settings import Settings
from tests.support.fakes import ScriptedWorker, pool_of

FILE = """
[[worker]]
name = "one"
provider = "openai"
model = "m"
base_url = "http://127.0.0.1:9/v1"
usd_per_mtok = { input = 1.25, output = 10.0 }
params = { temperature = 0.2, stop = ["a", "b"] }

[[worker]]
name = "two \\"quoted\\""
provider = "anthropic"
model = "n"
api_key_env = "SOME_KEY"
"""


def test_the_rehearsal_pool_is_simulated() -> None:
    pool = open_pool("rehearsal", Settings(), seed=4)
    assert (pool.name, pool.simulated, pool.seed) == ("rehearsal", True, 4)
    assert len(pool.specs) == 7
    assert pool.info.workers == pool.specs


async def test_the_papers_pool_is_ready() -> None:
    pool = open_pool("paper", Settings())
    assert (pool.name, pool.simulated, len(pool.specs)) == ("paper", False, 7)
    await pool.aclose()


async def test_a_pool_file_is_read_in_its_order(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(FILE)
    pool = open_pool(str(file), Settings())
    assert (pool.name, list(pool.workers)) == ("mine", ["one", 'two "quoted"'])
    await pool.aclose()


def test_a_pool_file_that_is_not_there_is_bad_input() -> None:
    with pytest.raises(PoolInvalid, match=r"nowhere\.toml"):
        read_specs("nowhere.toml")


def test_a_key_may_be_in_a_variable_that_the_settings_name() -> None:
    spec = ScriptedWorker("a", api_key_env="MY_PASS").spec
    info = PoolInfo(name="mine", workers=(spec,))
    assert pool_info(info, Settings(key_variables=("MY_PASS",))) == info
    with pytest.raises(BadInput, match="worker a: api_key_env: MY_PASS does not look like the variable of a key"):
        pool_info(info, Settings())


def test_the_seed_is_the_settings_unless_given() -> None:
    assert open_pool("rehearsal", Settings(seed=9)).seed == 9


async def test_the_pool_of_an_earlier_run_is_opened_as_recorded() -> None:
    info = open_pool("rehearsal", Settings()).without(("coder",)).info
    again = reopen_pool(info, Settings(), seed=2)
    assert (again.info, again.seed) == (info, 2)


def test_workers_can_be_left_out() -> None:
    pool = pool_of(ScriptedWorker("a"), ScriptedWorker("b"), seed=3)
    left = pool.without(("a",))
    assert (list(left.workers), left.seed) == (["b"], 3)
    assert list(pool.workers) == ["a", "b"]
    assert (pool.info.excluded, left.info.excluded) == ((), ("a",))
    with pytest.raises(BadInput, match="the pool scripted has no worker c; it has a, b"):
        pool.without(("c",))
    with pytest.raises(BadInput, match="has no worker c, d; it has a, b"):
        pool.without(("c", "b", "d"))
    with pytest.raises(BadInput, match="no worker of the pool scripted is left"):
        pool.without(("a", "b"))


def test_what_a_pool_offers_is_known_without_opening_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conductor_core.engine.pools.open_worker", lambda *_: pytest.fail("a worker was opened"))
    file, settings = tmp_path / "mine.toml", Settings(api_key_variables="SOME_KEY")
    file.write_text(FILE, encoding="utf-8")
    info = pool_info(str(file), settings, ("one",))
    assert (info.name, [spec.name for spec in info.workers], info.excluded) == ("mine", ['two "quoted"'], ("one",))
    assert pool_info(info, settings) == info
    assert pool_info("rehearsal", settings).workers == read_specs("rehearsal")
    with pytest.raises(BadInput, match="has no worker three"):
        pool_info(info, settings, ("three",))
    monkeypatch.setenv("A_SECRET", "sk-" + "x7Q" * 12)
    told = info.workers[0].model_copy(update={"params": {"user": "sk-" + "x7Q" * 12}})
    with pytest.raises(BadInput, match="worker two"):
        pool_info(info.model_copy(update={"workers": (told,)}), settings)


async def test_parameters_are_laid_over_those_of_the_workers_they_name(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(FILE, encoding="utf-8")
    pool = open_pool(str(file), Settings(api_key_variables="SOME_KEY"), seed=3)
    given = pool.with_params({"one": {"temperature": 0.9, "top_p": 0.5}}, Settings(api_key_variables="SOME_KEY"))
    changed, same = given.specs
    assert dict(changed.params) == {"temperature": 0.9, "top_p": 0.5, "stop": ["a", "b"]}
    assert same == pool.specs[1]
    assert (given.name, given.seed) == ("mine", 3)
    assert dict(pool.specs[0].params) == {"temperature": 0.2, "stop": ["a", "b"]}
    with pytest.raises(BadInput, match="the pool mine has no worker three, four; it has one, two"):
        pool.with_params({"three": {}, "one": {}, "four": {}}, Settings())
