"""Keys that a person typed into a page: in this process's memory, for one browser session, and written nowhere."""

from typing import Never

from conductor_core.errors import BadInput
from conductor_core.privacy import masking
from conductor_core.privacy.keys import can_be_hidden, is_set

TYPED_KEY = "TYPED_API_KEY"
"""Stands where a model names the variable of its key, if the key was typed. The environment is not asked for it."""
GONE = (
    "its key was typed into a page and is not here: such a key serves only the browser session in which it was typed; "
    "type it again on the Run page, or name a variable of the environment in api_key_env"
)
_LONGEST = 1_000


class TypedKeys:
    """The keys of one browser session, each for one server and no other.

    Clients of models hold this object and no key, so that nobody has a key once it is forgotten. What is known of keys
    for hiding them in texts (``masking.known``) stays, because a server may echo one later.
    """

    def __init__(self) -> None:
        self._by_server: dict[str, str] = {}

    def put(self, base_url: str, key: str) -> None:
        """Takes a key for that server alone, and has it hidden everywhere from now on.

        Raises: BadInput for what no key looks like. No message holds it.
        """
        key = key.strip()
        if not (key.isascii() and key.isprintable()) or " " in key or len(key) > _LONGEST:
            raise BadInput("this has characters that no key has, or is too long for one")
        if not can_be_hidden(key):
            raise BadInput("this is too short, or too much like a word, to be hidden where a server repeats it")
        masking.remember(key)
        self._by_server[base_url] = key

    def of(self, base_url: str | None) -> str | None:
        return None if base_url is None else self._by_server.get(base_url)

    def forget(self, base_url: str | None = None) -> None:
        """Forgets the key for that server; None: all of them."""
        if base_url is None:
            self._by_server.clear()
        else:
            self._by_server.pop(base_url, None)

    def __len__(self) -> int:
        return len(self._by_server)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<{len(self)} typed keys>"

    def __reduce__(self) -> Never:
        raise TypeError("typed keys stay in memory")


def has_key(variable: str, base_url: str | None, keys: TypedKeys | None) -> bool:
    """Whether the key that a model names is there: in the environment, or typed for its server."""
    if variable == TYPED_KEY:
        return keys is not None and keys.of(base_url) is not None
    return is_set(variable)
