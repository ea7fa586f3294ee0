"""What the settings say about texts that are stored."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from conductor_core.privacy.detectors import PersonNames, Sensitive
from conductor_core.settings import Settings
from storage.privacy.vault import MasterKey, Vault, derived, keys_beside, place_beside, read, read_or_make


@dataclass(frozen=True)
class Privacy:
    """
    Attributes:
        redact: what is hidden before it is stored, besides configured keys.
        region: whose national phone numbers are found.
        names_model: what finds names of people, if they are hidden.
        digests: whether a keyed digest of each hidden passage is noted.
        encrypt: whether new runs are encrypted.
        master_key: the file of the master key; None: beside the database.
    """

    redact: frozenset[Sensitive] = frozenset()
    region: str | None = None
    names_model: str = ""
    digests: bool = False
    master_key: Path | None = None
    encrypt: bool = False

    @classmethod
    def of(cls, settings: Settings) -> Self:
        return cls(
            redact=frozenset(settings.redact),
            region=settings.redact_region,
            names_model=settings.redact_names_model,
            digests=settings.redact_digests,
            master_key=settings.master_key,
            encrypt=settings.encrypt,
        )

    def master_key_of(self, database: Path) -> Path:
        """Returns the file of the master key of the database at this path."""
        return self.master_key or place_beside(database)

    def vault(self, database: Path, is_stored: Callable[[str], bool | None] = lambda run_id: None) -> Vault:
        """Returns the keys of the runs of the database at this path. ``is_stored``: as ``Vault`` has it."""
        master = MasterKey(self.master_key_of(database))
        return Vault(keys_beside(database), master, encrypts=self.encrypt, is_stored=is_stored)

    def digest_key(self, database: Path) -> bytes | None:
        """Returns the key of the digests of what is hidden; None if none is noted. Raises: StoreError."""
        return derived(read_or_make(self.master_key_of(database)), "digests") if self.digests else None

    def people(self) -> PersonNames | None:
        """Returns what finds names of people; None if they are not hidden. Raises: BadInput, which says what to do."""
        return PersonNames(self.names_model) if "names" in self.redact else None

    def search_key(self, database: Path, *, make: bool) -> bytes | None:
        """Returns the key of the digests of words that were searched for. Raises: StoreError.

        ``make``: makes a master key if there is none; else the key is then None.
        """
        file = self.master_key_of(database)
        key = read_or_make(file) if make else read(file)
        return None if key is None else derived(key, "searches")
