"""An API server in this process: the Kubernetes HTTP API on loopback for demos, tests and load."""

from embedded_cluster.apiserver.access import Access, Attributes
from embedded_cluster.apiserver.audit import Audit, Served
from embedded_cluster.apiserver.faults import Fault, Faults
from embedded_cluster.apiserver.server import EmbeddedAPIServer
from embedded_cluster.apiserver.statuses import StatusError
from embedded_cluster.apiserver.store import Store

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
