"""Selectors that a real API server takes and that are expensive to compile or to evaluate: named ones and a grammar.

The grammar draws from dice: what it makes type-checks, is at most 10 KiB long, and says what it is expensive in.
The API server estimates the cost of an expression from what is written in it, and refuses more than 1,000,000; what
it does not estimate (how long the text is that `replace` returns) is where these live.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Final

from tools.hostile.things import DRIVER, HOSTILE, Body, Objects, Thing, claim, request, with_pod

A: Final = f'device.attributes["{DRIVER}"]'
LONGEST: Final = 10 * 1024
DISTINCT: Final = f'{A}.uuid != "none"'
"""Different for every device, so that nothing can be remembered of another one."""


def replaced(first: int, second: int) -> str:
    """A text of first × second characters, written in first + second."""
    return f"'{'a' * first}'.replace('a', '{'b' * second}')"


def doubled(times: int, start: str, result: str, plus: str = "{0} + {0}") -> str:
    """`start` doubled this number of times, with a name for each; `result` uses the last name."""
    names = [f"v{i}" for i in range(times + 1)]
    text = result.format(names[-1])
    for before, name in zip(reversed(names[:-1]), reversed(names[1:]), strict=True):
        text = f"cel.bind({name}, {plus.format(before)}, {text})"
    return f"cel.bind({names[0]}, {start}, {text})"


def loops(*sizes: int, body: str) -> str:
    """A loop in a loop in a loop; the body is true, or all stop at once."""
    for depth, size in reversed(list(enumerate(sizes))):
        body = f"[{', '.join(map(str, range(size)))}].all(x{depth}, {body})"
    return body


def padded(text: str, length: int) -> str:
    """The same, padded with blanks to this number of bytes."""
    return text + " " * (length - len(text))


NAMED: Final[dict[str, tuple[str, str]]] = {
    "the 539-byte selector": ("time", padded(replaced(245, 244) + ".findAll('').size() > 0", 539)),
    "the 1,142-byte selector": ("time", padded(replaced(550, 540) + ".findAll('').size() > 0", 1142)),
    "list doubling": ("memory", doubled(24, "[0, 1, 2, 3, 4, 5, 6, 7]", "{0}.size() > 0")),
    "text doubling": ("memory", doubled(15, "'abcdefgh'", "{0}.size() > 0")),
    "nested loops": ("time", loops(30, 30, 20, body=f"x0 + x1 + x2 >= 0 && {DISTINCT}")),
    "split of a replaced text": ("memory", replaced(2000, 2000) + ".split('').size() > 0"),
    "join of a doubled list": ("memory", doubled(12, "['ab', 'cd']", "{0}.join('-').size() > 0")),
    "lower case of a replaced text": ("time", f"{replaced(2000, 2000)}.lowerAscii().size() > 0"),
    "a pattern of repetitions": ("regex", f"{replaced(300, 300)}.matches('(b*)*(b*)*(b*)*c$')"),
    "a pattern of choices": ("regex", f"{replaced(300, 300)}.matches('(b|bb|bbb|bbbb)*c$')"),
    "find all of a repetition": ("regex", f"{replaced(500, 500)}.findAll('b{{1,20}}').size() > 0"),
    "a megabyte of format": ("memory", f"'%s%s%s'.format([{', '.join([replaced(1000, 1000)] * 3)}]).size() > 0"),
    "comparison of equal texts": ("time", f"{replaced(2000, 2000)} == {replaced(2000, 2000)}"),
    "search in a text": ("time", f"{replaced(1500, 1500)}.indexOf('{'b' * 1500}c') < 0"),
    "sort of a doubled list": ("time", doubled(10, "[3, 1, 2]", "{0}.sort().size() > 0")),
    "249 parentheses": ("nesting", "(" * 249 + "true" + ")" * 249),
    "5,000 negations": ("nesting", "!" * 5_000 + "true"),
    "60 conditions": ("nesting", "false ? true : " * 60 + "true"),
    "lists in lists": ("nesting", "[" * 240 + "1" + "]" * 240 + " != []"),
    "1,250 terms": ("size", " && ".join(["true"] * 1250)),
    "10 KiB of a literal": ("size", f"device.driver != '{'x' * 10_200}'"),
}
"""By name: the family, and the expression."""


def named() -> Iterator[Thing]:
    """One claim and one pod for each; some need more than one."""
    for number, (name, (family, expression)) in enumerate(NAMED.items()):
        yield _thing(family, name, f"named-{number}", expression)
    yield Thing("texts in errors", "a missing key of 4.5 MB in ten claims", _missing("key", 2120, 2120, claims=10))
    yield Thing("texts in errors", "a missing domain of 4.5 MB", _missing("domain", 2120, 2120, claims=1))
    yield Thing("size", "1 MB of 100 selectors in one claim", with_pod("many", _many_selectors(100, 10_300)))
    yield Thing("time", "nested loops on every device", with_pod("all", _on_all("nested loops")))
    explained = with_pod("explained", claim("explained", request("r", NAMED["the 539-byte selector"][1])))
    pages = (f"/insight/diagnosis?pod={HOSTILE}/explained", "/insight/devices", "/insight/problems")
    yield Thing("time", "the 539-byte selector, explained", Objects(explained.bodies, pages=pages))


def _on_all(name: str) -> Body:
    """No device satisfies it, so that it is evaluated on each of them, whatever ordinary pods hold."""
    return claim("on-all", request("r", f"!({NAMED[name][1]})"))


def _missing(what: str, first: int, second: int, *, claims: int) -> Objects:
    text = replaced(first, second)
    expression = f'{A}[{text}] == "x"' if what == "key" else f"device.attributes[{text}].x == 1"
    bodies = [claim(f"missing-{what}-{i}", request("r", f"{expression} || {i} > 99")) for i in range(claims)]
    return with_pod(f"missing-{what}", *bodies)


def _many_selectors(count: int, length: int) -> Body:
    """Different ones, 25 to a request; each compares with a long list."""
    made = []
    for number in range(count):
        terms = ", ".join(f'"{number}-{i:04}-{"x" * 40}"' for i in range((length - 60) // 53))
        made.append(f"!({A}.uuid in [{terms}])")
    return claim("many-selectors", *(request(f"r{i}", *made[i : i + 25]) for i in range(0, count, 25)))


# --- the grammar ------------------------------------------------------------------------------------------------------


class Grammar:
    """Expressions by family, from dice."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._families: dict[str, Callable[[], str]] = {
            "time": self._time,
            "memory": self._memory,
            "regex": self._regex,
            "nesting": self._nesting,
            "size": self._size,
            "texts in errors": self._error,
        }

    @property
    def families(self) -> list[str]:
        return list(self._families)

    def expression(self, family: str) -> str:
        """At most 10 KiB."""
        while len(text := self._families[family]()) > LONGEST:
            pass
        return text

    def _int(self, low: int, high: int) -> int:
        """Large ones as often as small ones."""
        return min(high, int(low * (high / low) ** self._dice.random()))

    def _time(self) -> str:
        match self._dice.randrange(4):
            case 0:
                body = self._dice.choice([DISTINCT, f"{A}.index + x0 >= 0", f'{A}.uuid.startsWith("g")', "x0 >= 0"])
                return loops(*self._sizes(60_000), body=body)
            case 1:
                return f"{self._text(120)}.findAll('{self._dice.choice(['', 'b', 'b|a', '[a-z]', '.'])}').size() >= 0"
            case 2:
                inner = loops(*self._sizes(500), body="x0 >= 0").replace("x", "y")
                return f"[{', '.join(map(str, range(self._int(4, 60))))}].exists(z, z < 0 || !{inner})"
            case _:
                calls = [".lowerAscii()", ".upperAscii()", ".trim()", ".replace('b', 'a')", ".substring(1)"]
                chosen = "".join(self._dice.choices(calls, k=self._int(1, 40)))
                return f"{self._text(600)}{chosen}.size() > {self._int(1, 9)}"

    def _sizes(self, most: int) -> list[int]:
        """Nested loops whose innermost body runs at most this often."""
        sizes: list[int] = []
        while most > 3 and len(sizes) < 6:
            size = self._dice.randint(2, min(most, 60))
            sizes.append(size)
            most //= size
        return sizes

    def _text(self, most: int) -> str:
        """A text that is longer than it is written."""
        text = replaced(self._int(2, most), self._int(2, most))
        if self._dice.random() < 0.3:
            text += f".replace('b', '{'ü' * self._int(1, 30)}')"
        return text

    def _memory(self) -> str:
        match self._dice.randrange(5):
            case 0:
                items = ", ".join(map(str, range(self._int(1, 100))))
                return doubled(self._int(4, 30), f"[{items}]", "{0}.size() > 0")
            case 1:
                return doubled(self._int(4, 12), f"'{'ab' * self._int(1, 60)}'", "{0}.size() > 0")
            case 2:
                return doubled(self._int(2, 4), self._text(5), "{0}.size() > 0", "{0}.replace('b', {0})")
            case 3:
                return f"{self._text(900)}.split('').map(x, x + 'y').size() > 0"
            case _:
                plus = self._dice.choice(["[{0}, {0}]", "[{0}, {0}, {0}]"])
                return doubled(self._int(3, 20), "[1]", "{0}.size() > 0", plus).replace("[1]", "dyn([1])")

    def _regex(self) -> str:
        pattern = "b"
        for _ in range(self._int(2, 12)):
            pattern = self._dice.choice(
                [
                    f"({pattern})*",
                    f"({pattern}|{pattern})",
                    f"{pattern}{pattern}",
                    f"({pattern})?",
                    f"({pattern}){{1,9}}",
                ]
            )
            if len(pattern) > 300:
                break
        call = self._dice.choice([".matches('{}')", ".find('{}') != 'x'", ".findAll('{}').size() > 0"])
        return self._text(400) + call.format(pattern + self._dice.choice(["", "$", "c", "^b"]))

    def _nesting(self) -> str:
        depth = self._int(20, 120)
        text = self._dice.choice(["true", DISTINCT, "1 + 1 == 2"])
        for _ in range(depth):
            text = self._dice.choice(
                [f"({text})", f"!({text})", f"({text} ? true : false)", f"[{text}][0]", f"(false || {text})"]
            )
        return text

    def _size(self) -> str:
        terms = [
            DISTINCT,
            f"{A}.?index.orValue({self._int(1, 99999)}) >= 0",
            f"{self._int(1, 99999)} in [{', '.join(map(str, range(self._int(2, 300))))}]",
            f"'{'y' * self._int(1, 3000)}' != device.driver",
            f"{{'a': {self._int(1, 99999)}}}.size() == 1",
        ]
        made: list[str] = []
        while sum(map(len, made)) < 8_000:
            made.append(self._dice.choice(terms))
        return self._dice.choice([" && ", " || "]).join(f"({term})" for term in made)

    def _error(self) -> str:
        text = self._text(2100)
        return self._dice.choice(
            [
                f'{A}[{text}] == "x"',
                f"device.capacity[{text}].x.isInteger()",
                f"quantity({text}).isInteger()",
                f"semver({text}).major() > 0",
                f"int({text}) > 0",
                f"timestamp({text}).getFullYear() > 0",
                f"duration({text}) > duration('1s')",
                f"ip({text}).isLoopback()",
                f"{text}.substring({self._int(1, 10**9)}) == ''",
                f"{{'a': 1}}[{text}] == 1",
                f"url({text}).getHost() == ''",
            ]
        )


def generated(dice: random.Random, each: int) -> Iterator[Thing]:
    """So many of each family."""
    grammar = Grammar(dice)
    for family in grammar.families:
        for number in range(each):
            expression = grammar.expression(family)
            name = f"generated {family} {number}"
            yield _thing(family, name, f"{family.replace(' ', '-')}-{number}", expression, generated=True)


def _thing(family: str, name: str, object_name: str, expression: str, *, generated: bool = False) -> Thing:
    return Thing(family, name, with_pod(object_name, claim(object_name, request("r", expression))), generated)
