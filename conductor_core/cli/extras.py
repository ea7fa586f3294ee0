"""What a command needs beyond the base installation: the distribution's extras."""

from importlib.util import find_spec

from conductor_core.errors import BadInput

EXTRAS = {
    "train": ("accelerate", "datasets", "trl"),
    "evaluate": ("datasets", "math_verify", "sklearn"),
    "otlp": (
        "opentelemetry.trace",
        "opentelemetry.sdk",
        "opentelemetry.exporter.otlp.proto.http",
        "opentelemetry.exporter.otlp.json.common",
        "requests",
    ),
}
"""By extra: the modules that it brings, as they are imported."""


def needs_extra(extra: str) -> None:
    """Raises: BadInput if a module of ``extra`` is not installed."""
    missing = [module for module in EXTRAS[extra] if not _is_installed(module)]
    if missing:
        raise BadInput(
            f'this command needs the extra "{extra}" ({", ".join(missing)} not installed). '
            f"In the folder of the source, run: pip install '.[{extra}]'"
        )


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a package above it is missing
        return False
