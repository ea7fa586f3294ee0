"""Says on stderr if what a command shows is not on record."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storage.store import Store


def not_on_record(store: "Store") -> None:
    """Waits until the looks of this command are kept, and says why if they are not. The command goes on."""
    if (why := store.looks.settle()) is not None:
        print(f"warning: this is not on record as a look: {' '.join(why.split())}", file=sys.stderr)
