import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor_core.privacy.detectors import SENSITIVE, OpenText, find

KINDS = frozenset(SENSITIVE)


def kinds_in(text: str, region: str | None = None) -> list[str]:
    return [found.kind for found in find(text, KINDS, region)]


FENCED, FENCE_ENDS = "-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("pay with 4111 1111 1111 1111 please", "cards"),
        ("5500-0000-0000-0004", "cards"),
        ("amex 378282246310005.", "cards"),
        ("write to ada.lovelace+x@mail.example.org, please", "mail"),
        (r'{"to": "ada\u0040example.org"}', "mail"),
        ("key sk-proj-a1b2c3d4e5f6g7h8i9", "keys"),
        ("Authorization: Bearer abcdef0123456789==", "keys"),
        ("AKIAIOSFODNN7EXAMPLE", "keys"),
        ("ghp_0123456789abcdefghijABCDEFGHIJ", "keys"),
        ("jwt-eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w", "keys"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w", "keys"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIEow==\n-----END RSA PRIVATE KEY-----", "keys"),
        (f"{FENCED}\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,A1\n\nMIIE\nMIIF==\n{FENCE_ENDS}", "keys"),
        ("-----BEGIN PGP PRIVATE KEY BLOCK-----\nComment: a-b\n\nlQ\n-----END PGP PRIVATE KEY BLOCK-----", "keys"),
        (f"{FENCED}\nMIIE cut-off", "keys"),
        ("glpat-0123456789abcdefghij", "keys"),
        ("npm_0123456789abcdefghijABCDEFGHIJ012345", "keys"),
        ("SG.0123456789abcdefghijkl.0123456789abcdefghijABCDEFGHIJ", "keys"),
        ("ring +49 30 901820 today", "phones"),
        ("ring +1 (650) 253-0000 today", "phones"),
    ],
)
def test_it_is_found(text: str, kind: str) -> None:
    assert kinds_in(text) == [kind]
    assert "MII" not in marked(text)


@pytest.mark.parametrize(
    "text",
    [
        "4111 1111 1111 1112",  # no card has this check digit
        "0.4111111111111111",
        "2026-11-24 16:21:17, 3.14159265358979, 10.0.0.1",
        "the token limit is 128000 tokens, user@host, a@b",
        "access_list = [[], [0], [0, 1]]",
        "030 901820",  # a number of no country that was named
        "sk-learn and basic facts",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert kinds_in(text) == []


def test_a_national_number_is_found_for_its_region() -> None:
    assert kinds_in("ring 030 901820 today", "DE") == ["phones"]


def marked(text: str) -> str:
    for found in reversed(find(text, KINDS)):
        text = f"{text[: found.low]}[{found.kind}]{text[found.high :]}"
    return text


PARTS = st.sampled_from(
    [
        "4111 1111 1111 1111",
        "ada@example.org",
        "Bearer abcdef0123456789==",
        "sk-proj-a1b2c3d4e5f6g7h8i9",
        "+49 30 901820",
        "-----BEGIN PRIVATE KEY-----\nMIIE ow==\n-----END PRIVATE KEY-----",
        f"{FENCED}\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES,A1\n\nMIIE\nMIIF==\n{FENCE_ENDS}",
        "words and more",
        "42",
        "\n",
        "für 中文",
    ]
)


@settings(max_examples=60)
@given(st.lists(PARTS, min_size=1, max_size=6), st.lists(st.integers(1, 9), min_size=1))
def test_no_way_of_cutting_a_stream_shows_what_is_hidden(parts: list[str], sizes: list[int]) -> None:
    text, shown, at, number = "; ".join(parts), "", 0, 0
    stream = OpenText(marked)
    while at < len(text):
        size = sizes[number % len(sizes)]
        shown += stream.feed(text[at : at + size])
        at, number = at + size, number + 1
    shown += stream.end()
    for secret in ("4111", "1111", "example.org", "abcdef0123456789", "a1b2c3d4", "901820", "MIIE", "MIIF"):
        assert secret not in shown
    assert shown == marked(text)


@pytest.mark.parametrize(
    "part",
    [
        "eyJaaaaaaaa-",
        "eyJaaaaaaaa.",
        "a-",
        "sk-",
        "hf_-",
        "+ 1234567, ",
        "a@a.",
        "4 ",
        "SG.",
        f"{FENCED}a",
        "-----BEGIN ",
    ],
)
def test_the_work_is_linear_in_the_length(part: str) -> None:
    """So long a text comes to its end. By the square of its length it would take many minutes."""
    text = part * (400_000 // len(part))
    assert all(text[found.low : found.high] for found in find(text, KINDS))


def test_ordinary_text_comes_a_word_late() -> None:
    stream = OpenText(marked)
    assert stream.feed("One two thr") == "One two "
    assert stream.feed("ee four ") == "three four "
    assert stream.end() == ""
