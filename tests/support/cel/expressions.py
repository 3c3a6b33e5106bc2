"""Selectors that build texts and lists, for hypothesis: correctly typed, and some of them with large values."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

Strategy = st.SearchStrategy[str]


def bound(first: str, step: Callable[[str], str], levels: int, body: Callable[[str], str]) -> str:
    """Variables that are each made of the one before."""
    opening = "".join(f"cel.bind(v{i}, {step(f'v{i - 1}') if i else first}, " for i in range(levels))
    return opening + body(f"v{levels - 1}") + ")" * levels


_LITERALS = ["''", "'a'", "'ab,c'", "'é'", "'%s-%s'", "'.*'", "'[ab]+'", "'" + "a" * 40 + "'", "'" + "ab" * 100 + "'"]
_VARIABLES = {"text": "t", "texts": "ts", "numbers": "ns"}


def _texts(text: Strategy, texts: Strategy, numbers: Strategy) -> Strategy:
    return st.one_of(
        st.builds("{}.replace({}, {})".format, text, text, text),
        st.builds("{}.replace('a', {})".format, text, text),
        st.builds("({} + {})".format, text, text),
        st.builds("{}.join({})".format, texts, text),
        st.builds("'%s,%s'.format([{}, {}])".format, text, text),
        st.builds("'%s'.format([{}])".format, st.one_of(texts, numbers)),
        st.builds("{}.find({})".format, text, text),
        st.builds("{}.{}()".format, text, st.sampled_from(["lowerAscii", "upperAscii", "trim"])),
        st.builds("strings.quote({})".format, text),
        st.builds("string(bytes({}))".format, text),
        st.builds("{}.substring({}.size() / 2)".format, text, text),
        st.builds("({}.size() > 3 ? {} : {})".format, numbers, text, text),
        st.builds("cel.bind(t, {}, {})".format, text, text),
    )


def _text_lists(text: Strategy, texts: Strategy, numbers: Strategy) -> Strategy:
    return st.one_of(
        st.builds("[{}, {}]".format, text, text),
        st.builds("{}.split({})".format, text, text),
        st.builds("{}.findAll({})".format, text, text),
        st.builds("({} + {})".format, texts, texts),
        st.builds("{}.{}()".format, texts, st.sampled_from(["reverse", "sort", "distinct"])),
        st.builds("[{}, {}].flatten()".format, texts, texts),
        st.builds("{}.map(n, {})".format, numbers, text),
        st.builds("cel.bind(ts, {}, {})".format, texts, texts),
    )


def _number_lists(text: Strategy, texts: Strategy, numbers: Strategy) -> Strategy:
    return st.one_of(
        st.builds("lists.range({})".format, st.sampled_from([0, 3, 50, 2000])),
        st.builds("{}.map(t, t.size())".format, texts),
        st.builds("({} + {})".format, numbers, numbers),
        st.builds("{}.map(n, n * 2)".format, numbers),
        st.builds("{}.filter(n, n % 2 == 0)".format, numbers),
        st.builds("cel.bind(ns, {}, {})".format, numbers, numbers),
    )


def _layer(parts: tuple[Strategy, Strategy, Strategy]) -> tuple[Strategy, Strategy, Strategy]:
    return (
        st.one_of(parts[0], _texts(*parts)),
        st.one_of(parts[1], _text_lists(*parts)),
        st.one_of(parts[2], _number_lists(*parts)),
    )


def _bools(text: Strategy, texts: Strategy, numbers: Strategy) -> Strategy:
    either = st.one_of(texts, numbers)
    return st.one_of(
        st.builds("{} == {}".format, text, text),
        st.builds("{} == {}".format, texts, texts),
        st.builds("{} in {}".format, text, texts),
        st.builds("{} < {}".format, text, text),
        st.builds("{}.size() > 7".format, st.one_of(text, either)),
        st.builds("{}.contains({})".format, text, text),
        st.builds("{}.matches({})".format, text, text),
        st.builds("{}.exists(n, n > 5)".format, numbers),
        st.builds("{}.all(t, t.startsWith('a'))".format, texts),
        st.builds("sets.intersects({}, {})".format, texts, texts),
        st.builds("{}.lastIndexOf({}) > 3".format, text, text),
        st.builds("{}[{}.size() / 2] == 1".format, numbers, numbers),
        st.builds("{}.sum() > 10".format, numbers),
    )


_LONG = f"'{'ab' * 30}'.replace('b', '{'ba' * 40}').replace('b', '{'abc' * 8}')"
"""A text of 60,000 characters."""


def _scope(bools: Strategy) -> Strategy:
    """With the variables that parts may use, some of them large."""
    return st.builds(
        "cel.bind(t, {}, cel.bind(n, 1, cel.bind(ts, {}, cel.bind(ns, {}, {}))))".format,
        st.sampled_from(["'ab'", _LONG]),
        st.sampled_from(["['a', 'b']", "t.split('a')", "t.findAll('b*')"]),
        st.sampled_from(["[1, 2]", "lists.range(300)"]),
        bools,
    )


_LEAVES = (
    st.sampled_from([*_LITERALS, "t", "device.driver"]),
    st.sampled_from(["[]", "['a', 'b']", "ts"]).map(lambda text: text if text != "[]" else "['a'].filter(t, false)"),
    st.sampled_from(["[1, 2]", "ns", "lists.range(20)"]),
)

SELECTORS: Strategy = _scope(_bools(*_layer(_layer(_layer(_LEAVES)))))
