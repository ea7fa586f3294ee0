"""What a command needs beyond the base installation: the distribution's extras."""

from importlib.util import find_spec

from conductor_core.errors import BadInput

EXTRAS = {"train": ("accelerate", "datasets", "trl"), "evaluate": ("datasets", "math_verify", "sklearn")}
"""By extra: the modules that it brings, as they are imported."""


def needs_extra(extra: str) -> None:
    """Raises: BadInput if a module of ``extra`` is not installed."""
    missing = [module for module in EXTRAS[extra] if find_spec(module) is None]
    if missing:
        raise BadInput(
            f'this command needs the extra "{extra}" ({", ".join(missing)} not installed). '
            f"In the folder of the source, run: pip install '.[{extra}]'"
        )
