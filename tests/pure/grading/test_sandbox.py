"""Programs that try to break out: each bound is attacked, and each layer alone where several hold the same line."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from conductor_core.grading.sandbox.run import Layer, ProcessLimits, Ran, active_layers, run
from tests.support.eventually import eventually

SHORT = ProcessLimits(cpu_s=2, wall_s=10.0)
LAYERS: tuple[Layer, ...] = ("namespaces", "Landlock", "seccomp", "audit hook")


def alone(layer: Layer) -> list[Layer]:
    """All layers but this one: what remains is seen to hold by itself."""
    return [other for other in LAYERS if other != layer]


def available(*layers: Layer) -> list[Layer]:
    """Those of ``layers`` that this machine permits. The audit hook is there everywhere."""
    active = active_layers()
    return [layer for layer in layers if layer in active or (layer == "namespaces" and "network namespace" in active)]


def attack(source: str, without: Sequence[Layer] | None = None, limits: ProcessLimits = SHORT) -> Ran:
    return run("script", source, limits=limits, without=without or [])


def test_a_harmless_program_runs_and_says_what_held_it() -> None:
    ran = run("script", "print(int(input()) * 2)", stdin="21\n")
    assert (ran.ending, ran.stdout, ran.error) == ("completed", "42\n", "")
    assert {"own session", "resource limits", "audit hook"} <= set(ran.layers)


def test_left_out_layers_are_not_reported() -> None:
    ran = attack("pass", list(LAYERS))
    assert set(ran.layers) == {"own session", "resource limits"}


def test_an_endless_loop_is_ended_by_processor_time() -> None:
    ran = attack("while True: pass", limits=ProcessLimits(cpu_s=1, wall_s=60.0))
    assert (ran.ending, ran.error) == ("timed out", "it used up its processor time")


def test_sleeping_is_ended_by_wall_time() -> None:
    ran = attack("import time; time.sleep(1000)", limits=ProcessLimits(wall_s=0.5))
    assert (ran.ending, ran.error) == ("timed out", "it ran out of time")


def test_ignoring_signals_does_not_help() -> None:
    source = "import signal, time\nfor n in (15, 2, 1, 24): signal.signal(n, signal.SIG_IGN)\nwhile True: time.sleep(1)"
    assert attack(source, limits=ProcessLimits(wall_s=1.0)).ending == "timed out"


def test_memory_is_bounded() -> None:
    ran = attack("data = bytearray(2 * 1024**3)")
    assert (ran.ending, ran.error) == ("failed", "MemoryError")


def test_endless_recursion_fails() -> None:
    assert attack("def f(): f()\nf()").error.startswith("RecursionError")


def test_a_gigabyte_of_output_is_cut() -> None:
    ran = attack("for _ in range(10_000): print('x' * 100_000)")
    assert (ran.ending, ran.error) == ("too much output", "it wrote too much")
    assert len(ran.stdout) < 2 * SHORT.output_bytes


def test_a_large_file_is_refused() -> None:
    ran = attack("with open('big', 'wb') as file:\n    for _ in range(1000): file.write(bytes(1024**2))")
    assert ran.error.startswith("OSError: [Errno 27]")


def test_many_files_fill_only_the_bounded_folder() -> None:
    source = (
        "for n in range(20):\n    with open(str(n), 'wb') as file: file.write(bytes(8 * 1024**2))\nprint('all of them')"
    )
    ran = attack(source, limits=ProcessLimits(folder_bytes=32 * 1024**2))
    assert ("bounded folder" in ran.layers) == ran.error.startswith("OSError: [Errno 28]")


def test_open_files_are_bounded() -> None:
    assert attack("files = [open('/dev/null') for _ in range(1000)]").error.startswith("OSError: [Errno 24]")


@pytest.mark.parametrize("layer", ["seccomp", "audit hook"])
def test_a_fork_bomb_does_not_start(layer: Layer) -> None:
    for held in available(layer):
        ran = attack("import os\nwhile True: os.fork()", alone(held))
        assert ran.ending == "failed"
        assert ran.error.startswith("PermissionError")


def test_a_bomb_below_the_hook_does_not_start() -> None:
    source = (
        "import _posixsubprocess, os\n"
        "def bomb():\n    while True: os.fork()\n"
        "_posixsubprocess.fork_exec([b'x'], [b'/nowhere'], True, (), None, None, *[-1] * 8, False,\n"
        "    False, 0, None, None, None, -1, bomb, False)"
    )
    for _ in available("seccomp"):
        assert attack(source).ending == "failed"


@pytest.mark.parametrize("ending", ["pass", "import time; time.sleep(1000)"])
def test_processes_that_were_allowed_do_not_outlive_the_program(ending: str) -> None:
    source = (
        "import os, time\nread, write = os.pipe()\n"
        "for _ in range(8):\n    if os.fork() == 0:\n"
        "        os.setsid()\n        os.write(write, b'x')\n        time.sleep(1000)\n"
        f"print(len(os.read(read, 1)), flush=True)\n{ending}"
    )
    before = _children_of_sandboxes()
    ran = attack(source, limits=ProcessLimits(wall_s=1.5, processes=True))
    assert ran.stdout == "1\n"
    for _ in available("namespaces"):
        assert _children_of_sandboxes() <= before


@pytest.mark.skipif(sys.platform != "linux", reason="the call is Linux's")
def test_a_program_that_cuts_itself_loose_ends_with_the_process_that_watches_it() -> None:
    source = "import ctypes, time\nctypes.CDLL(None).prctl(1, 0, 0, 0, 0)\nprint('loose', flush=True)\ntime.sleep(60)"
    before = _children_of_sandboxes()
    ran = attack(source, limits=ProcessLimits(wall_s=5.0, processes=True, site_packages=True))
    assert (ran.ending, ran.stdout) == ("timed out", "loose\n")
    eventually(lambda: not _children_of_sandboxes() - before)


def _children_of_sandboxes() -> set[str]:
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and b"sandbox/child.py" in (entry / "cmdline").read_bytes():
                found.add(entry.name)
        except OSError:
            continue
    return found


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret.txt"
    file.write_text("the key")
    return file


@pytest.mark.parametrize("layer", ["Landlock", "audit hook"])
def test_files_outside_are_neither_read_nor_written(layer: Layer, secret: Path) -> None:
    read = f"print(open({str(secret)!r}).read())"
    write = f"open({str(secret)!r}, 'w').write('mine')"
    beside = f"open({str(secret.parent / 'new')!r}, 'w').write('mine')"
    away = f"import os; os.remove({str(secret)!r})"
    for held in available(layer):
        for source in (read, write, beside, away, f"import os; os.symlink({str(secret)!r}, 'link'); {read}"):
            ran = attack(source, alone(held))
            assert ran.ending == "failed"
            assert "PermissionError" in ran.error
            assert "the key" not in ran.stdout
    assert secret.read_text() == "the key"
    assert [file.name for file in secret.parent.iterdir()] == ["secret.txt"]


def test_without_these_layers_the_same_file_is_read(secret: Path) -> None:
    assert attack(f"print(open({str(secret)!r}).read())", list(LAYERS)).stdout == "the key\n"


def test_its_own_folder_is_fresh_writable_and_gone_afterwards() -> None:
    source = (
        "import os\nprint(os.getcwd(), os.listdir())\nopen('a', 'w').write('x')\n"
        "os.mkdir('locked', 0)\nprint(open('a').read())"
    )
    choices: tuple[list[Layer], ...] = ([], ["namespaces"])
    for without in choices:
        ran = attack(source, without)
        assert ran.ending == "completed", ran
        folder, listing = ran.stdout.split("\n")[0].split(" ", 1)
        assert listing == "[]"
        assert ran.stdout.split("\n")[1] == "x"
        assert not Path(folder).exists()


@pytest.mark.parametrize("without", [["audit hook"], ["namespaces", "audit hook"]])
def test_a_folder_deeper_than_paths_are_long_is_removed(without: list[Layer]) -> None:
    source = "import os\nprint(os.getcwd())\nfor _ in range(1200):\n    os.mkdir('deep'); os.chdir('deep')"
    ran = attack(source, without)
    assert ran.ending == "completed", ran
    assert not Path(ran.stdout.strip()).exists()


def test_the_environment_holds_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    ran = attack("import os\nprint(sorted(os.environ))", list(LAYERS))
    assert ran.stdout == "['HOME', 'TMPDIR']\n"


def environments_read(without: list[Layer]) -> str:
    """How many processes' environments a program could read, as it prints it."""
    processes = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    source = (
        f"found = 0\nfor n in {processes}:\n    try:\n        found += 'PATH=' in open(f'/proc/{{n}}/environ').read()\n"
        "    except OSError:\n        pass\nprint(found)"
    )
    return attack(source, without).stdout.strip()


