"""Finds Conductors by the names that conductors files give them.

NAME             of a table in ``conductors/*.toml`` of the data folder
FILE             a conductors file (a path, or one of that folder) that holds a single Conductor
FILE#NAME        one of several
"""

from pathlib import Path

from conductor_core.conductors.conductors_file import ConductorSpec, load_conductors_file
from conductor_core.errors import ConductorsInvalid, UnknownConductor
from conductor_core.files import expand_path, is_file, is_there
from conductor_core.privacy.masking import one_line
from conductor_core.settings import Settings


def conductors_files(settings: Settings) -> list[Path]:
    """Returns the conductors files of the data folder, sorted by name."""
    return sorted(file for file in settings.conductors_folder.glob("*.toml") if file.is_file())


def listed(settings: Settings) -> tuple[dict[str, ConductorSpec], list[str]]:
    """Returns all Conductors of the data folder by the name of each, and the faults of files that cannot be read."""
    found: dict[str, ConductorSpec] = {}
    specs, faults = _read(settings)
    for file, spec in specs:
        shared = sum(other.name == spec.name for _, other in specs) > 1
        found[f"{file.name}#{spec.name}" if shared else spec.name] = spec
    return found, [str(fault) for fault in faults]


def find(ref: str, settings: Settings) -> ConductorSpec | None:
    """Returns the Conductor that ``ref`` names; None if ``ref`` is no name or file of one.

    Raises: ConductorsInvalid with every fault of its file, UnknownConductor where the name is not clear.
    """
    path, _, name = ref.partition("#")
    if path.casefold().endswith(".toml"):
        file = _file(path, settings)
        return _of_file(file, load_conductors_file(file, settings.key_variables), name)
    specs, faults = _read(settings)
    same = [(file, spec) for file, spec in specs if spec.name == ref]
    if len(same) > 1:
        written = " or ".join(f"{file.name}#{ref}" for file, _ in same)
        raise UnknownConductor(f"{len(same)} Conductors are called {one_line(ref)!r}: write {written}")
    if same:
        return same[0][1]
    own = settings.conductors_folder / f"{ref}.toml"
    if Path(ref).name == ref and is_file(own):
        return _of_file(own, load_conductors_file(own, settings.key_variables), "")
    if faults and Path(ref).name == ref and not is_there(ref):
        raise faults[0]  # It may be the one that is meant.
    return None


def _file(path: str, settings: Settings) -> Path:
    given = expand_path(path)
    own = settings.conductors_folder / given
    return own if given.name == path and is_file(own) and not is_file(given) else given


def _of_file(file: Path, specs: tuple[ConductorSpec, ...], name: str) -> ConductorSpec:
    names = ", ".join(spec.name for spec in specs)
    if not name and len(specs) > 1:
        raise UnknownConductor(f"which Conductor of {one_line(str(file))}? It holds {names}: write {file.name}#NAME")
    found = specs[0] if not name else next((spec for spec in specs if spec.name == name), None)
    if found is None:
        raise UnknownConductor(f"no Conductor {one_line(name)!r} in {one_line(str(file))}, which holds {names}")
    return found


def _read(settings: Settings) -> tuple[list[tuple[Path, ConductorSpec]], list[ConductorsInvalid]]:
    specs: list[tuple[Path, ConductorSpec]] = []
    faults: list[ConductorsInvalid] = []
    for file in conductors_files(settings):
        try:
            specs += [(file, spec) for spec in load_conductors_file(file, settings.key_variables)]
        except ConductorsInvalid as fault:
            faults.append(fault)
    return specs, faults
