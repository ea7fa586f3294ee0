from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_core.grading.numbers import Quantity, parse_quantity, quantities, same_quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("18", 18),
        ("-3.50", Fraction(-7, 2)),
        ("−5", -5),
        (".25", Fraction(1, 4)),
        ("1,234,567", 1234567),
        ("1 234 567", 1234567),
        ("12 500", 12500),
        ("3/4", Fraction(3, 4)),
        ("1 1/2", Fraction(3, 2)),
        ("2½", Fraction(5, 2)),
        (r"\frac{3}{4}", Fraction(3, 4)),
        (r"\dfrac12", Fraction(1, 2)),
        (r"2\frac{1}{3}", Fraction(7, 3)),
        (r"1{,}200", 1200),
        (r"10,\!080", 10080),
        ("1.5e3", 1500),
        (r"1.2\times10^{5}", 120000),
        ("3 × 10⁻²", Fraction(3, 100)),
        (r"3\times10^{−2}", Fraction(3, 100)),
        ("2.5 million", 2500000),
        (r"$\$18.90$", Fraction(189, 10)),
        ("€40", 40),
    ],
)
def test_reads_numbers_as_people_write_them(text: str, value: Fraction | int) -> None:
    read = parse_quantity(text)
    assert read is not None
    assert read.value == value


@pytest.mark.parametrize("text", ["", "none", "9" * 200, "1e99999", "1/0", r"\frac{1}{0}", "version x2y", "3 and 4"])
def test_reads_nothing_where_there_is_no_one_number(text: str) -> None:
    assert parse_quantity(text) is None


def test_a_huge_power_costs_nothing() -> None:
    assert quantities("9e9999 1e999") == []


def test_dollar_signs_are_money_or_the_ends_of_a_formula() -> None:
    assert [one.unit for one in quantities("It costs $5 and then $6.")] == ["$", "$"]
    assert [one.unit for one in quantities("from $5$ to $6$ steps")] == ["", ""]


@pytest.mark.parametrize(
    ("given_text", "right_text", "same"),
    [
        ("5 km", "5000 m", True),
        ("5 m", "5 km", False),
        ("5", "5 km", True),
        ("5 km", "5", True),
        ("90 minutes", "1.5 hours", True),
        ("5 kg", "5 m", False),
        ("50 cents", "$0.50", True),
        ("45%", "45", True),
        ("45%", "0.45", True),
        ("0.45", "45%", True),
        ("0.45%", "45%", False),
        ("45%", "45%", True),
        ("46%", "45", False),
    ],
)
def test_units_and_percent(given_text: str, right_text: str, same: bool) -> None:
    left, right = parse_quantity(given_text), parse_quantity(right_text)
    assert left is not None
    assert right is not None
    assert same_quantity(left, right, absolute=Fraction(0), relative=Fraction(0)) is same


@given(st.integers(-(10**15), 10**15))
def test_separators_do_not_change_a_whole_number(number: int) -> None:
    for written in (str(number), f"{number:,}", f"{number:,}".replace(",", " "), f"{number:,}".replace(",", "{,}")):
        read = parse_quantity(written)
        assert read is not None
        assert read.value == number


@given(st.decimals(-(10**6), 10**6, places=4))
def test_decimals_are_exact(number: object) -> None:
    read = parse_quantity(f"{number:f}")
    assert read is not None
    assert read.value == Fraction(str(number))


@given(st.integers(-999, 999), st.integers(1, 999))
def test_fractions_are_exact_in_both_notations(top: int, bottom: int) -> None:
    for written in (f"{top}/{bottom}", rf"\frac{{{top}}}{{{bottom}}}"):
        read = parse_quantity(written)
        assert read is not None
        assert read.value == Fraction(top, bottom)


@given(st.text(max_size=400))
def test_any_text_is_read_without_an_exception(text: str) -> None:
    for found in quantities(text):
        assert isinstance(found, Quantity)
        assert str(found)


@given(st.text(alphabet="0123456789 .,/\\frac{}$%-eE×^½", max_size=300))
def test_number_like_noise_is_read_without_an_exception(text: str) -> None:
    for found in quantities(text):
        assert str(found)


@pytest.mark.parametrize(
    ("written", "shown"),
    [("18", "18"), ("1,200", "1200"), ("0.50", "0.5"), ("1/3", "1/3"), ("5/2", "2.5"), ("7 %", "7%")],
)
def test_a_quantity_is_shown_as_one_would_write_it(written: str, shown: str) -> None:
    assert str(parse_quantity(written)) == shown
