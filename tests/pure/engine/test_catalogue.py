import contextlib
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from conductor_core.engine.models import (
    FoundServer,
    check_all,
    check_conductor,
    check_worker,
    conductors_file_text,
    discover_local_servers,
    find_servers,
    list_conductors,
    pool_file_text,
    ready_workers,
)
from conductor_core.engine.pools import read_specs
from conductor_core.errors import BadInput
from conductor_core.privacy import masking
from conductor_core.settings import Settings
from tests.support.model_files import parse_conductors, parse_pool

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


def test_a_pool_file_made_of_workers_reads_back_as_the_same_workers(tmp_path: Path) -> None:
    original = tmp_path / "original.toml"
    original.write_text(FILE)
    for specs in (read_specs(str(original)), read_specs("paper")):
        copy = tmp_path / "copy.toml"
        copy.write_text(pool_file_text(specs))
        assert read_specs(str(copy)) == specs


def test_parameters_of_any_shape_and_name_are_kept_in_a_pool_file(tmp_path: Path) -> None:
    original = tmp_path / "original.toml"
    original.write_text(
        FILE.replace(
            "params = {", 'params = { "top.p" = 0.5, "größe" = 1, nested = { list = [1, 2, 3], "a b" = "\\u007f" },'
        ),
        encoding="utf-8",
    )
    specs = read_specs(str(original))
    assert specs[0].params["nested"] == {"list": [1, 2, 3], "a b": "\x7f"}
    copy = tmp_path / "copy.toml"
    copy.write_text(pool_file_text(specs), encoding="utf-8")
    assert read_specs(str(copy)) == specs


def test_a_name_in_any_script_is_kept_in_a_pool_file(tmp_path: Path) -> None:
    copy = tmp_path / "copy.toml"
    specs = (read_specs("rehearsal")[0].model_copy(update={"name": "größe 算 🦉"}),)
    copy.write_text(pool_file_text(specs), encoding="utf-8")
    assert read_specs(str(copy)) == specs


def test_a_simulated_worker_is_always_healthy() -> None:
    assert check_worker(read_specs("rehearsal")[0], Settings()).ok


def test_a_worker_that_is_not_there_is_not(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(FILE)
    health = check_worker(read_specs(str(file))[0], Settings())
    assert not health.ok
    assert "one" in health.detail


def test_a_conductor_is_healthy_if_it_could_write() -> None:
    assert check_conductor("tiny", Settings()).ok
    away = check_conductor("http://127.0.0.1:9/v1#m", Settings())
    assert not away.ok
    assert "Conductor http://127.0.0.1:9/v1#m" in away.detail
    with pytest.raises(BadInput, match="no Conductor 'nobody'"):
        check_conductor("nobody", Settings())


def test_all_are_checked_at_once_and_an_unknown_conductor_has_its_fault(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(FILE)
    specs = (read_specs("rehearsal")[0], read_specs(str(file))[0])
    conductors, workers = check_all(["tiny", "nobody"], specs, Settings())
    assert {ref: health.ok for ref, health in conductors.items()} == {"tiny": True, "nobody": False}
    assert "no Conductor 'nobody'" in conductors["nobody"].detail
    assert {name: health.ok for name, health in workers.items()} == {specs[0].name: True, "one": False}


def test_a_key_that_is_sent_to_a_server_is_hidden_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "hunter2-hunter2")
    assert find_servers({"http://127.0.0.1:9/v1": "SOME_KEY"}, Settings(server_ports=())) == ()
    assert masking.known().text("it said hunter2-hunter2") == "it said hu***"


def test_servers_are_looked_for_on_the_ports_of_the_settings() -> None:
    listed = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 24\r\n\r\n{"data": [{"id": "odd"}]}'
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def answer() -> None:
            with contextlib.suppress(OSError):
                while True:
                    asked, _ = server.accept()
                    with asked:
                        asked.recv(4096)
                        asked.sendall(listed.replace(b"24", b"25"))

        threading.Thread(target=answer, daemon=True).start()
        [spec] = discover_local_servers(Settings(server_ports=(port,)))
        assert (spec.model, spec.base_url) == ("odd", f"http://127.0.0.1:{port}/v1")
        [found] = find_servers({}, Settings(server_ports=(port,)))
        assert found.title == f"port {port}"
        assert discover_local_servers(Settings(server_ports=())) == ()


def test_none_of_this_loads_torch() -> None:
    asked = "import sys, conductor_core.engine.models, conductor_core.engine.host; print('torch' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "False"


def test_the_tiny_conductor_is_offered_first() -> None:
    assert list_conductors(Settings())[0].ref == "tiny"


NAMES = [
    "conductor",
    "org/Conductor",
    "model 1",
    "org/step3",
    "-3",
    "tiny",
    "a/ b",
    f"org/{'a' * 59} b",
    "foo#bar",
    "a\\b",
    "foo.toml",
    "/",
    "İ",
    "i̇",
    '"]\\n[[worker]]',
]


@pytest.mark.parametrize("count", [1, 2])
def test_whatever_servers_call_their_models_one_click_makes_a_pool_and_conductors_of_them(count: int) -> None:
    servers = [FoundServer(f"http://127.0.0.1:{port}/v1", "Ollama", tuple(NAMES)) for port in range(1, count + 1)]
    specs = ready_workers(servers)
    assert len(specs) == count * len(NAMES)
    assert parse_pool(pool_file_text(specs)) == (specs, [])
    conductors, faults = parse_conductors(conductors_file_text(specs))
    assert faults == []
    assert [each.model for each in conductors] == [spec.model for spec in specs]
