"""Device selectors: the expression language of `selectors[].cel`, exactly as Kubernetes 1.36 understands it.

Compiling and evaluating take a `Work`: how many units of work they may do (a unit is about a microsecond). An event
loop gives a small number and handles `WorkExceeded` as well as the errors:

    work = Work(20_000)
    programs = Programs()  # remembers what it compiles
    program = programs.compile(expression, gates, work)  # CelCompileError, WorkExceeded
    program.evaluate(view, work)  # CelRuntimeError, WorkExceeded

`WorkExceeded` says nothing about the expression: a worker process can repeat the call without a limit of work. Then
Kubernetes' limit of costs and the limit on the memory of values bound the evaluation. One `Work` can be shared by any
number of calls. Views and both errors can be pickled, programs cannot.
"""

from dra_extender.cel.device import CelGates, DeviceView, PublishedDevice, ReadSet
from dra_extender.cel.errors import CelCompileError, CelRuntimeError
from dra_extender.cel.program import Program, Programs, remembered_bytes
from dra_extender.cel.work import Work, WorkExceeded, unlimited

__all__ = [
    "CelCompileError",
    "CelGates",
    "CelRuntimeError",
    "DeviceView",
    "Program",
    "Programs",
    "PublishedDevice",
    "ReadSet",
    "Work",
    "WorkExceeded",
    "remembered_bytes",
    "unlimited",
]