@pytest.mark.parametrize("layer", ["Landlock", "audit hook"])
def test_the_environment_of_other_processes_is_not_read(layer: Layer) -> None:
    for held in available(layer):
        assert environments_read(alone(held)) == "0"


def test_without_these_layers_it_would_be_read() -> None:
    assert int(environments_read(list(LAYERS))) > 0


@pytest.fixture
def victim() -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(["sleep", "1000"])
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("layer", LAYERS)
def test_other_processes_are_not_killed(layer: Layer, victim: "subprocess.Popen[bytes]") -> None:
    source = (
        f"import os\nfor target in ({victim.pid}, os.getppid(), {os.getpid()}):\n"
        "    try:\n        os.kill(target, 9)\n    except OSError:\n        pass\nprint('done')"
    )
    for held in available(layer):
        attack(source, alone(held))
        assert victim.poll() is None


def test_without_layers_it_would_be_killed(victim: "subprocess.Popen[bytes]") -> None:
    attack(f"import os; os.kill({victim.pid}, 9)", list(LAYERS))
    assert victim.wait(10) == -9


def test_only_the_standard_library_is_there_unless_asked_for() -> None:
    assert attack("import numpy").error.startswith("ModuleNotFoundError")
    assert attack("import conductor_core").error.startswith("ModuleNotFoundError")
    library = ProcessLimits(cpu_s=30, wall_s=60.0, memory_bytes=4 * 1024**3, site_packages=True)
    assert attack("import numpy; print(numpy.arange(3).sum())", limits=library).stdout == "3\n"


