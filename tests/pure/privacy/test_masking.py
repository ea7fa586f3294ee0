"""Keys in text: found in every form in which one is met, also split anywhere, and nothing else is touched."""

import base64
import logging
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from uvicorn.logging import AccessFormatter

from conductor_core.chat.messages import WorkerSpec
from conductor_core.errors import BadInput
from conductor_core.privacy import masking
from conductor_core.privacy.masking import MARK, MOST_BETWEEN, Mask, MaskedText, environment_keys, folded
from conductor_core.settings import Settings
from conductor_core.workers.pool import open_worker

KEY = "sk-proj-W4nBEoonCr+bZ/INl7dQx2Yv9HsKjTgMuPw5aRf"
HEX_KEY = "3f9a1c07be52d86488e1f0aa4c7d3b96"
MASK = Mask([KEY, HEX_KEY])
README = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")

FORMS = {
    "as it is": KEY,
    "capitals": KEY.upper(),
    "small": KEY.lower(),
    "base64": base64.b64encode(KEY.encode()).decode(),
    "base64 for URLs": base64.urlsafe_b64encode(KEY.encode()).decode(),
    "base64 with a name": base64.b64encode(f"user:{KEY}".encode()).decode(),
    "base64 in JSON": base64.b64encode(f'{{"k":"{KEY}"}}'.encode()).decode(),
    "base64 in lines": base64.encodebytes(b"." * 42 + KEY.encode()).decode(),
    **{f"base32 after {before}": base64.b32encode(b"." * before + KEY.encode()).decode() for before in range(5)},
    **{f"base64 after {before}": base64.b64encode(b"." * before + KEY.encode()).decode() for before in range(3)},
    "UTF-16": KEY.encode("utf-16-le").decode(),
    "UTF-16, the other end first": KEY.encode("utf-16-be").decode("latin-1"),
    "hex": KEY.encode().hex(),
    "HEX with colons": KEY.encode().hex(":").upper(),
    "URL": quote(KEY, safe=""),
    "URL, every character": "".join(f"%{byte:02X}" for byte in KEY.encode()),
    "JSON": "".join(f"\\u{ord(char):04x}" for char in KEY),
    "zero-width spaces": "\u200b".join(KEY),
    "joiners and marks": "\u200d\u0336\ufeff".join(KEY),
    "spaced": " ".join(KEY),
    "a column": "\n    ".join(KEY),
    "cut in front": KEY[17:],
    "cut behind": KEY[:-17],
    "its middle": KEY[12:30],
}


def letters_left(form: str, shown: str) -> int:
    """The longest run of the form's letters and digits that can still be read."""
    hidden = folded(form)
    longest = 0
    for part in shown.split(MARK):
        left = folded(part)
        for start in range(len(left)):
            while left[start : start + longest + 1] in hidden and start + longest < len(left):
                longest += 1
    return longest


@pytest.mark.parametrize("name", FORMS)
def test_a_key_is_found_in_every_form(name: str) -> None:
    form = FORMS[name]
    shown = MASK.text(f"It is <{form}>. What else?")
    assert MARK in shown
    assert shown.startswith("It is <")
    assert shown.endswith(". What else?")
    # Of the characters around a base64 text some bits are shared with its neighbours.
    assert letters_left(FORMS["base64"] if "lines" in name else form, shown[5:-13]) <= (
        12 if "base32" in name else 10 if "base64 " in name else 6
    )


@pytest.mark.parametrize("size", [1, 2, 3, 7, 11, 40])
@pytest.mark.parametrize("name", FORMS)
def test_a_key_is_found_over_the_pieces_of_a_stream(name: str, size: int) -> None:
    text = f"It is <{FORMS[name]}>. What else?"
    masked = MaskedText(MASK)
    pieces = [masked.feed(text[at : at + size]) for at in range(0, len(text), size)]
    assert "".join([*pieces, masked.end()]) == MASK.text(text)


