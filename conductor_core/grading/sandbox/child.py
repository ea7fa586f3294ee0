"""The process that a graded program runs in, started by ``run`` as ``python -I -S -X utf8 child.py``.

It reads its order from a file without a name, puts the layers in place from the outside in, says on the report pipe
which ones there are, and only then compiles the program. Reports are JSON lines that begin with a token of this run:
printing something that looks like one does not help.
"""

import builtins
import io
import json
import os
import resource
import sys
from collections.abc import Callable
from typing import Any

_SYSTEM_FOLDERS = ("/usr/lib", "/usr/lib64", "/usr/share", "/usr/local/lib", "/lib", "/lib64")
_SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/localtime", "/etc/mime.types")
_PROGRAM_FOLDERS = ("/bin", "/usr/bin", "/usr/local/bin")
_LONGEST_MESSAGE = 500

Report = Callable[[dict[str, Any]], None]


def main() -> None:
    order_fd, report_fd = int(sys.argv[1]), int(sys.argv[2])
    with open(order_fd, encoding="utf-8") as file:
        order = json.load(file)
    sys.argv = ["program.py"]
    sys.orig_argv = []
    here = os.path.dirname(os.path.abspath(__file__))
    kernel, audit = _load(os.path.join(here, "kernel.py")), _load(os.path.join(here, "audit.py"))
    layers = _confine(order, kernel)
    token = order.pop("token")

    def report(record: dict[str, Any]) -> None:
        os.write(report_fd, (token + json.dumps(record) + "\n").encode())

    folder, without = order["folder"], order["without"]
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(HOME=folder, TMPDIR=folder)
    readable = _readable(order["site_packages"], programs=order["processes"])
    held = [
        "Landlock" not in without and kernel["restrict_files"](readable, folder, execute=order["processes"]),
        "seccomp" not in without and kernel["restrict_calls"](processes=order["processes"]),
        "audit hook" not in without
        and audit["install"](readable, folder, processes=order["processes"], native=bool(order["site_packages"])),
    ]
    layers += [layer for layer in held if layer]
    report({"layers": layers})
    sys.setrecursionlimit(20_000)
    # What the module "site" adds, which -S leaves out.
    vars(builtins).update(exit=sys.exit, quit=sys.exit)
    sys.path.extend(order["site_packages"])
    _MODES[order["mode"]](order, report)


def _load(path: str) -> dict[str, Any]:
    """A module of this folder by its file: under ``-I`` there is no path to import it from, and none shall be left."""
    space: dict[str, Any] = {"__name__": "sandbox"}
    with open(path, encoding="utf-8") as file:
        exec(compile(file.read(), path, "exec"), space)  # noqa: S102 - our own file
    return space


def _confine(order: dict[str, Any], kernel: dict[str, Any]) -> list[str]:
    """Session, namespaces and resource limits. With a process namespace this returns in a process within it."""
    kernel["die_with_parent"]()
    layers = ["own session"]
    if order["namespaces"] and "namespaces" not in order["without"]:
        layers += kernel["enter_namespaces"](order["folder"], order["folder_bytes"])
        if "process namespace" in layers:
            # The first process of the namespace, with which all others in it end, is ours, not the program's: a
            # program can cut itself loose from its parent.
            for _ in ("first", "program"):
                _go_on_in_child()
                kernel["die_with_parent"]()
            os.setsid()
            kernel["drop_capabilities"]()
    limits = {
        resource.RLIMIT_CPU: (order["cpu_s"],) * 2,
        resource.RLIMIT_AS: (order["memory_bytes"],) * 2,
        resource.RLIMIT_FSIZE: (order["file_bytes"],) * 2,
        resource.RLIMIT_NOFILE: (order["open_files"],) * 2,
        resource.RLIMIT_CORE: (0, 0),
        resource.RLIMIT_NPROC: (_processes_now() + order["more_processes"],) * 2,
    }
    for name, (soft, hard) in limits.items():
        _, most = resource.getrlimit(name)
        if most != resource.RLIM_INFINITY:
            soft, hard = min(soft, most), min(hard, most)
        resource.setrlimit(name, (soft, hard))
    return [*layers, "resource limits"]


def _go_on_in_child() -> None:
    """Returns in a new process; this one waits for it and ends as it does."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        os._exit(code if code >= 0 else 128 - code)


def _processes_now() -> int:
    """Tasks of the whole machine, which a user's own can only be fewer than: the limit counts all of them."""
    try:
        with open("/proc/loadavg") as file:
            return int(file.read().split()[3].split("/")[1])
    except (OSError, ValueError, IndexError):
        return 1000


