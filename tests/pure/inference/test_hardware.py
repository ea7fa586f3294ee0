import pytest

from conductor_core.inference import hardware
from conductor_core.inference.hardware import Memory, lacking, place

GIB = 2**30
SEVEN_B = 7_615_616_512


@pytest.fixture
def plain_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "ram_bytes", lambda: 24 * GIB)
    monkeypatch.setattr(hardware, "accelerator_memory", lambda: None)
    monkeypatch.setattr(hardware, "has_fast_bfloat16", lambda: True)


@pytest.mark.usefixtures("plain_machine")
def test_a_7b_model_fits_24_gib_in_bfloat16() -> None:
    placement = place(SEVEN_B)
    assert (placement.device, placement.dtype, placement.fits) == ("cpu", "bfloat16", True)
    assert 15.2e9 < placement.needed_bytes < 17e9


@pytest.mark.usefixtures("plain_machine")
def test_a_14b_model_does_not() -> None:
    assert not place(14_000_000_000).fits


@pytest.mark.usefixtures("plain_machine")
def test_a_small_model_stays_in_float32_on_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "accelerator_memory", lambda: Memory("cuda", 80 * GIB, "a card"))
    placement = place(2_000_000)
    assert (placement.device, placement.dtype) == ("cpu", "float32")


@pytest.mark.usefixtures("plain_machine")
def test_without_native_bfloat16_float32_is_chosen_where_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "has_fast_bfloat16", lambda: False)
    assert place(500_000_000).dtype == "float32"
    assert place(SEVEN_B).dtype == "bfloat16"


@pytest.mark.usefixtures("plain_machine")
def test_a_card_is_used_only_if_it_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "accelerator_memory", lambda: Memory("cuda", 80 * GIB, "a card"))
    assert (place(SEVEN_B).device, place(SEVEN_B).dtype) == ("cuda", "bfloat16")
    monkeypatch.setattr(hardware, "accelerator_memory", lambda: Memory("cuda", 8 * GIB, "a card"))
    assert place(SEVEN_B).device == "cpu"


def test_reads_this_machine() -> None:
    assert hardware.ram_bytes() > GIB // 2
    free = hardware.free_ram_bytes()
    assert free is None or 0 < free <= hardware.ram_bytes() * 2


@pytest.mark.usefixtures("plain_machine")
def test_what_does_not_fit_names_need_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "ram_bytes", lambda: 5 * GIB)
    said = lacking(place(SEVEN_B))
    assert said == (
        "needs 16.5 GB, this machine has 5.4 GB of RAM, of which a model may take 90%: a GGUF file of it needs less"
    )


def test_threads_are_bounded_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert hardware.idle_threads() == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    assert 1 <= hardware.idle_threads() <= 64