_PARTS = st.lists(
    st.one_of(
        st.integers(0, len(KEY)).flatmap(lambda at: st.integers(at, len(KEY)).map(lambda end: KEY[at:end])),
        st.sampled_from(
            [KEY, HEX_KEY, KEY.upper(), KEY.encode().hex(), FORMS["base64 with a name"], "\u200b".join(KEY)]
        ),
        st.text(max_size=6),
        st.text(alphabet=" .-\n\u200b中", max_size=MOST_BETWEEN + 4),
        st.sampled_from(["s", "sk", "sk-proj", "W4", "㎏"]),
    ),
    max_size=8,
).map("".join)


@given(_PARTS, st.data())
@example(text=KEY[:10] + " " * (MOST_BETWEEN + 1) + KEY[10:], data=None)
def test_what_is_shown_does_not_depend_on_how_a_text_is_split(text: str, data: st.DataObject | None) -> None:
    places = [10, 11, 20] if data is None else data.draw(st.lists(st.integers(0, len(text)), max_size=6))
    masked = MaskedText(MASK)
    cuts = [0, *sorted(places), len(text)]
    shown = "".join(masked.feed(text[low:high]) for low, high in pairwise(cuts)) + masked.end()
    assert shown == MASK.text(text)
    whole = MaskedText(MASK)
    assert "".join(map(whole.feed, text)) + whole.end() == shown


@given(_PARTS)
def test_no_piece_of_a_key_is_left(text: str) -> None:
    for part in MASK.text(text).split(MARK):
        # Where too much stands between two characters of a key, it is no key any more.
        runs = "".join(char if folded(char) else "." for char in part).replace("." * (MOST_BETWEEN + 1), "§").split("§")
        for run in map(folded, runs):
            for key in (KEY, HEX_KEY):
                assert not any(folded(key)[at : at + 12] in run for at in range(len(folded(key)) - 11))


@given(st.text())
@example(text=README)
def test_text_without_a_key_stays(text: str) -> None:
    masked = MaskedText(MASK)
    assert masked.feed(text) + masked.end() == text


def test_a_stream_of_ordinary_text_is_hardly_held_back() -> None:
    masked, late = MaskedText(MASK), 0
    given_out = read = 0
    for word in README.split(" "):
        read += len(word) + 1
        given_out += len(masked.feed(f"{word} "))
        late += given_out < read
        assert read - given_out <= 20
    assert late <= README.count(" ") * 0.05


@pytest.mark.parametrize("end", ["sk-proj-W4nBE", "sk-proj-W4nBE" + " " * MOST_BETWEEN])
def test_what_is_held_back_is_bounded_and_comes_in_the_end(end: str) -> None:
    masked = MaskedText(MASK)
    shown = masked.feed(f"text {end}")
    assert shown == "text sk-"
    assert shown + masked.end() == f"text {end}"
    masked = MaskedText(MASK)
    assert masked.feed(f"text {end}") + masked.feed(" " * MOST_BETWEEN + "中") == f"text {end}{' ' * MOST_BETWEEN}中"


@pytest.mark.parametrize(
    "key",
    [
        *("", "x", "EMPTY", "none", "ollama", "test", "test1234", "dummy", "not-needed", "lm-studio", "password1"),
        *("k-123", "sk-1234", "hunter2", "--------------", "Bearer", "sk-test"),
    ],
)
def test_a_short_or_common_key_masks_nothing(key: str) -> None:
    mask = Mask([key])
    assert not mask
    assert mask.text(f"{key} is {key}.") == f"{key} is {key}."


@pytest.mark.parametrize(
    "key",
    [
        "sk-no-key-required",
        "correct-horse-battery-staple",
        "MySecretPassphrase",
        "llama3-local-server-key",
        "one-two-and-four-six",
    ],
)
def test_a_key_of_words_masks_itself_alone(key: str) -> None:
    mask = Mask([key])
    words = key.replace("-", " ").replace("Secret", " Secret ")
    ordinary = f"{key[:-3]}, {words}, {key[4:]}"
    assert mask.text(ordinary) == ordinary
    for form in (key, key.upper(), "\u200b".join(key)):
        assert MARK in mask.text(form)
        assert letters_left(key, mask.text(form)) <= 2
    assert MARK in mask.text(base64.b64encode(key.encode()).decode())


