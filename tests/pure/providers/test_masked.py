import pytest

from conductor_core.chat.messages import TextDelta
from conductor_core.privacy.masking import Mask
from conductor_core.providers import client
from conductor_core.providers.client import MaskedChunks


def test_a_long_chunk_comes_out_once_and_in_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a server that does not stream sends one: it is looked through in parts."""
    monkeypatch.setattr(client, "MOST_AT_ONCE", 10)
    chunks = MaskedChunks(Mask())
    text = "".join(map(str, range(100)))
    parts = [*chunks.feed(TextDelta(text=text)), *chunks.end()]
    assert "".join(part.text for part in parts if part is not None) == text
    assert parts.count(None) == 19
