"""Device selectors: the expression language of `selectors[].cel`, exactly as Kubernetes 1.36 understands it.

Both compiling and evaluating take a `Work`, an allowance of counted work (a unit is about a microsecond). Who may not
be held up, as an event loop, gives a small one and expects `TooMuch` beside the errors:

    work = Work(20_000)
    program = compile_selector(expression, gates, work)  # CelCompileError, TooMuch
    program.evaluate(view, work)  # CelRuntimeError, TooMuch

`TooMuch` says nothing about the expression. The same question can be put elsewhere (to a worker process) without an
allowance: then it is never raised, and what bounds the evaluation are upstream's limit of costs and the limit on the
memory of values. A refused operation takes nothing off the allowance, and an allowance can be shared by any number of
calls. Programs and refusals are remembered, a `TooMuch` is not; what is remembered costs no work to look up. Views and
both errors can be pickled, programs cannot.
"""

from dra_extender.cel.device import DeviceView, ReadSet
from dra_extender.cel.environment import CelGates
from dra_extender.cel.errors import CelCompileError, CelRuntimeError
from dra_extender.cel.program import Program, compile_selector, remembered_bytes
from dra_extender.cel.work import TooMuch, Work, unlimited

__all__ = [
    "CelCompileError",
    "CelGates",
    "CelRuntimeError",
    "DeviceView",
    "Program",
    "ReadSet",
    "TooMuch",
    "Work",
    "compile_selector",
    "remembered_bytes",
    "unlimited",
]
