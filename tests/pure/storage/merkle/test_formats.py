"""The tree against RFC 9162 and a naive reading of it, and notes against C2SP's form."""

import base64
import hashlib

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from storage.bundles import Proofs
from storage.evidence.history import MOST_FINDINGS, Report
from storage.evidence.verifier import document, lines
from storage.merkle.formats import Checkpoint, Invalid, PublicKey, Tree, included, note_of, open_note, read_key

# The tree of eight inputs that Certificate Transparency's own tests use, and its roots at each size.
INPUTS = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


def leaf_of(data: bytes) -> bytes:
    return hashlib.sha256(b"\0" + data).digest()


def naive_root(leaves: list[bytes]) -> bytes:
    """The definition of RFC 9162, 2.1.1, word by word, over leaves that are hashed already."""
    if len(leaves) <= 1:
        return leaves[0] if leaves else hashlib.sha256().digest()
    split = max(2**power for power in range(40) if 2**power < len(leaves))
    return hashlib.sha256(b"\x01" + naive_root(leaves[:split]) + naive_root(leaves[split:])).digest()


def test_the_roots_of_known_trees() -> None:
    tree = Tree()
    assert tree.root().hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    for data, root in zip(INPUTS, ROOTS, strict=True):
        tree.append(leaf_of(bytes.fromhex(data)))
        assert tree.root().hex() == root


@given(st.integers(1, 200), st.data())
def test_the_tree_and_its_proofs_are_those_of_the_definition(size: int, data: st.DataObject) -> None:
    leaves = [leaf_of(bytes([number % 251, size % 256])) for number in range(size)]
    taken_up = data.draw(st.integers(0, size))
    tree = Tree()
    for leaf in leaves[:taken_up]:
        tree.append(leaf)
    tree = Tree(tree.size, tree.peaks)
    for leaf in leaves[taken_up:]:
        tree.append(leaf)
    root = naive_root(leaves)
    assert tree.root() == root
    position = data.draw(st.integers(0, size - 1))
    path = Proofs(b"".join(leaves)).path(position)
    assert included(leaves[position], position, size, path, root)
    elsewhere = data.draw(st.integers(-1, size + 1))
    assert included(leaves[position], elsewhere, size, path, root) == (elsewhere == position)
    assert not included(leaf_of(b"other"), position, size, path, root)
    assert not included(leaves[position], position, size, [*path, root], root)
    if path:
        at = data.draw(st.integers(0, len(path) - 1))
        assert not included(leaves[position], position, size, path[:at] + path[at + 1 :], root)
        assert not included(leaves[position], position, size, [*path[:at], root, *path[at + 1 :]], root)


# Proofs that the Go library of transparency-dev gives for the inputs above: position, size and path.
GO_PROOFS = {
    (0, 8): "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7"
    "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e"
    "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    (5, 8): "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b"
    "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0"
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    (2, 3): "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    (1, 5): "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"
    "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e"
    "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
}


def test_proofs_are_those_of_another_implementation() -> None:
    leaves = [leaf_of(bytes.fromhex(data)) for data in INPUTS]
    for (position, size), path in GO_PROOFS.items():
        ours = Proofs(b"".join(leaves[:size])).path(position)
        assert b"".join(ours).hex() == path
        assert included(leaves[position], position, size, ours, bytes.fromhex(ROOTS[size - 1]))


def test_a_tree_that_does_not_fit_its_size_is_refused() -> None:
    with pytest.raises(Invalid):
        Tree(3, bytes(32))


# A key of Go's sumdb, whose form C2SP's signed notes keep, and the note of its documentation.
PETER = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
SAID = (
    "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n\n"
    "\N{EM DASH} PeterNeumann "
    "x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
)


def test_keys_and_signatures_are_those_of_signed_notes() -> None:
    key = read_key(PETER)
    assert (key.line, key.id.hex()) == (PETER, "c74f20a3")
    text, _, signature = SAID.rpartition("\n\n")
    raw = base64.b64decode(signature.split(" ")[2])
    assert raw[:4] == key.id
    assert key.signed(f"{text}\n".encode(), raw[4:])
    with pytest.raises(Invalid, match="not a checkpoint"):
        open_note(SAID, [key])
    for wrong in ("PeterNeumann+c74f20a4", "Peter+c74f20a3"):
        with pytest.raises(Invalid):
            read_key(PETER.replace("PeterNeumann+c74f20a3", wrong))


# The first example of c2sp.org/signed-note, and a checkpoint of Go's log of modules: c2sp.org/tlog-checkpoint shows it
# under a name that is made up.
POEM = (
    "Ognuno sta solo sul cuor della terra\ntrafitto da un raggio di sole:\n\ned \u00e8 subito sera.\n\n"
    "\N{EM DASH} quasimodo.example/salvatore "
    "NnugSzTjtVAewIS+Z/iJhUPeFDkO/5QQ2i5ddnGITLlC+EhfLW9oJKONrMouFSQU0xMcXxj99ihAQwaqP3ZekRwNtIc=\n"
)
GO = "sum.golang.org+033de0ae+Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8"
GO_SAID = (
    "go.sum database tree\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n\n\N{EM DASH} sum.golang.org "
    "Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=\n"
)


