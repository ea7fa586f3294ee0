"""What is installed is all that is in the tree: a package or a data file left out shows only on another machine."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOP = ("conductor_core", "storage", "pages")
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]


def test_every_package_is_installed() -> None:
    found = {
        ".".join(file.parent.relative_to(ROOT).parts) for top in TOP for file in ROOT.glob(f"{top}/**/__init__.py")
    }
    assert set(SETUPTOOLS["packages"]) == found | set(SETUPTOOLS["package-dir"])


def test_every_module_is_in_a_package() -> None:
    modules = [file for top in TOP for file in ROOT.glob(f"{top}/**/*.py")]
    assert [file for file in modules if not (file.parent / "__init__.py").exists()] == []


def test_every_data_file_is_installed() -> None:
    there = {
        file
        for top in TOP
        for file in ROOT.glob(f"{top}/**/*")
        if file.is_file() and file.suffix != ".py" and "__pycache__" not in file.parts
    }
    installed: set[Path] = set()
    for package, patterns in SETUPTOOLS["package-data"].items():
        folder = ROOT / SETUPTOOLS["package-dir"].get(package, package.replace(".", "/"))
        for pattern in patterns:
            # A pattern that ends in ** means files at any depth; pathlib's means folders.
            found = set(folder.glob(f"{pattern}/*" if pattern.endswith("**") else pattern))
            assert found, f"{package}: nothing is named {pattern}"
            installed |= {file for file in found if file.is_file()}
    assert there - installed == set()


def test_what_is_shipped_names_no_folder_of_the_machine_it_was_made_on() -> None:
    shipped = ROOT / "conductor_core" / "records" / "shipped"
    files = [path for path in shipped.rglob("*") if path.is_file()]
    assert files
    named = {str(path.relative_to(ROOT)) for path in files if re.search(r'"(/|~|[A-Z]:\\)', path.read_text("utf-8"))}
    assert not named
