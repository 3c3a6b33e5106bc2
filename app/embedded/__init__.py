"""A cluster in a box: an API server and the actors around it, for demos, tests and load."""

from app.embedded.apiserver import EmbeddedAPIServer, Fault

__all__ = ["EmbeddedAPIServer", "Fault"]
