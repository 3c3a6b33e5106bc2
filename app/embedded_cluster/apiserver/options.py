"""What a write may say beside the object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from embedded_cluster.apiserver.strategy import Caller

Clock = Callable[[], datetime]


@dataclass(frozen=True)
class WriteOptions:
    """Options of create, update and patch. `manager` is the field manager, '' for none; `validation` says what
    happens to unknown fields (Strict, Warn, Ignore); `warnings` collects warnings for the client."""

    dry_run: bool = False
    manager: str = ""
    validation: str = "Warn"
    force: bool = False
    caller: Caller = field(default_factory=Caller)
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """metav1.DeleteOptions: seconds of grace (None: the usual), preconditions, and what happens to dependents."""

    grace: int | None = None
    uid: str = ""
    revision: str = ""
    propagation: str = ""
