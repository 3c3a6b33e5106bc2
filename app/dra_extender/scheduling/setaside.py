"""Pods and objects that are set aside, because work on one of them kept a process from all other work.

Promises: a pod is set aside together with the pods of its namespace that request the same. They are refused without a
decision for `SECONDS`, by every replica. When a namespace has `MOST_OF_NAMESPACE` different entries, all its pods are
refused. An object that a process does not get decoded or applied counts as undecodable for as long. The annotation of
the lease remembers them: only administrators can write it, and it outlives the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from dra_extender.api.core import Pod
from dra_extender.api.meta import Object, ObjectKey
from dra_extender.api.resource import ResourceClaim
from dra_extender.devices.content import digest
from dra_extender.devices.validity import ObjectProblem
from dra_extender.scheduling.ports import Clock

ANNOTATION: Final = "dra-extender.dev/set-aside"
SECONDS: Final = 3600.0
MOST_OF_NAMESPACE: Final = 3
MOST: Final = 100
REASON: Final = "the pod is set aside: a decision on it or on an equal pod stopped a process of dra-extender"
UNREAD: Final = "it is set aside: reading it stopped a process of dra-extender"
ADVICE: Final = (
    "correct the pod and its claims, and report a bug; the service tries again after an hour, or when the annotation "
    f"{ANNOTATION} of its lease is removed"
)


class SetAsideEntry(Object, frozen=True, gc=False):
    """`pod`: name of the first pod, or of the object. `content`: what equal pods have in common; empty for an object
    that is not read. `until`: Unix time.
    """

    namespace: str
    pod: str
    content: str
    until: float
    kind: str = Pod.__name__

    @property
    def key(self) -> ObjectKey:
        return ObjectKey(self.kind, f"{self.namespace}/{self.pod}" if self.namespace else self.pod)


class SetAside:
    """`annotation`: its value now."""

    def __init__(self, clock: Clock) -> None:
        self.annotation: Callable[[], str] = lambda: ""
        self._clock = clock
        self._known: tuple[str, tuple[SetAsideEntry, ...]] = "", ()

    def reason(self, pod: Pod, claims: Sequence[ResourceClaim]) -> str:
        """Why nothing may be decided on the pod; empty for almost all pods."""
        own = [entry for entry in self._entries() if entry.namespace == pod.metadata.namespace]
        found = len(own) >= MOST_OF_NAMESPACE or (own and _content(pod, claims) in {entry.content for entry in own})
        return REASON if found else ""

    def object_reason(self, key: ObjectKey) -> str:
        """Why the object is not read; empty for almost all objects."""
        return UNREAD if any(not entry.content and entry.key == key for entry in self._entries()) else ""

    def adding(self, subject: Pod | ObjectKey, claims: Sequence[ResourceClaim] = ()) -> str:
        """The annotation with this pod, which has these claims, or with this object."""
        until = self._clock.wall().timestamp() + SECONDS
        if isinstance(subject, Pod):
            meta = subject.metadata
            entry = SetAsideEntry(meta.namespace, meta.name, _content(subject, claims), until)
        else:
            namespace, _, name = subject.name.rpartition("/")
            entry = SetAsideEntry(namespace, name, "", until, subject.kind)
        return msgspec.json.encode((*self._entries(), entry)[-MOST:]).decode()

    @property
    def problems(self) -> Iterator[ObjectProblem]:
        """The pods on which nothing is decided. Objects that are not read are reported as undecodable."""
        return (ObjectProblem(entry.key, REASON, ADVICE) for entry in self._entries() if entry.content)

    def _entries(self) -> Sequence[SetAsideEntry]:
        text = self.annotation()
        if text != self._known[0]:
            self._known = text, _decoded(text)
        entries = self._known[1]
        now = self._clock.wall().timestamp() if entries else 0.0
        return [entry for entry in entries if entry.until > now]


def _decoded(text: str) -> tuple[SetAsideEntry, ...]:
    try:
        return msgspec.json.decode(text or "[]", type=tuple[SetAsideEntry, ...])
    except (msgspec.DecodeError, ValueError):
        return ()


def _content(pod: Pod, claims: Sequence[ResourceClaim]) -> str:
    """Equal for pods that differ only in their names and in the names of their claims."""
    spec = msgspec.structs.replace(pod.spec, node_name="", resource_claims=())
    return digest(spec, [claim.spec for claim in claims]).hex()
