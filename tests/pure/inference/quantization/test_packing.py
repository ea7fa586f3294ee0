import pytest
import torch

from conductor_core.inference.quantization import packing
from conductor_core.inference.quantization.linear import Int4Linear, Int8Linear, PackedLinear, Reading
from conductor_core.inference.quantization.packing import nibble_layout, pack_int4, pack_int8, packable
from conductor_core.precision import Packed

ROWS, COLUMNS = 192, 256


def layer(weight: torch.Tensor, precision: Packed, dtype: torch.dtype, reading: Reading) -> PackedLinear:
    pack, kind = (pack_int8, Int8Linear) if precision == "int8" else (pack_int4, Int4Linear)
    bias = torch.linspace(-1, 1, len(weight), dtype=dtype)
    return kind(*pack(weight.to(dtype), dtype), bias, weight.shape, reading)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("precision", "close"), [("int8", 0.02), ("int4", 0.2)])
@pytest.mark.parametrize("columns", [256, 192, 160])
def test_packed_weights_give_nearly_the_same_products_for_few_and_for_many_vectors(
    precision: Packed, close: float, dtype: torch.dtype, columns: int
) -> None:
    random = torch.Generator().manual_seed(0)
    weight = torch.randn(ROWS, columns, generator=random) * 0.02
    vectors = torch.randn(2, 3, columns, generator=random).to(dtype)
    exact = vectors.float() @ weight.T + torch.linspace(-1, 1, ROWS)
    for reading in (Reading(6, dtype), Reading(0, dtype), Reading(0, torch.float32)):
        product = layer(weight, precision, dtype, reading)(vectors)
        assert (product.shape, product.dtype) == ((2, 3, ROWS), dtype)
        assert (product.float() - exact).abs().max() < close * exact.std()


def test_what_is_packed_in_parts_is_packed_as_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(1))
    whole = [each for pack in (pack_int8, pack_int4) for each in pack(weight, torch.float32)]
    monkeypatch.setattr(packing, "_WEIGHTS_AT_ONCE", 64 * COLUMNS)
    parts = [each for pack in (pack_int8, pack_int4) for each in pack(weight, torch.float32)]
    assert all(torch.equal(one, other) for one, other in zip(whole, parts, strict=True))


def test_weights_without_a_range_stay_what_they_are() -> None:
    for precision in ("int8", "int4"):
        product = layer(torch.full((64, 128), 0.5), precision, torch.float32, Reading(1, torch.float32))
        assert torch.allclose(product(torch.ones(1, 128)), 64 + torch.linspace(-1, 1, 64), rtol=1e-5)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_weight_that_is_no_number_is_refused(bad: float) -> None:
    weight = torch.zeros(64, 128)
    weight[5, 7] = bad
    for pack in (pack_int8, pack_int4):
        with pytest.raises(ValueError, match="not a finite number"):
            pack(weight, torch.float32)


def test_shapes_that_a_kernel_refuses_are_known() -> None:
    assert packable(7, 32, "int8")
    assert not packable(64, 40, "int8")
    assert packable(64, 128, "int4")
    assert not packable(48, 128, "int4")
    assert packable(64, 192, "int4")
    assert not packable(64, 144, "int4")


def test_an_unknown_layout_of_4_bit_weights_is_read_as_torch_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert nibble_layout() is not None
    weight = torch.randn(64, 128, generator=torch.Generator().manual_seed(2))
    vectors = torch.randn(5, 128, generator=torch.Generator().manual_seed(3))
    product = layer(weight, "int4", torch.float32, Reading(0, torch.float32))(vectors)
    monkeypatch.setattr("conductor_core.inference.quantization.linear.nibble_layout", lambda: None)
    unread = layer(weight, "int4", torch.float32, Reading(0, torch.float32))(vectors)
    assert torch.allclose(product, unread, atol=1e-3)


def test_packing_a_parameter_keeps_nothing_of_it_in_memory() -> None:
    for pack in (pack_int8, pack_int4):
        packed, scales = pack(torch.nn.Parameter(torch.ones(64, 128)), torch.float32)
        assert not packed.requires_grad
        assert not scales.requires_grad, "a graph would hold every layer"
