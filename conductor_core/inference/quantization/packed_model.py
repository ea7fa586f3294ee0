"""Loads a model with packed weights. It packs them once, and maps the file at each later start. Imports torch."""

import logging
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from conductor_core.chat.progress import Notify
from conductor_core.files import FileLock
from conductor_core.inference.generation import Interrupted, ModelUnavailable, Packing
from conductor_core.inference.hardware import SMALL_PARAMETERS, Placement, needed_bytes, place
from conductor_core.inference.loading import load_weights, to_device
from conductor_core.inference.quantization import packed_file
from conductor_core.inference.quantization.choice import kept_trial
from conductor_core.inference.quantization.conversion import Layer, layers_to_pack, packed_tensors, put_in_place
from conductor_core.inference.quantization.linear import Reading
from conductor_core.inference.quantization.packing import nibble_layout
from conductor_core.inference.quantization.places import packed_path
from conductor_core.inference.source import SETTLED_S, ModelFiles, model_stamp
from conductor_core.precision import Packed

log = logging.getLogger(__name__)

FORM = "1"
"""The version of these files. Raise it when weights are packed in another way than before."""
SPARE_BYTES = 200_000_000
"""Bytes that a conversion leaves free on the disk: a database that meets a full one loses more than a model."""
_FEW_OF_A_SMALL_ONE = 16
_POLL_S = 0.2


def load(
    files: ModelFiles, placement: Placement, packing: Packing | None, notify: Notify, cancelled: Callable[[], bool]
) -> tuple[Any, Placement]:
    """Returns the model on its device, and how it came to be placed: a trial may pack it for speed.

    Raises: ModelUnavailable, Interrupted, and what transformers raises.
    """
    if packing is not None:
        placement = quickest(files, placement, packing)
        if placement.precision is not None:
            try:
                return _packed(files, placement, placement.precision, packing.folder, notify, cancelled), placement
            except ModelUnavailable as error:
                whole = place(files.parameters)
                if packing.choice != "auto" or not whole.fits:
                    raise
                log.warning("%s keeps its weights as they are: %s", files.folder, error)
                placement = whole
    model = load_weights(files, getattr(torch, placement.dtype), notify, cancelled)
    return to_device(model, placement.device, notify, cancelled), placement


def quickest(files: ModelFiles, placement: Placement, packing: Packing) -> Placement:
    """Returns ``placement`` with packed weights if the choice is ``auto`` and a trial finds them quicker.

    A small model, one on a graphics card and one whose architecture does not tell its sizes stay as they are.
    """
    if packing.choice != "auto" or placement.precision is not None or placement.device != "cpu":
        return placement
    shape = _shape(files)
    if files.parameters < SMALL_PARAMETERS or shape is None:
        return placement
    precision = kept_trial(packing.folder, *shape).packed_for_speed(placement.dtype)
    if precision is None:
        return placement
    needed = needed_bytes(files.parameters, precision)
    return replace(placement, dtype="bfloat16", precision=precision, needed_bytes=needed)


def _packed(
    files: ModelFiles,
    placement: Placement,
    precision: Packed,
    folder: Path,
    notify: Notify,
    cancelled: Callable[[], bool],
) -> Any:
    """Returns the model with its weights in ``precision``, which are kept in ``folder``."""
    dtype = getattr(torch, placement.dtype)
    packed = _PackedWeights(files, precision, dtype, folder)
    # In the checkpoint's own number format: mapped, and not copied only to be packed.
    model = load_weights(files, "auto", notify, cancelled)
    layers = layers_to_pack(model, precision)
    if packed.fault(layers) is not None:
        packed.make(model, layers, notify, cancelled)
        # The pages of the weights that were packed leave memory with the model that mapped them.
        del model
        model = load_weights(files, "auto", notify, cancelled)
    put_in_place(model, layers, packed_file.mapped(packed.path), readings(files, folder, dtype))
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    return model


