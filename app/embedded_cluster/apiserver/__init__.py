"""An API server in this process: the Kubernetes HTTP API on loopback for demos, tests and load."""

from embedded_cluster.apiserver.access import Access, Attributes, AuditEvent, AuditLog
from embedded_cluster.apiserver.faults import Faults, RequestFault
from embedded_cluster.apiserver.server import EmbeddedAPIServer
from embedded_cluster.apiserver.statuses import StatusError
from embedded_cluster.apiserver.store import Store

__all__ = [
    "Access",
    "Attributes",
    "AuditEvent",
    "AuditLog",
    "EmbeddedAPIServer",
    "Faults",
    "RequestFault",
    "StatusError",
    "Store",
]