def _readable(site_packages: list[str], *, programs: bool) -> list[str]:
    library = os.path.dirname(os.path.realpath(os.__file__))
    places = [library, *_SYSTEM_FOLDERS, *_SYSTEM_FILES, *site_packages]
    if sys.base_prefix not in ("/", "/usr", "/usr/local"):
        places.append(os.path.join(sys.base_prefix, "lib"))
    if programs:
        places += [*_PROGRAM_FOLDERS, os.path.join(sys.base_prefix, "bin"), os.path.join(sys.prefix, "bin")]
        places.append(os.path.join(sys.prefix, "pyvenv.cfg"))
    return [os.path.realpath(place) for place in places if os.path.exists(place)]


def _run_script(order: dict[str, Any], report: Report) -> None:
    """The program as a whole: reads stdin, writes stdout. An exit with status 0 is an end like any other."""
    try:
        space = {"__name__": "__main__", "__builtins__": __builtins__}
        exec(_compiled(order["prelude"]), space)  # noqa: S102 - the purpose
        exec(_compiled(order["source"]), space)  # noqa: S102 - the purpose
    except SystemExit as stop:
        if stop.code not in (None, 0):
            report({"error": f"SystemExit: {str(stop.code)[:_LONGEST_MESSAGE]}"})
            return
    except BaseException as error:  # noqa: BLE001 - whatever a program raises is its result
        report({"error": _message(error)})
        return
    sys.stdout.flush()
    report({"done": True})


def _run_check(order: dict[str, Any], report: Report) -> None:
    """Program, then tests that define ``check(candidate)``, then the check."""

    def checks(space: dict[str, Any]) -> None:
        exec(_compiled(order["test"]), space)  # noqa: S102 - the purpose
        space["check"](space[order["entry_point"]])
        report({"done": True})

    _after_program(order, report, checks)


def _run_unittest(order: dict[str, Any], report: Report) -> None:
    """Program, then tests that define unittest classes, then all of these."""

    def checks(space: dict[str, Any]) -> None:
        import unittest

        exec(_compiled(order["test"]), space)  # noqa: S102 - the purpose
        cases = [one for one in space.values() if isinstance(one, type) and issubclass(one, unittest.TestCase)]
        suite = unittest.TestSuite(unittest.defaultTestLoader.loadTestsFromTestCase(case) for case in cases)
        result = unittest.TextTestRunner(stream=io.StringIO(), verbosity=0).run(suite)
        failures = result.failures + result.errors
        failed = [f"{test.id().rsplit('.', 1)[-1]}: {_last_line(trace)}" for test, trace in failures]
        if result.testsRun == 0:
            report({"error": "the tests define no test"})
        elif failed:
            report({"error": f"{len(failed)} of {result.testsRun} tests fail, first {failed[0]}"[:_LONGEST_MESSAGE]})
        else:
            report({"done": True})

    _after_program(order, report, checks)


def _run_calls(order: dict[str, Any], report: Report) -> None:
    """Program, then its function (or its ``Solution``'s method) with each list of arguments. Values are reported."""

    def calls(space: dict[str, Any]) -> None:
        name = order["entry_point"]
        solution: Any = space.get("Solution")
        # The method first: the prelude may have a function of its name.
        function = getattr(solution(), name) if hasattr(solution, name) else space[name]
        for number, arguments in enumerate(order["calls"]):
            try:
                value = function(*arguments)
                encoded = json.loads(json.dumps(value))
            except BaseException as error:  # noqa: BLE001 - whatever a program raises is its result
                report({"call": number, "error": _message(error)})
                return
            report({"call": number, "value": encoded})
        report({"done": True})

    _after_program(order, report, calls)


def _after_program(order: dict[str, Any], report: Report, then: Callable[[dict[str, Any]], None]) -> None:
    # Not "__main__": what is below that guard is the program's own trial run.
    space: dict[str, Any] = {"__name__": "program", "__builtins__": __builtins__}
    sys.modules["program"] = type(sys)("program")
    try:
        exec(_compiled(order["prelude"]), space)  # noqa: S102 - the purpose
        exec(_compiled(order["source"]), space)  # noqa: S102 - the purpose
        vars(sys.modules["program"]).update(space)
        then(space)
    except BaseException as error:  # noqa: BLE001 - whatever a program raises is its result
        report({"error": _message(error)})


def _compiled(source: str) -> Any:
    return compile(source, "program.py", "exec", dont_inherit=True)


def _message(error: BaseException) -> str:
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 - an exception whose text fails, too
        text = ""
    return f"{type(error).__name__}: {text}"[:_LONGEST_MESSAGE].rstrip(": ")


def _last_line(trace: str) -> str:
    return trace.strip().rsplit("\n", 1)[-1]


_MODES = {"script": _run_script, "check": _run_check, "unittest": _run_unittest, "calls": _run_calls}

if __name__ == "__main__":
    main()
