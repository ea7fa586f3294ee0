"""Each room of the house is in a contract about imports, so that a new one cannot stand outside them all."""

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
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
