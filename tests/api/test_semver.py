"""Semantic versions: what parses and what comes first."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_extender.api.semver import Semver, VersionText

REFUSED = [
    "", "1", "1.2", "v1.2.3", "1.2.3.4", "01.2.3", "1.02.3", "1.2.03", "1.2.3-", "1.2.3+", "1.2.3-a..b", "1.2.3-01",
    "1.2.3-a_b", "1.2.3 ", " 1.2.3", "1.2.3-18446744073709551616", "18446744073709551616.0.0", "1.2.3+a+b", "1.2.٣",
    "1.2.3\n", "9" * 5000 + ".0.0", "-1.0.0",
]  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_not_strict_semver_is_named_in_the_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"^version '"):
        Semver.parse(text)


def test_versions_are_ordered_by_precedence() -> None:
    ordered = [
        "0.0.0", "0.9.9", "1.0.0-0", "1.0.0-9", "1.0.0-10", "1.0.0--", "1.0.0-A", "1.0.0-alpha", "1.0.0-alpha.1",
        "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-rc.2", "1.0.0-rc.11", "1.0.0", "1.0.1", "1.10.0",
        "18446744073709551615.0.0",
    ]  # fmt: skip
    versions = [Semver.parse(text) for text in ordered]
    assert sorted(versions, key=str) != versions
    assert sorted(versions) == versions
    assert len(set(versions)) == len(versions)


def test_build_metadata_does_not_count() -> None:
    assert Semver.parse("1.0.0+a") == Semver.parse("1.0.0+01.b")
    assert not Semver.parse("1.0.0+a") < Semver.parse("1.0.0+b")


NORMALIZED = [
    ("v1", "1.0.0"), ("1", "1.0.0"), ("1.2", "1.2.0"), ("01.002.3", "1.2.3"), ("v00.0.0", "0.0.0"),
    ("1.2.003-rc", "1.2.3-rc"),
    ("1.2.3-01", None), ("1-rc", None), ("1.2+b", None), ("vv1", None), ("", None), ("V1.0.0", None), (" 1.0.0", None),
    ("1..2", None), ("1.2.3.4", None), ("1.2.0-rc", "1.2.0-rc"), ("1.2.00", "1.2.0"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), NORMALIZED)
def test_normalizing_completes_short_versions_and_removes_zeros(text: str, expected: str | None) -> None:
    if expected is None:
        with pytest.raises(ValueError, match=r"^version '"):
            Semver.parse(text, normalize=True)
    else:
        assert str(Semver.parse(text, normalize=True)) == expected


def test_a_version_shows_its_numbers_and_cannot_be_changed() -> None:
    version = Semver.parse("1.2.3-rc.1+b7")
    assert (version.key[:3], str(version)) == ((1, 2, 3), "1.2.3-rc.1+b7")
    assert copy.deepcopy(version) == version
    assert version != "1.2.3-rc.1+b7"  # type: ignore[comparison-overlap]
    with pytest.raises(AttributeError, match="cannot assign"):
        version.text = "2.0.0"  # type: ignore[misc]


def test_a_version_text_is_text_that_can_be_told_from_a_string_attribute() -> None:
    assert VersionText("1.0.0") == "1.0.0"
    assert type(VersionText("1.0.0")) is not str


numbers = st.integers(0, 2**64 - 1)
words = st.from_regex(r"[0-9A-Za-z-]*[A-Za-z-][0-9A-Za-z-]*", fullmatch=True)
texts = st.builds(
    lambda a, b, c, pre: f"{a}.{b}.{c}" + (f"-{'.'.join(pre)}" if pre else ""),
    numbers, numbers, numbers, st.lists(st.one_of(words, numbers.map(str)), max_size=3),
)  # fmt: skip


@given(texts)
def test_printing_and_parsing_are_inverse(text: str) -> None:
    assert str(Semver.parse(text)) == text


@given(texts, texts)
def test_exactly_one_of_less_equal_greater_holds(left: str, right: str) -> None:
    a, b = Semver.parse(left), Semver.parse(right)
    assert [a < b, a == b, a > b].count(True) == 1
    assert (a <= b, a >= b) == (not a > b, not a < b)
