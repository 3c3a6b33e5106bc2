"""Device selectors as the embedded API server checks them."""

from __future__ import annotations

from dra_extender.cel import CelCompileError, compile_selector


def selector_problem(expression: str) -> str | None:
    """What the API server says about a device selector; None when it is valid."""
    try:
        compile_selector(expression)
    except CelCompileError as problem:
        return problem.official()
    return None
