"""A key that was typed for one browser session: its runs answer with it, and it is in no file, log, export or message.

The provider echoes it in eight forms, in answers and in failures.
"""

import json
import logging
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from conductor_core.engine.host import EngineHost
from conductor_core.engine.models import check_worker, find_servers
from conductor_core.errors import BadInput
from conductor_core.privacy.masking import TYPED_KEY, TypedKeys
from conductor_core.run.redaction import Redactor
from conductor_core.run.request import RunRequest
from conductor_core.run.trace import RunTrace, begin
from conductor_core.run.values import PoolInfo
from conductor_core.settings import Settings
from pages.components.live_workflow.messages import LiveView
from pages.components.live_workflow.shared_page import page_of_run
from storage import Store
from tests.support.canaries import CANARIES, PLANNERS, found, hostile
from tests.support.command_line import CommandLine
from tests.support.fakes import workflow_of
from tests.support.gated_runs import at_rest, gated, said, until
from tests.support.provider import Call, Reply, ScriptedProvider, error

NAMES = tuple(f"w{number:02}" for number in range(10))
KEY = CANARIES["w00"]
TWO = workflow_of(("w00", "answer {question}", ()), ("w00", "go on", (0,)))
FAST = Settings(step_attempts=1, retry_initial_s=0, warm_up=False, server_ports=())


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider((*NAMES, "planner")) as provider:
        yield provider.always(hostile)


@pytest.fixture
def host(store: Store) -> Iterator[EngineHost]:
    host = EngineHost(store.log, FAST, store)
    yield host
    host.close()


def pool_of(provider: ScriptedProvider, *names: str) -> PoolInfo:
    """Workers whose key is typed."""
    specs = (provider.spec(name, api_key_env=TYPED_KEY) for name in names or ("w00",))
    return PoolInfo(name="typed", workers=tuple(specs))


def typed(provider: ScriptedProvider, key: str = KEY) -> TypedKeys:
    keys = TypedKeys()
    keys.put(provider.url, key)
    return keys


def run(host: EngineHost, keys: TypedKeys | None, **fields: object) -> RunTrace:
    request = RunRequest.model_validate({"task": "Which?", "workflow": TWO, "door": "page"} | fields)
    return host.wait(host.start(request, keys=keys), 30)


def nothing_in(*texts: str | bytes) -> None:
    for text in texts:
        assert text
        assert not found(text), "the key leaked"


def sent_keys(provider: ScriptedProvider) -> set[str]:
    return {call.headers.get("authorization", "") for call in provider.calls}


