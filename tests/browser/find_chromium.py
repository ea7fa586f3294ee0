"""Chromium for the browser tests: `python -m tests.browser.find_chromium [--install]`.

Prints its path. With `--install` and no Chromium, Debian's package is installed where that is possible without asking.
Where there is none the browser layer does not run: that is said loudly, and with CI=true it is a failure.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

# The shell is the same browser without the windows around its pages, and takes less of the processor.
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
VARIABLE = "CHROMIUM"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
ABSENT = f"""
{"!" * 100}
!!  THE BROWSER TESTS DO NOT RUN: no Chromium was found, and it could not be installed.
!!  Install one (Debian: apt-get install chromium), or name its executable in the variable {VARIABLE}.
{"!" * 100}
"""


def find_chromium() -> Path | None:
    """The executable named by CHROMIUM, else the first known name on PATH."""
    if named := os.environ.get(VARIABLE):
        return Path(named) if Path(named).is_file() else None
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    return Path(found) if found else None


def may_be_absent() -> bool:
    """Whether a missing browser layer is only a warning: anywhere but in CI."""
    return os.environ.get("CI", "").lower() not in ("1", "true")


def install() -> None:
    """Installs the first of Debian's packages that it has, if we are root. Says what went wrong; raises nothing."""
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        return
    print("Installing Chromium with apt-get ...", file=sys.stderr)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], *(["install", "--yes", "--no-install-recommends", name] for name in NAMES[:2])):
        done = subprocess.run([apt, "--quiet", *command], env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"apt-get {command[0]} {command[-1]} failed: {done.stderr.strip()}", file=sys.stderr)
        elif command[0] == "install":
            return


def main(arguments: list[str]) -> int:
    """0: there is a Chromium, or it may be absent; 1: there is none in CI; 2: unknown arguments."""
    if set(arguments) - {"--install"}:
        print(__doc__, file=sys.stderr)
        return 2
    if find_chromium() is None and "--install" in arguments:
        install()
    found = find_chromium()
    if found is None:
        print(ABSENT, file=sys.stderr)
        return 0 if may_be_absent() else 1
    print(found)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