def test_a_key_of_a_known_form_leaves_talk_about_that_form_alone() -> None:
    keys = ["sk-ant-api03-Zk3vQ9xT1bLw8RmY5nHc2JdF7gPs4KuA", "sk-or-v1-9f8e7d6c5b4a39281706f5e4d3c2b1a0"]
    text = "Anthropic's begin with sk-ant-api03-..., OpenRouter's with sk-or-v1-..., OpenAI's with sk-proj- or sk-."
    assert Mask(keys).text(text) == text


@pytest.mark.parametrize(
    "key", ["k3Y9-x7Qa-22", "9f8e7d6c", "a8f3k2m9x7q1", "zqxvkjwpmrtlbnhgfdscqzxw", "123456789012345678"]
)
def test_odd_keys_are_found_too(key: str) -> None:
    shown = Mask([key]).text(f"it is {key} or {key.encode().hex()} or {base64.b64encode(key.encode()).decode()}")
    assert letters_left(key, shown) <= 3
    assert shown.count(MARK) == 3


@pytest.mark.parametrize("key", ["k-123", "hunter2", "ollama", "test1234"])
def test_a_key_that_could_not_be_hidden_is_refused_where_it_is_configured(
    monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("OUR_API_KEY", key)
    spec = WorkerSpec(name="w", provider="openai", model="m", base_url="http://127.0.0.1:9", api_key_env="OUR_API_KEY")
    with pytest.raises(BadInput, match="the key in OUR_API_KEY is too short, or too much like a word") as caught:
        open_worker(spec, Settings())
    assert key not in str(caught.value)
    monkeypatch.setenv("OUR_API_KEY", HEX_KEY)
    assert open_worker(spec, Settings())


def test_remembered_keys_are_hidden_in_every_log(caplog: pytest.LogCaptureFixture) -> None:
    key = "remember-5f0c9a7e1d3b4862"
    masking.remember(key)
    masking.mask_logs()
    masking.mask_logs()
    assert masking.known().text(f"<{key}>") == "<reme***>"
    log = logging.getLogger("some.library")
    try:
        raise ValueError(f"cannot read {key.upper()}")
    except ValueError:
        log.exception("the header %r of %s", key, {"authorization": f"Bearer {key}"})
    assert caplog.text.count(MARK) == 3
    assert letters_left(key, caplog.text) < 12


@pytest.mark.parametrize("path", ["/runs", "/runs?key=remember-5f0c9a7e1d3b4862"])
def test_a_formatter_that_reads_the_arguments_of_a_record_finds_them(path: str) -> None:
    masking.remember("remember-5f0c9a7e1d3b4862")
    masking.mask_logs()
    arguments = "127.0.0.1:1", "GET", path, "1.1", 200
    record = logging.getLogRecordFactory()("uvicorn.access", 20, "", 1, '%s - "%s %s HTTP/%s" %d', arguments, None)
    line = AccessFormatter("%(client_addr)s %(request_line)s %(status_code)s", use_colors=False).format(record)
    assert line == f"127.0.0.1:1 GET {path.replace('remember-5f0c9a7e1d3b4862', 'reme***')} HTTP/1.1 200 OK"


def test_the_place_of_a_key_is_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CONDUCTOR_MASTER_KEY", "CONDUCTOR_SIGNING_KEY", "CONDUCTOR_API_KEY"):
        monkeypatch.setenv(name, f"/srv/keys-of-audit/{name.lower()}")
    ours = [key for key in environment_keys() if key.startswith("/srv/keys-of-audit")]
    assert ours == ["/srv/keys-of-audit/conductor_api_key"]


def test_what_python_says_of_an_unforeseen_error_holds_no_key() -> None:
    key = "remember-5f0c9a7e1d3b4862"
    program = (
        "import sys, threading\nfrom conductor_core.privacy import masking\n"
        "masking.remember(sys.argv[1])\nmasking.mask_logs()\n"
        "def fail():\n    raise ValueError(f'no {sys.argv[1]}')\n"
        "thread = threading.Thread(target=fail)\nthread.start()\nthread.join()\n"
        "quiet = threading.Thread(target=sys.exit)\nquiet.start()\nquiet.join()\nfail()\n"
    )
    done = subprocess.run([sys.executable, "-c", program, key], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert (done.stderr.count("ValueError: no reme***"), done.stderr.count("Traceback")) == (2, 2)
    assert key not in done.stderr