def test_the_run_answers_with_it_and_nothing_that_is_kept_or_shown_holds_it(
    host: EngineHost,
    provider: ScriptedProvider,
    store: Store,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    keys = typed(provider)
    runs = [run(host, keys, pool=pool_of(provider))]
    assert runs[0].status == "completed"
    assert "After." in str(runs[0].answer)
    # Each way to fail echoes the key in another place.
    for name in NAMES:
        failing = workflow_of((name, "fail {question}", ()))
        runs.append(run(host, keys, pool=pool_of(provider, name), workflow=failing))
        assert runs[-1].status in ("failed", "cut")
    assert sent_keys(provider) == {f"Bearer {KEY}"}
    cli = CommandLine(capsys)
    for trace in runs:
        first, *rest = store.events(trace.run_id)
        view = LiveView(begin(first.event), first.sequence)
        messages = [view.snapshot(), *(message for event in rest for message in view.messages([event]))]
        nothing_in(json.dumps(messages, ensure_ascii=False), page_of_run(store, trace.run_id, Redactor()))
        told = cli("show", trace.run_id, "--json", "--db", tmp_path / "runs.sqlite3")
        nothing_in(told.out + told.err)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert {"runs.sqlite3", "runs.sqlite3-wal"} <= {file.name for file in files}
    nothing_in(*(file.read_bytes() for file in files if file.stat().st_size))
    assert not found(caplog.text)
    assert KEY not in repr(keys)
    with pytest.raises(TypeError):
        pickle.dumps(keys)


def test_a_conductor_of_the_same_server_plans_with_it(host: EngineHost, provider: ScriptedProvider) -> None:
    trace = run(host, typed(provider), pool=pool_of(provider), workflow=None, conductor=f"{provider.url}#planner")
    assert any(call.model == "planner" for call in provider.completions)
    assert sent_keys(provider) == {f"Bearer {KEY}"}
    nothing_in(trace.model_dump_json())


def test_another_session_and_another_process_cannot_use_it_and_say_so_in_one_error(
    host: EngineHost, provider: ScriptedProvider, store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = run(host, typed(provider), pool=pool_of(provider))
    provider.reset()
    again = {"pool": trace.pool, "parent_run_id": trace.run_id}
    for keys in (None, TypedKeys()):
        with pytest.raises(BadInput, match="type it again on the Run page"):
            run(host, keys, **again)
    told = CommandLine(capsys)("rerun", trace.run_id, "--db", tmp_path / "runs.sqlite3")
    assert told.code != 0
    assert "type it again on the Run page" in told.err
    assert len(store.runs()) == 1
    assert provider.calls == []


def test_it_goes_to_no_other_server_than_that_it_was_typed_for(host: EngineHost, provider: ScriptedProvider) -> None:
    keys = typed(provider)
    with ScriptedProvider(("w00",)) as other:
        with pytest.raises(BadInput):
            run(host, keys, pool=pool_of(other))
        with pytest.raises(BadInput):
            run(
                host,
                keys,
                pool=PoolInfo(
                    name="both", workers=(*pool_of(provider).workers, other.spec("evil", api_key_env=TYPED_KEY))
                ),
            )
        run(host, keys, pool=PoolInfo(name="w", workers=(other.spec("w00"),)))
        assert not any("authorization" in call.headers for call in other.calls)


def test_a_run_that_waits_goes_on_with_it_and_not_without(
    host: EngineHost, provider: ScriptedProvider, store: Store
) -> None:
    keys = typed(provider)

    run_id = gated(_WithKeys(host, keys), "plan", workflow=TWO, pool=pool_of(provider))  # type: ignore[arg-type]
    said(store, run_id, numbers=(1,))
    assert until(store, run_id, lambda trace: trace.ended).status == "completed"
    run_id = gated(_WithKeys(host, keys), "plan", workflow=TWO, pool=pool_of(provider))  # type: ignore[arg-type]
    keys.forget()
    provider.reset()
    trace = at_rest(store, run_id, said(store, run_id, numbers=(1,)))
    assert trace.status == "waiting"
    assert "type it again on the Run page" in "".join(each.event.model_dump_json() for each in store.events(run_id))
    assert provider.completions == []


class _WithKeys:
    def __init__(self, host: EngineHost, keys: TypedKeys) -> None:
        self._host, self._keys = host, keys

    def start(self, request: RunRequest) -> str:
        return self._host.start(request, keys=self._keys)

    def wait(self, run_id: str, timeout_s: float) -> RunTrace:
        return self._host.wait(run_id, timeout_s)


def test_a_session_that_ends_during_a_run_takes_it_along(host: EngineHost, provider: ScriptedProvider) -> None:
    keys = typed(provider)

    def leave(call: Call) -> Reply:
        keys.forget()
        return error(500, "gone")

    provider.then(hostile, leave)
    trace = run(host, keys, pool=pool_of(provider))
    assert trace.status == "failed"
    with pytest.raises(BadInput):
        run(host, keys, pool=pool_of(provider))


def test_a_check_and_a_search_for_servers_use_it(provider: ScriptedProvider) -> None:
    keys = typed(provider)
    assert check_worker(provider.spec("w00", api_key_env=TYPED_KEY), FAST, keys).ok
    assert not check_worker(provider.spec("w00", api_key_env=TYPED_KEY), FAST).ok
    [server] = find_servers({}, Settings(server_ports=(provider.port,)), keys)
    assert server.api_key_env == TYPED_KEY
    assert sent_keys(provider) == {f"Bearer {KEY}"}


class _Locked(ScriptedProvider):
    """Names its models to who has the key, and tells everybody else which."""

    def _script(self, call: Call) -> Reply:
        key = call.headers.get("authorization", "").removeprefix("Bearer ")
        return super()._script(call) if key == KEY else error(401, f"{key} is not {KEY}")


def test_a_server_that_refuses_a_key_and_repeats_it_is_quoted_without() -> None:
    with _Locked(("w00",)) as provider:
        keys = typed(provider, PLANNERS)
        masked = check_worker(provider.spec("w00", api_key_env=TYPED_KEY), FAST, keys)
        assert not masked.ok
        assert PLANNERS not in masked.detail
        [server] = find_servers({}, Settings(server_ports=(provider.port,)), keys)
        assert server.needs_key
        keys.put(provider.url, KEY)
        [server] = find_servers({}, Settings(server_ports=(provider.port,)), keys)
        assert server.models == ("w00",)


@pytest.mark.parametrize("key", ["", "abc-12", "two words 12345678", "ключ-ключ-ключ-1234", "password"])
def test_what_could_not_be_hidden_is_refused(key: str) -> None:
    keys = TypedKeys()
    with pytest.raises(BadInput) as refused:
        keys.put("https://api.example.com/v1", key)
    assert not key or key not in str(refused.value)
    assert len(keys) == 0


def test_another_key_is_typed_for_the_same_server(host: EngineHost, provider: ScriptedProvider) -> None:
    keys = typed(provider)
    run(host, keys, pool=pool_of(provider))
    provider.reset()
    keys.put(provider.url, PLANNERS)
    run(host, keys, pool=pool_of(provider))
    assert sent_keys(provider) == {f"Bearer {PLANNERS}"}
