"""A Python that has cryptography, and nothing else beside its own library: what an auditor has."""

import os
from pathlib import Path

import cryptography


def python_alone(folder: Path) -> dict[str, str]:
    """Returns the environment for ``python -S -s``. ``folder``: where it puts links to the package."""
    packages = folder / "packages"
    packages.mkdir()
    site = Path(cryptography.__file__).parents[1]
    for found in [*site.glob("cryptography*"), *site.glob("cffi*"), *site.glob("_cffi_backend*")]:
        (packages / found.name).symlink_to(found)
    return {"PYTHONPATH": str(packages), "PATH": os.environ["PATH"]}
