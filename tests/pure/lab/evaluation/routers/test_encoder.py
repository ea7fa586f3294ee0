import subprocess
import sys

import numpy as np
import pytest

from conductor_core.errors import BadInput
from conductor_core.lab.evaluation.routers.encoder import TfidfEncoder, read_encoder

TEXTS = ["Add 41 and 12.", "Add 97 and 30.", "Name the capital of Chile.", "Name the capital of Peru."]


def test_texts_of_one_kind_are_nearer_than_of_two() -> None:
    vectors = TfidfEncoder.fit(TEXTS, size=3, digits=False, seed=0).encode(TEXTS)
    assert vectors.shape == (4, 3)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    similarity = vectors @ vectors.T
    assert similarity[0, 1] > 0.8
    assert similarity[2, 3] > 0.5
    assert abs(similarity[:2, 2:]).max() < 0.2


def test_digits_are_all_the_same_or_not() -> None:
    same, different = (TfidfEncoder.fit(TEXTS, size=None, digits=digits, seed=0) for digits in (False, True))
    assert np.array_equal(*same.encode(["Add 41 and 12.", "Add 97 and 30."]))
    one, other = different.encode(["Add 41 and 12.", "Add 97 and 30."])
    assert 0 < one @ other < 0.9


def test_a_text_of_unknown_words_is_no_direction() -> None:
    vector = TfidfEncoder.fit(TEXTS, size=2, digits=True, seed=0).encode(["ψψψ"])[0]
    assert np.array_equal(vector, [0, 0])


def test_a_saved_encoder_encodes_the_same() -> None:
    for size in (2, None):
        encoder = TfidfEncoder.fit(TEXTS, size=size, digits=True, seed=0)
        again = read_encoder(encoder.document(), encoder.arrays())
        assert again.size == encoder.size
        np.testing.assert_allclose(again.encode(TEXTS), encoder.encode(TEXTS), atol=1e-6)


def test_texts_without_words_and_saved_pieces_are_bad_input() -> None:
    with pytest.raises(BadInput, match="nothing to tell them apart"):
        TfidfEncoder.fit(["", "?!"], size=2, digits=True, seed=0)
    encoder = TfidfEncoder.fit(TEXTS, size=2, digits=True, seed=0)
    with pytest.raises(BadInput, match="not whole"):
        read_encoder(encoder.document(), {})


def test_nothing_heavy_is_loaded_before_a_router_is_used() -> None:
    code = (
        "import sys, conductor_core.lab.evaluation.fitting, conductor_core.lab.evaluation.routers.workflows;"
        "sys.exit(', '.join({'torch', 'sklearn', 'transformers'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
