"""Quantities: what parses, what it is worth, how it is printed."""

import copy
import pickle
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_extender.api.quantity import Format, Quantity

PARSED = [
    # text, nano units, printed, int64 form
    ("0", 0, "0", 0),
    ("1", 10**9, "1", 1),
    ("+1", 10**9, "+1", 1),
    ("1.", 10**9, "1.", 1),
    (".5", 5 * 10**8, "500m", None),
    (".", 0, "0", 0),
    ("-", 0, "0", 0),
    ("Mi", 0, "0", 0),
    ("e5", 0, "0", 0),
    ("1000m", 10**9, "1", None),
    ("1.0", 10**9, "1", None),
    ("1500m", 15 * 10**8, "1500m", None),
    ("1.5Gi", 1536 * 2**20 * 10**9, "1536Mi", None),
    ("40Gi", 40 * 2**30 * 10**9, "40Gi", 40 * 2**30),
    ("10Ti", 10 * 2**40 * 10**9, "10Ti", 10 * 2**40),
    ("100Ti", 100 * 2**40 * 10**9, "100Ti", None),
    ("100000Gi", 100000 * 2**30 * 10**9, "100000Gi", None),
    ("1024", 1024 * 10**9, "1024", 1024),
    ("1024Ki", 2**20 * 10**9, "1Mi", 2**20),
    ("1Ki", 1024 * 10**9, "1Ki", 1024),
    ("0.5Ki", 512 * 10**9, "512", None),
    ("0.0005Ki", 512 * 10**6, "512m", None),
    ("100M", 100 * 10**15, "100M", 10**8),
    ("2e3", 2000 * 10**9, "2e3", 2000),
    ("2E3", 2000 * 10**9, "2E3", 2000),
    ("1e1", 10 * 10**9, "10", 10),
    ("0.1n", 1, "1n", None),
    ("-0.1n", -1, "-1n", None),
    ("1e-99999", 1, "1e-9", None),
    ("123456789012345678", 123456789012345678 * 10**9, "123456789012345678", 123456789012345678),
    ("1234567890123456789", 1234567890123456789 * 10**9, "1234567890123456789", None),
    ("16Ei", (2**63 - 1) * 10**9, "9223372036854775807", None),
    ("-16Ei", -(2**63 - 1) * 10**9, "-9223372036854775807", None),
    ("16E", 16 * 10**27, "16E", None),
    ("6000E", 6000 * 10**27, "6000E", None),
    ("1e4294967297", 10 * 10**9, "10", 10),
]


@pytest.mark.parametrize(("text", "nano", "printed", "int64"), PARSED)
def test_a_quantity_has_the_value_the_text_and_the_integer_form_of_upstream(
    text: str, nano: int, printed: str, int64: int | None
) -> None:
    quantity = Quantity.parse(text)
    assert (quantity.nano, str(quantity), quantity.int64()) == (nano, printed, int64)


REFUSED = ["", " 1", "1 ", "1_000", "200K", "1ki", "1e", "1ee5", "0x10", "NaN", "1.2.3", "1,5", "--1", "١", "1\n"]
REFUSED += ["1e99999", "1e2000000000", "9" * 1001, ".e-20", "-.e-11", "1e9223372036854775808", "m1", "1Kii"]


@pytest.mark.parametrize("text", REFUSED)
def test_what_does_not_parse_is_named_in_the_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"^quantity '"):
        Quantity.parse(text)


VALUES = [("1500m", 2), ("-1500m", -2), ("1n", 1), ("-1n", -1), ("40Gi", 40 * 2**30), ("0", 0)]


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_the_whole_value_is_rounded_away_from_zero(text: str, value: int) -> None:
    assert Quantity.parse(text).value() == value


SUMS = [
    # left, right, sum, difference
    ("1Gi", "1Gi", "2Gi", "0"),
    ("0", "1Gi", "1Gi", "-1Gi"),
    ("1Gi", "0", "1Gi", "1Gi"),
    ("1", "500m", "1500m", "500m"),
    ("1Gi", "1G", "2073741824", "73741824"),
    ("1G", "1Gi", "2073741824", "-73741824"),
    ("0", "2e3", "2e3", "-2e3"),
    ("9223372036854775807", "1", "9223372036854775808", "9223372036854775806"),
]