def test_the_examples_of_the_specifications() -> None:
    key = read_key(GO)
    text, _, signature = GO_SAID.rpartition("\n\n")
    assert key.signed(f"{text}\n".encode(), base64.b64decode(signature.split(" ")[2])[4:])
    with pytest.raises(Invalid, match="no key that is trusted signed the note for this log"):
        open_note(GO_SAID, [key])  # its name is not that of the log, which ours must be
    shown = GO_SAID.replace("go.sum database tree", "example.com/behind-the-sofa")
    with pytest.raises(Invalid, match="the signature of the note is wrong"):
        open_note(shown, [key])
    with pytest.raises(Invalid, match="no key that is trusted"):
        open_note(shown.replace("sum.golang.org", "example.com/behind-the-sofa"), [key])
    with pytest.raises(Invalid, match="the note is not a checkpoint"):
        open_note(POEM, [key])


def test_what_the_form_of_notes_demands() -> None:
    private = Ed25519PrivateKey.generate()
    key = PublicKey("log", private.public_key().public_bytes_raw())
    root = base64.b64encode(bytes(32)).decode()

    def signed(text: str, *more: str) -> str:
        raw = key.id + private.sign(text.encode())
        return f"{text}\n\N{EM DASH} log {base64.b64encode(raw).decode()}\n" + "".join(more)

    witnesses = [f"\N{EM DASH} witness {base64.b64encode(bytes([n]) * 68).decode()}\n" for n in range(64)]
    for text, more in ((f"log\n0\n{root}\n", witnesses[:15]), (f"log\n7\n{root}\nopaque\nlines\n", [])):
        assert open_note(signed(text, *more), [key]).origin == "log"
    for wrong in (
        signed(f"log\n7\n{root}\n", *witnesses),
        signed(f"log\n7\n{root}\nwith a \t\n"),
        signed(f"log\r\n7\n{root}\n"),
        signed(f"log\n07\n{root}\n"),
        signed(f"log\n-7\n{root}\n"),
        signed(f"log\n\u0667\n{root}\n"),
        signed(f"log\n7\n{root[:-1]}\n"),
        signed("log\n7\n"),
        signed(f"\n7\n{root}\n"),
    ):
        with pytest.raises(Invalid):
            open_note(wrong, [key])
    for after in ("", "opaque\n"):
        with pytest.raises(Invalid, match=r"^the note is not a checkpoint: it has an empty line$"):
            open_note(signed(f"log\n7\n{root}\n\n{after}"), [key])


def test_a_checkpoint_is_believed_only_if_its_key_signed_it() -> None:
    private = Ed25519PrivateKey.generate()
    key = PublicKey("log", private.public_key().public_bytes_raw())
    checkpoint = Checkpoint("log", 5, bytes(range(32)))
    note = note_of(checkpoint, key, private.sign(checkpoint.text.encode()))
    assert open_note(note, [key]) == checkpoint
    witness = "\N{EM DASH} witness " + base64.b64encode(b"1234" + bytes(64)).decode() + "\n"
    assert open_note(note + witness, [key]) == checkpoint, "a signature of another key is passed over"
    other = PublicKey("log", Ed25519PrivateKey.generate().public_key().public_bytes_raw())
    elsewhere = PublicKey("elsewhere", key.key)
    for wrong, keys in (
        (note.replace("\n5\n", "\n6\n"), [key]),
        (note.replace("\n5\n", "\n05\n"), [key]),
        (note[:-1], [key]),
        (note + "\n", [key]),
        (note, [other]),
        (note, [elsewhere]),
        (note, []),
        (witness, [key]),
    ):
        with pytest.raises(Invalid):
            open_note(wrong, keys)


def test_a_report_says_one_as_one_and_how_many_findings_it_does_not_show() -> None:
    report = Report(verified_events=1, verified_size=1)
    assert next(lines(document(report))) == "1 event is as a signed checkpoint says (1 entry)"
    for number in range(MOST_FINDINGS + 2):
        report.add("edited", "it was changed", "r", number)
    assert (len(report.findings), document(report)["more_findings"]) == (MOST_FINDINGS, 2)
    assert "... and 2 findings more" in lines(document(report))


def test_a_forged_name_steers_no_terminal() -> None:
    report = Report()
    report.add("inserted", "it is not in the log", "a\nOK: nothing was found\x1b[2J", 1)
    first, *_ = lines(document(report))
    assert first == r"INSERTED run a\nOK: nothing was found\x1b[2J event 1: it is not in the log"
