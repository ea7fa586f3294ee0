"""The tree is what it says: what is installed is all that is there, rooms are in layers, links and commands exist."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from conductor_core.cli import inputs
from conductor_core.errors import BadInput
from tests.settings_table import table

ROOT = Path(__file__).resolve().parents[2]
TOP = ("conductor_core", "storage", "pages")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SETUPTOOLS = PYPROJECT["tool"]["setuptools"]
PINNED = re.compile(r"([\w.-]+)==([\w.+-]+)")
# Where what an extra brings may be imported when the module is.
OF_EXTRAS = {
    "train": ("conductor_core/lab/training",),
    "evaluate": (
        "conductor_core/grading",
        "conductor_core/lab/evaluation",
        "conductor_core/lab/training",
        "conductor_core/tiers",
    ),
    "otlp": ("conductor_core/export",),
    "privacy": ("conductor_core/privacy/detectors.py",),
    "names": ("conductor_core/privacy/detectors.py",),
}


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
    shipped = ROOT / "conductor_core" / "lab" / "records" / "shipped"
    places = (shipped, ROOT / "conductor_core" / "run" / "shipped")
    files = [path for place in places for path in place.rglob("*") if path.is_file()]
    assert files
    named = {str(path.relative_to(ROOT)) for path in files if re.search(r'"(/|~|[A-Z]:\\)', path.read_text("utf-8"))}
    assert not named


def test_everything_imported_is_declared() -> None:
    base = _names(PYPROJECT["project"]["dependencies"])
    brought = {name: _names(lines) for name, lines in PYPROJECT["project"]["optional-dependencies"].items()}
    undeclared = []
    for file in [ROOT / "app.py", *(file for top in TOP for file in ROOT.glob(f"{top}/**/*.py"))]:
        place = file.relative_to(ROOT).as_posix()
        declared = base.union(*(brought[extra] for extra, rooms in OF_EXTRAS.items() if place.startswith(rooms)))
        undeclared += [f"{place}: {module}" for module in _imported(file) if not _distributions(module) & declared]
    assert undeclared == []


def test_everything_declared_is_pinned_in_the_constraints() -> None:
    constraints = dict(PINNED.findall((ROOT / "constraints.txt").read_text("utf-8")))
    project = PYPROJECT["project"]
    declared = [
        *project["dependencies"],
        *(line for lines in project["optional-dependencies"].values() for line in lines),
    ]
    declared += [line for line in (ROOT / "requirements-dev.txt").read_text("utf-8").splitlines() if line[:1] != "#"]
    for line in declared:
        wanted = Requirement(line)
        version = constraints.get(_normal(wanted.name))
        assert version is not None and version in wanted.specifier, f"{wanted.name}: run `make constraints`"  # noqa: PT018


@pytest.mark.parametrize("extra", inputs.EXTRAS)
def test_a_command_knows_what_its_extra_brings(extra: str) -> None:
    brought = set[str]().union(*(_distributions(module) for module in inputs.EXTRAS[extra]))
    assert brought == _names(PYPROJECT["project"]["optional-dependencies"][extra])
    inputs.needs_extra(extra)


def test_without_its_extra_a_command_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "find_spec", lambda module: None if module == "trl" else object())
    with pytest.raises(
        BadInput, match=r"extra \"train\" \(trl not installed\).*pip install 'conductor-inspector\[train\]'"
    ):
        inputs.needs_extra("train")


def _imported(file: Path) -> set[str]:
    """Top-level modules that are neither ours nor Python's."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - {*TOP, "conductor_inspector"}


_installed = cache(metadata.packages_distributions)


def _distributions(module: str) -> set[str]:
    """Returns the distributions that bring ``module``; of a part of a shared package those that bring the part.

    A module that is not installed, as of the extra ``names``, comes with the distribution of its name.
    """
    top, _, part = module.partition(".")
    found = _installed().get(top, [top])
    if part:
        folder = f"{module.replace('.', '/')}/"
        found = [name for name in found if any(str(file).startswith(folder) for file in metadata.files(name) or ())]
    return {_normal(name) for name in found}


def _names(lines: list[str]) -> set[str]:
    return {_normal(Requirement(line).name) for line in lines}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_no_library_tells_its_maker_of_a_training() -> None:
    from huggingface_hub import constants

    assert constants.HF_HUB_DISABLE_TELEMETRY


CONTRACTS = PYPROJECT["tool"]["importlinter"]["contracts"]
PACKAGES = ("conductor_core", "storage", "pages/components")
LAYERED = {
    f"{container}.{name}".strip(".")
    for contract in CONTRACTS
    if contract["type"] == "layers"
    for container in contract.get("containers", [""])
    for layer in contract["layers"]
    for name in layer.split(" | ")
}


def parts(folder: Path) -> Iterator[str]:
    """Yields the rooms and the files that lie in ``folder``, as modules."""
    for path in sorted(folder.iterdir()):
        if (path.is_dir() and (path / "__init__.py").exists()) or (path.suffix == ".py" and path.stem != "__init__"):
            yield ".".join(path.relative_to(ROOT).with_suffix("").parts)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_room_and_root_file_is_in_a_layer(package: str) -> None:
    assert sorted(set(parts(ROOT / package)) - LAYERED) == []


def test_contracts_name_rooms_that_are_there_and_excuse_nothing() -> None:
    there = {
        module for package in ("conductor_core", "storage", "pages/components") for module in parts(ROOT / package)
    }
    lab = {module for room in ("", "training") for module in parts(ROOT / "conductor_core/lab" / room)}
    assert sorted(LAYERED - there - lab - {"pages", "storage"}) == []
    assert not [contract["name"] for contract in CONTRACTS if "ignore_imports" in contract]


PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\]\((?!https?://|#)([^)#\s]+)")
COMMAND = re.compile(r"(bin/|`|^)conductor ([a-z]+)", re.MULTILINE)


def test_the_settings_page_is_as_generated() -> None:
    assert (ROOT / "docs" / "settings.md").read_text(encoding="utf-8") == table()


def test_every_link_leads_to_a_file() -> None:
    links = [(page, link) for page in PAGES for link in LINK.findall(page.read_text(encoding="utf-8"))]
    assert [(page.name, link) for page, link in links if not (page.parent / link).exists()] == []


def test_every_command_of_the_readme_exists() -> None:
    pages = [ROOT / "README.md", ROOT / "docs" / "command-line.md"]
    named = {command for page in pages for _, command in COMMAND.findall(page.read_text(encoding="utf-8"))}
    offered = subprocess.run(
        [sys.executable, "-m", "conductor_core", "--help"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    assert named
    assert {command for command in named if not re.search(rf"^\s+{command}\b", offered, re.MULTILINE)} == set()


def test_the_clauses_name_tests_that_exist_and_claim_no_more() -> None:
    text = (ROOT / "docs" / "audit.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text)
    assert len(named) > 20
    missing = [
        (file, test)
        for file, test in named
        if not (ROOT / file).is_file() or f"def {test}" not in (ROOT / file).read_text(encoding="utf-8")
    ]
    assert missing == []
    assert re.findall(r"(?i)immutable|tamper-?proof|compliant with|guarantee", text) == []