@pytest.mark.parametrize(("left", "right", "total", "difference"), SUMS)
def test_sums_are_exact_and_zero_takes_the_other_format(left: str, right: str, total: str, difference: str) -> None:
    a, b = Quantity.parse(left), Quantity.parse(right)
    assert (str(a + b), str(a - b)) == (total, difference)


def test_a_sum_of_whole_int64_amounts_keeps_the_integer_form_until_it_overflows() -> None:
    largest = Quantity.of_value(2**63 - 1)
    assert (largest - Quantity.of_value(1)).int64() == 2**63 - 2
    assert (largest + Quantity.of_value(1)).int64() is None
    assert (Quantity.parse("500m") + Quantity.parse("500m")).int64() is None


FLOATS = [
    ("1", 1.0),
    ("1500m", 1.5),
    ("40Gi", float(40 * 2**30)),
    ("0.1", 0.1),
    ("1e308", 1e308),
    ("1e400", float("inf")),
]


@pytest.mark.parametrize(("text", "expected"), FLOATS)
def test_the_approximate_float_is_a_double(text: str, expected: float) -> None:
    assert Quantity.parse(text).approximate_float() == expected


def test_equal_amounts_are_equal_and_hash_alike_however_they_are_written() -> None:
    assert len({Quantity.parse(text) for text in ("1", "1000m", "1.0", "1e0")}) == 1


def test_a_quantity_is_neither_equal_to_nor_ordered_with_anything_else() -> None:
    assert Quantity.parse("1") != 1
    with pytest.raises(TypeError):
        assert Quantity.parse("1") < 1


def test_a_quantity_cannot_be_changed() -> None:
    with pytest.raises(AttributeError, match="cannot be changed"):
        Quantity.parse("1").nano = 2


def test_copies_and_pickles_are_equal_and_keep_the_text() -> None:
    quantity = Quantity.parse("+1")
    for twin in (copy.deepcopy(quantity), pickle.loads(pickle.dumps(quantity))):
        assert (twin, twin.text, twin.int64()) == (quantity, "+1", 1)


def test_a_whole_amount_is_binary_unless_said_otherwise() -> None:
    assert str(Quantity.of_value(2 * 2**30)) == "2Gi"
    assert str(Quantity.of_value(2000, Format.DECIMAL_SI)) == "2k"


amounts = st.builds(
    lambda sign, whole, part, suffix: f"{sign}{whole}{part}{suffix}",
    st.sampled_from(["", "-", "+"]),
    st.integers(0, 10**20).map(str),
    st.one_of(st.just(""), st.integers(0, 10**10).map(lambda n: f".{n}")),
    st.sampled_from(["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e2", "E-3"]),
).map(Quantity.parse)


@given(amounts)
def test_the_printed_text_means_the_same_amount(quantity: Quantity) -> None:
    assert Quantity.parse(str(quantity)) == quantity


@given(amounts, amounts)
def test_arithmetic_and_order_agree_with_fractions(a: Quantity, b: Quantity) -> None:
    x, y = Fraction(a.nano, 10**9), Fraction(b.nano, 10**9)
    assert Fraction((a + b).nano, 10**9) == x + y
    assert Fraction((a - b).nano, 10**9) == x - y
    assert ((a < b), (a <= b), (a == b), (a >= b), (a > b)) == (x < y, x <= y, x == y, x >= y, x > y)


@pytest.mark.parametrize("text", ["1" * 1_000_000 + "x", "1." + "1" * 1_000_000 + "x", "1" + "k" * 1_000_000 + "x"])
def test_a_long_text_that_is_no_quantity_is_read_once(text: str) -> None:
    """Reading it again from each character would not end."""
    with pytest.raises(ValueError, match="is not a number"):
        Quantity.parse(text)
