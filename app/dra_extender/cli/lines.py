"""JSON lines on standard input, JSON lines on standard output: the form of the offline commands.

Promises: one answer per non-empty line, in order, written as soon as it is known; a line that is not a JSON object gets
an answer that says so, and the others go on.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, BinaryIO

import orjson

Answer = Callable[[dict[str, Any]], dict[str, Any]]
Complaint = Callable[[str, str], dict[str, Any]]
"""(name of the line, problem) -> the answer to a line that cannot be read."""


def answer_lines(source: BinaryIO, target: BinaryIO, answer: Answer, complain: Complaint) -> int:
    """Answer every line of `source` on `target`. Returns how many lines could not be read."""
    unreadable = 0
    for number, line in enumerate(source, start=1):
        if not line.strip():
            continue
        try:
            case = orjson.loads(line)
            problem = "" if isinstance(case, dict) else f"{shape(case)} where an object is expected"
        except orjson.JSONDecodeError as error:
            case, problem = {}, f"not JSON: {error}"
        unreadable += bool(problem)
        reply = complain(f"line {number}", problem) if problem else answer(case)
        target.write(_line(reply))
        target.flush()
    return unreadable


def _line(reply: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(reply, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # an integer of more than 64 bits, in the opaque parameters of a driver
        return json.dumps(reply).encode() + b"\n"


def shape(value: object) -> str:
    """What a value of JSON is, in words."""
    if isinstance(value, bool):
        return "true or false"
    names = {int: "a number", float: "a number", str: "a text", list: "a list", dict: "an object"}
    return names.get(type(value), "null")
