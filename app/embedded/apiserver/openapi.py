"""OpenAPI v3 documents, one per group and version, as far as kubectl reads them."""

from __future__ import annotations

from app.embedded.apiserver.registry import Registry
from app.embedded.apiserver.requests import Answer
from app.embedded.apiserver.statuses import no_such_resource


class OpenAPI:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def answer(self, path: str) -> Answer:
        raise no_such_resource()