class _PackedWeights:
    """The file of one model's weights in one precision."""

    def __init__(self, files: ModelFiles, precision: Packed, dtype: torch.dtype, folder: Path) -> None:
        """Raises: ModelUnavailable if the model's files change now."""
        self.path = packed_path(folder, files.folder, precision)
        self._files, self._precision, self._dtype = files, precision, dtype
        self._stamp = _settled_stamp(files.folder)
        self._metadata = {
            "format": FORM,
            "model": self._stamp,
            "precision": precision,
            "layout": repr(nibble_layout()) if precision == "int4" else "",
        }

    def fault(self, layers: dict[str, Layer]) -> str | None:
        """Says why the file is not used; empty if it is not there, None if it is there, whole, and of this model."""
        try:
            packed_file.check(self.path, self._forms(layers), self._metadata)
        except FileNotFoundError:
            return ""
        except Exception as error:  # noqa: BLE001 a file from elsewhere makes its reader raise anything
            return str(error).partition("\n")[0] or type(error).__name__
        return None

    def make(self, model: Any, layers: dict[str, Layer], notify: Notify, cancelled: Callable[[], bool]) -> None:
        """Packs the weights of ``model`` into the file, unless another process did it meanwhile.

        Raises: ModelUnavailable, Interrupted.
        """
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = FileLock(self.path.with_suffix(".lock"))
            try:
                while not lock.acquire(_POLL_S):
                    if cancelled():
                        raise Interrupted
                fault = self.fault(layers)
                if fault:
                    log.warning("%s is not used and made again: %s", self.path, fault)
                if fault is not None:
                    self._write(model, layers, notify, cancelled)
            finally:
                lock.close()
        except OSError as error:
            raise ModelUnavailable(
                f"the weights in {self._precision} cannot be kept in {self.path.parent}: {error.strerror or error}: "
                "make room there, or choose --precision bf16"
            ) from error

    def _write(self, model: Any, layers: dict[str, Layer], notify: Notify, cancelled: Callable[[], bool]) -> None:
        self.path.unlink(missing_ok=True)
        forms = self._forms(layers)
        needed, free = packed_file.size_of(forms), shutil.disk_usage(self.path.parent).free
        if needed + SPARE_BYTES > free:
            raise ModelUnavailable(
                f"the weights in {self._precision} need {needed / 1e9:.1f} GB in {self.path.parent}, where "
                f"{free / 1e9:.1f} GB are free: make room, or choose --precision bf16"
            )
        began_s = time.monotonic()

        def tensors() -> Any:
            yield from packed_tensors(model, layers, self._dtype, notify, cancelled)
            if model_stamp(self._files.folder) != self._stamp:
                raise ModelUnavailable(f"{self._files.folder} was changed while its weights were packed: try again")

        packed_file.write(self.path, forms, self._metadata, tensors())
        log.info("%s: %.1f GB in %.0f s", self.path, needed / 1e9, time.monotonic() - began_s)

    def _forms(self, layers: dict[str, Layer]) -> dict[str, packed_file.Form]:
        return {name: form for each, layer in layers.items() for name, form in layer.forms(each, self._dtype).items()}


def readings(files: ModelFiles, folder: Path, dtype: torch.dtype) -> dict[Packed, Reading]:
    shape = _shape(files)
    if files.parameters < SMALL_PARAMETERS or shape is None:
        same = Reading(_FEW_OF_A_SMALL_ONE, dtype)
        return {"int8": same, "int4": same}
    trial = kept_trial(folder, *shape)
    return {"int8": trial.reading("int8", dtype), "int4": trial.reading("int4", dtype)}


def _shape(files: ModelFiles) -> tuple[int, int] | None:
    """Returns rows and columns of the largest layers that a model has many of; None if it does not tell."""
    text = files.config.get("text_config")
    config = {**files.config, **text} if isinstance(text, dict) else files.config
    rows, columns = config.get("intermediate_size"), config.get("hidden_size")
    return (rows, columns) if type(rows) is int and type(columns) is int and rows > 0 < columns else None


def _settled_stamp(folder: Path) -> str:
    """Returns the stamp of a model, once its files are old enough. Raises: ModelUnavailable."""
    until_s = time.monotonic() + SETTLED_S + 1
    while (stamp := model_stamp(folder)) is None:
        if time.monotonic() > until_s:
            raise ModelUnavailable(f"{folder} is being changed, or cannot be read: its weights are not packed")
        time.sleep(_POLL_S)
    return stamp
