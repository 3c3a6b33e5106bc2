"""The expression language as the embedded API server speaks it, which does not know it by itself."""

from __future__ import annotations

from app.cel import CelCompileError, compile_selector


def selector_problem(expression: str) -> str | None:
    """What the API server has to say about a device selector; None when it is good."""
    try:
        compile_selector(expression)
    except CelCompileError as problem:
        return problem.official()
    return None
