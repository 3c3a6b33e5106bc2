"""Why a bind did not happen, and what is to be done about what it had written."""

from __future__ import annotations

from typing import Final

from dra_extender.api.errors import ApiError, UndecodableError, is_passing
from dra_extender.scheduling.outcomes import BindResult, UndecidedReason

DELETED: Final = "the pod is gone or being deleted"
REPLACED: Final = "there is no pod with this name and UID"
FOREIGN: Final = "the pod is for a scheduler that this extender does not serve"
UNREADABLE: Final = "the pod cannot be read"
DEPOSED: Final = "another replica leads now"
LATE: Final = "the bind took too long"
STILL_RUNNING: Final = "a bind of the pod is still under way"
BOUND_ELSEWHERE: Final = "the pod is bound to another node"
REFUSED_BINDING: Final = "the API server refused the binding"
OWN_WRITE_UNSEEN: Final = "the claim's new status was not seen on the watch in time"
RIVAL: Final = "a device was allocated to another claim at the same time"
VANISHED: Final = "the limits of a device are not published at the moment"
TAKEN: Final = "the devices were taken at the same time"
CLASS_UNKNOWN: Final = "no device class is known for an extended resource"
WAITING: Final = "waiting for the devices to become ready"
UNTOLD: Final = "it cannot be told whether the pod is bound"
PUT_OFF: Final = "what was written for it is not taken back yet"
BROKEN: Final = "internal error, see the log of the extender"


class BindFailure(Exception):
    """The bind cannot go on. The text is constant per reason and claim, and reaches the pod's events.

    `result` says how it is counted. `keep`: what is written stays for the pod's next attempt. `clear`: allocations
    are taken back even if an earlier attempt made them, as long as nobody else uses them.
    """

    def __init__(self, text: str, result: BindResult = "failed", *, keep: bool = False, clear: bool = False) -> None:
        super().__init__(text)
        self.text = text
        self.result = result
        self.keep = keep
        self.clear = clear


class Undecided(Exception):
    """It cannot be told what is stored, or it cannot be changed, until something outside of us changes: `text` says
    what and why, for people; `reason` says how it is counted.
    """

    def __init__(self, what: str, error: ApiError) -> None:
        super().__init__(what)
        self.text = f"{what}: {said(error)}"
        self.reason: UndecidedReason = "refused"
        if isinstance(error, UndecodableError):
            self.reason = "undecodable"
        elif is_passing(error):
            self.reason = "unanswered"


def said(error: ApiError) -> str:
    """What the server said, in a constant text."""
    if isinstance(error, UndecodableError):
        return "the API server's reply cannot be decoded"
    if is_passing(error):
        return "the API server does not answer"
    return f"refused with {error.status} {error.reason}".rstrip()
