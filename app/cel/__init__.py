"""Device selectors: the expression language of `selectors[].cel`, exactly as Kubernetes 1.36 understands it."""

from app.cel.device import DeviceView, ReadSet
from app.cel.environment import CelGates
from app.cel.errors import CelCompileError, CelRuntimeError
from app.cel.program import Program, compile_selector

__all__ = [
    "CelCompileError",
    "CelGates",
    "CelRuntimeError",
    "DeviceView",
    "Program",
    "ReadSet",
    "compile_selector",
]
