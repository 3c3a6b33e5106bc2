"""An independent implementation, cel-python, agrees on the part of the language it gets right.

It runs in a process of its own: it changes the recursion limit and warns.
"""

import json
import subprocess
import sys

from dra_extender.cel import CelRuntimeError, Program
from tests.support.cel.devices import view_of

EXPRESSIONS = [
    "1 + 2 * 3 == 7", "7 / 2 == 3 && -7 / 2 == -3", "7 % 3 == 1 && -7 % 3 == -1", "1 / 0 == 1", "1 % 0 == 1",
    "9223372036854775807 + 1 > 0", "-9223372036854775808 - 1 < 0", "1u + 2u == 3u", "1u - 2u == 0u", "1.5 + 1.5 == 3.0",
    "1.0 / 0.0 > 1.0", "1 < 2 && 2 <= 2 && 3 > 2 && 2 >= 2 && 1 != 2", "'a' < 'b' && 'a' + 'b' == 'ab'",
    "true || 1 / 0 == 1", "1 / 0 == 1 || true", "false && 1 / 0 == 1", "1 / 0 == 1 && false", "1 / 0 == 1 || false",
    "1 / 0 == 1 && true", "!true || !false", "true ? true : 1 / 0 == 1", "1 / 0 == 1 ? true : true",
    "[1, 2] == [1, 2] && [1, 2] != [2, 1]", "[1] + [2] == [1, 2]", "1 in [1, 2] && !(3 in [1, 2])", "[1, 2][1] == 2",
    "[1, 2][2] == 2", "{'a': 1}['a'] == 1", "{'a': 1}.a == 1", "{'a': 1}['b'] == 1", "'a' in {'a': 1}",
    "{'a': 1} == {'a': 1}", "size([1, 2]) == 2 && 'abc'.size() == 3 && {'a': 1}.size() == 1", "size('é') == 1",
    "[1, 2].all(x, x > 0)", "[1, 2].exists(x, x > 1)", "[1, 2].exists_one(x, x > 1)", "[1, 2].map(x, x * 2) == [2, 4]",
    "[1, 2].filter(x, x > 1) == [2]", "[0, 1].all(x, 1 / x > 0)", "[0, 1].exists(x, 1 / x > 0)", "[].all(x, false)",
    "has({'a': 1}.a) && !has({'a': 1}.b)", "'abc'.startsWith('a') && 'abc'.endsWith('c') && 'abc'.contains('b')",
    "'abc'.matches('^a.c$')", "int('42') == 42", "int(1.9) == 1 && int(-1.9) == -1", "double('1.5') == 1.5",
    "string(1) == '1' && string(1.5) == '1.5'", "uint('1') == 1u", "bytes('a') == b'a'", "string(b'a') == 'a'",
    "duration('1h') == duration('60m')", "duration('90s').getMinutes() == 1",
    "timestamp('2023-05-14T10:30:45Z').getFullYear() == 2023", "timestamp('2023-05-14T10:30:45Z').getMonth() == 4",
    "timestamp('2023-05-14T10:30:45Z') - timestamp('2023-05-14T10:30:44Z') == duration('1s')",
    "type(1) == int && type('a') == string", "dyn(1) == 1", "'\\u00e9' == 'é'", "r'\\d' == '\\\\d'", "0x10 == 16",
]  # fmt: skip

SCRIPT = """
import json, sys, warnings
warnings.simplefilter("ignore")
import celpy
environment = celpy.Environment()
for line in sys.stdin:
    try:
        program = environment.program(environment.compile(json.loads(line)))
        print(json.dumps(str(bool(program.evaluate({}))).lower()))
    except celpy.CELEvalError:
        print(json.dumps("error"))
"""


def ours(expression: str) -> str:
    try:
        return str(Program(expression).evaluate(view_of("d", {}, {}))).lower()
    except CelRuntimeError:
        return "error"


def test_an_independent_implementation_gives_the_same_answers() -> None:
    questions = "".join(json.dumps(expression) + "\n" for expression in EXPRESSIONS)
    run = subprocess.run([sys.executable, "-c", SCRIPT], input=questions, capture_output=True, text=True, check=True)
    theirs = [json.loads(line) for line in run.stdout.splitlines()]
    assert [(e, ours(e)) for e in EXPRESSIONS] == list(zip(EXPRESSIONS, theirs, strict=True))
