"""What `pip install` gives, outside a checkout: the command `conductor`, and the page that it opens."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from conductor_core import __version__

ROOT = Path(__file__).resolve().parents[2]
COMPONENT = "_stcore/bidi-components/conductor-inspector.live_workflow/index.js"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The prefix that the built wheel is installed at; its dependencies are those of these tests."""
    folder = tmp_path_factory.mktemp("distribution")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    source = folder / "source"
    # A build leaves its folders in the source.
    for name in (
        "pyproject.toml",
        "setup.py",
        "README.md",
        "LICENSE",
        "app.py",
        ".streamlit",
        "conductor_core",
        "storage",
        "pages",
    ):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            source.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, source)
    built = ["wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder), str(source)]
    subprocess.run([*pip, *built], check=True, timeout=100)
    (wheel,) = folder.glob("*.whl")
    prefix = folder / "prefix"
    installing = ["install", "--no-deps", "--no-index", "--ignore-installed", "--prefix", str(prefix), str(wheel)]
    subprocess.run([*pip, *installing], check=True, timeout=100)
    return prefix


@pytest.fixture
def environment(installed: Path, tmp_path: Path) -> dict[str, str]:
    (site,) = installed.glob("lib/python*/site-packages")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CONDUCTOR_")}
    return kept | {"PYTHONPATH": str(site), "CONDUCTOR_DATA_FOLDER": str(tmp_path / "data"), "HF_HUB_OFFLINE": "1"}


def conductor(
    installed: Path, environment: Mapping[str, str], folder: Path, *arguments: str
) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(installed / "bin" / "conductor"), *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100)


def test_every_page_and_component_is_installed_once(installed: Path) -> None:
    (site,) = installed.glob("lib/python*/site-packages")
    here = ROOT / "pages"
    files = [file.relative_to(here) for file in here.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    for file in files:
        there = [top for top in ("pages", "conductor_inspector") if (site / top / file).exists()]
        assert len(there) == 1 or file.as_posix() == "__init__.py", f"{file} is in {there}"


def test_a_run_can_be_handed_over_as_a_page(installed: Path, environment: dict[str, str], tmp_path: Path) -> None:
    done = conductor(installed, environment, tmp_path, "run", "What is the chemical symbol of tungsten?", "--json")
    saved = conductor(installed, environment, tmp_path, "export", json.loads(done.stdout)["run_id"], "--as", "html")
    assert saved.returncode == 0, saved.stderr


def test_the_command_is_there_with_its_version_and_its_own_name(
    installed: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    assert conductor(installed, environment, tmp_path, "--version").stdout == f"conductor-inspector {__version__}\n"
    assert conductor(installed, environment, tmp_path, "--help").stdout.startswith("Usage: conductor ")


def test_a_run_and_its_record(installed: Path, environment: dict[str, str], tmp_path: Path) -> None:
    done = conductor(installed, environment, tmp_path, "run", "What is the chemical symbol of tungsten?", "--json")
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout)
    assert (run["status"], run["conductor"]["name"]) == ("completed", "tiny")
    shown = conductor(installed, environment, tmp_path, "show", run["run_id"])
    assert "tungsten" in shown.stdout
    listed = conductor(installed, environment, tmp_path, "evaluate", "--list")
    assert "conductor:REF" in listed.stdout


@pytest.fixture
def page(installed: Path, environment: dict[str, str], tmp_path: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # What happens to be called like our packages where somebody stands is not ours.
    for name in ("storage", "pages", "streamlit"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('the wrong package')")
    command = [sys.executable, str(installed / "bin" / "conductor"), "ui", "--port", str(port)]
    with (tmp_path / "ui.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log)
        try:
            yield f"http://127.0.0.1:{port}/"
        finally:
            process.terminate()
            process.wait(20)


def test_the_page_is_served_with_its_component_and_its_recorded_runs_by_the_files_that_were_installed(
    page: str, installed: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(page + COMPONENT, timeout=5) as answer:
                assert b"import" in answer.read()
            break
        except OSError:
            assert time.monotonic() < until, (tmp_path / "ui.log").read_text()
            time.sleep(0.2)
    listed = json.loads(conductor(installed, environment, tmp_path, "runs", "--json").stdout)["runs"]
    assert [run["recorded"] for run in listed] == [True, True, True]
    request = urllib.request.Request(page, headers={"Host": "elsewhere.example"})
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(request, timeout=5)


def test_a_port_that_is_taken_is_one_clear_error(installed: Path, environment: dict[str, str], tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        refused = conductor(installed, environment, tmp_path, "ui", "--port", port)
    assert refused.returncode == 2
    assert refused.stderr == (
        f"error: cannot listen on 127.0.0.1:{port}: Address already in use. Choose another port with --port\n"
    )


def test_an_address_that_is_none_opens_no_door(installed: Path, environment: dict[str, str], tmp_path: Path) -> None:
    refused = conductor(installed, environment, tmp_path, "ui", "--host", "no such host")
    assert refused.returncode == 2
    assert (
        refused.stderr
        == "error: --host 'no such host' is not an address of this machine; use 127.0.0.1, or 0.0.0.0 for all\n"
    )
