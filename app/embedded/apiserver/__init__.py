"""An API server in this process: the Kubernetes HTTP API on loopback for demos, tests and load."""

from app.embedded.apiserver.access import Access, Attributes
from app.embedded.apiserver.audit import Audit, Served
from app.embedded.apiserver.faults import Fault, Faults
from app.embedded.apiserver.server import EmbeddedAPIServer
from app.embedded.apiserver.statuses import StatusError
from app.embedded.apiserver.store import Store

__all__ = [
    "Access",
    "Attributes",
    "Audit",
    "EmbeddedAPIServer",
    "Fault",
    "Faults",
    "Served",
    "StatusError",
    "Store",
]