@pytest.mark.parametrize(
    "source",
    [
        "import asyncio\nasync def f(): return 3\nprint(asyncio.run(f()))",
        "import threading\nt = threading.Thread(target=print, args=(3,)); t.start(); t.join()",
        "import tempfile\nwith tempfile.NamedTemporaryFile('w+') as f: f.write('3'); f.seek(0); print(f.read())",
        "import sys; print(3); sys.exit()",
        "from dataclasses import dataclass\n@dataclass\nclass A: x: int\nprint(A(3).x)",
        "import collections, datetime, decimal, heapq, random, sqlite3, statistics, zoneinfo; print(3)",
    ],
)
def test_what_ordinary_programs_do_still_works(source: str) -> None:
    ran = attack(source)
    assert (ran.ending, ran.stdout) == ("completed", "3\n"), ran


@pytest.mark.parametrize(
    ("source", "ending"),
    [
        ("import os; os._exit(0)", "killed"),
        ("import os; os.abort()", "killed"),
        ("import sys; sys.exit(3)", "failed"),
        ("raise KeyboardInterrupt", "failed"),
        ("def broken(:", "failed"),
        ("class E(Exception):\n    def __str__(self): raise ValueError\nraise E", "failed"),
    ],
)
def test_every_early_end_is_told_from_completion(source: str, ending: str) -> None:
    assert attack(source).ending == ending


def test_a_printed_report_is_no_report() -> None:
    forged = (
        "import os\nfor fd in range(20):\n    try: os.write(fd, b'{\"done\": true}\\n')\n"
        "    except OSError: pass\nos._exit(0)"
    )
    assert attack(forged).ending == "killed"


CHECK = "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(-3) == 9\n"


def checked(source: str) -> Ran:
    return run("check", source, test=CHECK, entry_point="square", limits=SHORT)


def test_check_runs_the_tests() -> None:
    assert checked("def square(x):\n    return x * x").ending == "completed"
    assert checked("def square(x):\n    return x + x").error == "AssertionError"
    assert checked("def other(x):\n    return x * x").error == "KeyError: 'square'"
    assert checked("import sys\ndef square(x):\n    sys.exit(0)").error == "SystemExit: 0"


def test_code_below_the_main_guard_is_not_run_before_tests() -> None:
    assert checked("def square(x):\n    return x * x\nif __name__ == '__main__':\n    input()").ending == "completed"


UNITTEST = (
    "import unittest\n\nclass TestSquare(unittest.TestCase):\n"
    "    def test_two(self):\n        self.assertEqual(square(2), 4)\n"
    "    def test_file(self):\n        open('x', 'w').close()\n"
)


def test_unittest_runs_every_case() -> None:
    assert run("unittest", "def square(x):\n    return x * x", test=UNITTEST).ending == "completed"
    ran = run("unittest", "def square(x):\n    return x", test=UNITTEST)
    assert ran.error == "1 of 2 tests fail, first test_two: AssertionError: 2 != 4"
    assert run("unittest", "", test="x = 1").error == "the tests define no test"


def test_calls_report_values() -> None:
    ran = run("calls", "def f(a, b):\n    return (a, b)", entry_point="f", calls=[[1, 2], ["x", None]])
    assert [record.get("value") for record in ran.records[:2]] == [[1, 2], ["x", None]]
    ran = run("calls", "class Solution:\n    def f(self, a):\n        return {a}", entry_point="f", calls=[[1]])
    assert ran.error == "TypeError: Object of type set is not JSON serializable"


def test_programs_may_be_started_only_where_that_is_allowed() -> None:
    source = "import subprocess\nprint(subprocess.check_output(['echo', '3'], text=True).strip())"
    assert attack(source).error.startswith("PermissionError")
    assert attack(source, limits=ProcessLimits(processes=True)).stdout == "3\n"
    outside = "import subprocess\nsubprocess.run(['cp', '/bin/echo', '../taken'], check=True)"
    for _ in available("Landlock"):
        assert attack(outside, limits=ProcessLimits(processes=True)).error.startswith("CalledProcessError")


def test_a_program_that_is_given_nothing_reads_nothing() -> None:
    assert attack("import sys; print(repr(sys.stdin.read()))").stdout == "''\n"
