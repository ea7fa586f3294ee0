"""What a pool file or a conductors file would say that held a text, with every fault instead of an error."""

from collections.abc import Collection
from pathlib import Path

from conductor_core.chat.messages import WorkerSpec
from conductor_core.conductors.conductors_file import ConductorsForm, ConductorSpec
from conductor_core.providers.model_files import parse_model_file
from conductor_core.workers.pool_file import PoolForm


def parse_pool(text: str, key_variables: Collection[str] = ()) -> tuple[tuple[WorkerSpec, ...], list[str]]:
    """The workers written in ``text``, and every fault with its place. With a fault there are no workers."""
    read, faults = parse_model_file(text, PoolForm, key_variables)
    return () if read is None else tuple(WorkerSpec(**table.given) for table in read.worker), faults


def parse_conductors(text: str, key_variables: Collection[str] = ()) -> tuple[tuple[ConductorSpec, ...], list[str]]:
    """The Conductors written in ``text``, and every fault with its place. With a fault there are none."""
    read, faults = parse_model_file(text, ConductorsForm, key_variables)
    return () if read is None else tuple(table.spec(Path()) for table in read.conductor), faults
