"""A cluster in a box: an API server and the actors around it, for demos, tests and load."""

from embedded_cluster.apiserver import EmbeddedAPIServer, RequestFault

__all__ = ["EmbeddedAPIServer", "RequestFault"]
