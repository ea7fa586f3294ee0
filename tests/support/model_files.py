"""What a pool file or a conductors file would say that held a text, with every fault instead of an error."""

from collections.abc import Collection
from pathlib import Path

from conductor_core.chat.messages import WorkerSpec
from conductor_core.conductors import conductors_file
from conductor_core.conductors.conductors_file import ConductorSpec
from conductor_core.providers.model_files import parse_document
from conductor_core.workers import pool_file


def parse_pool(text: str, key_variables: Collection[str] = ()) -> tuple[tuple[WorkerSpec, ...], list[str]]:
    """The workers written in ``text``, and every fault with its place. With a fault there are no workers."""
    document, faults = parse_document(text, pool_file._FORM, key_variables)
    return tuple(pool_file._spec(table) for table in document.tables), faults


def parse_conductors(text: str, key_variables: Collection[str] = ()) -> tuple[tuple[ConductorSpec, ...], list[str]]:
    """The Conductors written in ``text``, and every fault with its place. With a fault there are none."""
    document, faults = parse_document(text, conductors_file._form(Path()), key_variables)
    return tuple(conductors_file._spec(table, Path()) for table in document.tables), faults
