"""Devices kept for pods that have made room for themselves, until they are bound or give up.

Promises: what is kept for a pod counts as taken for all others but those of higher priority, whichever verb they ask;
it is device by device, so also what is free already while other victims are still there. Nothing is kept, and nothing
costs anything, while there are no nominations. What a pod in the cluster says of its own nomination (`Mark`) is enough
to have it again after a restart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from dra_extender.api.core import Pod
from dra_extender.api.resource import DeviceID
from dra_extender.devices.overlay import Planned

MARK: Final = "dra-extender.dev/preemption"
"""Annotation of pods that are nominated by us: a `Mark` as JSON."""


class Mark(msgspec.Struct, frozen=True, gc=False):
    """What has to be known of a nomination by whoever leads next: it is written before the first victim goes."""

    node: str
    victims: tuple[str, ...]
    """UIDs of pods."""
    until: str
    """When the nomination ends at the latest, RFC 3339."""


_mark = msgspec.json.Decoder(Mark)


def mark_of(pod: Pod) -> Mark | None:
    """What the pod says of its nomination; None when it says nothing, or nothing that can be read."""
    told = pod.metadata.annotations.get(MARK)
    if told is None:
        return None
    try:
        return _mark.decode(told)
    except (msgspec.DecodeError, ValueError):
        return None


class Nomination(msgspec.Struct, frozen=True, kw_only=True):
    """The node on which room is made for a pod, by whose end, and the devices that are kept for it."""

    pod: Pod
    """As it was when it was nominated."""
    node: str
    victims: tuple[str, ...]
    """UIDs of pods."""
    plans: tuple[Planned, ...]
    until: float
    """When it ends at the latest, monotonic seconds."""
    claims: tuple[str, ...] = ()
    """UIDs of claims that are free when the victims are gone."""
    devices: Mapping[str, Sequence[DeviceID]] = {}
    """By UID of a victim: what the pod needs of it, as far as is known."""
    freed: float | None = None
    """Since when all victims are gone, monotonic seconds."""


class Nominations:
    """By UID of the pod that is nominated."""

    def __init__(self) -> None:
        self._by_pod: dict[str, Nomination] = {}

    def put(self, nomination: Nomination) -> None:
        """From now on, or with these changes."""
        self._by_pod[nomination.pod.metadata.uid] = nomination

    def drop(self, pod_uid: str) -> None:
        """The pod is bound, or gone, or has given up."""
        self._by_pod.pop(pod_uid, None)

    def get(self, pod_uid: str) -> Nomination | None:
        return self._by_pod.get(pod_uid)

    def clear(self) -> None:
        """Another replica leads, and knows better."""
        self._by_pod.clear()

    def kept_from(self, pod: Pod) -> Sequence[Planned]:
        """What is kept for others whose priority is not lower."""
        if not self._by_pod:
            return ()
        uid, priority = pod.metadata.uid, pod.spec.priority
        return [
            plan
            for other, nomination in self._by_pod.items()
            if other != uid and nomination.pod.spec.priority >= priority
            for plan in nomination.plans
        ]

    def promises(self, claim_uid: str, pod: Pod) -> bool:
        """True when the claim is to be deallocated for another pod whose priority is not lower."""
        uid, priority = pod.metadata.uid, pod.spec.priority
        return any(
            other != uid and nomination.pod.spec.priority >= priority and claim_uid in nomination.claims
            for other, nomination in self._by_pod.items()
        )

    def __contains__(self, pod_uid: str) -> bool:
        return pod_uid in self._by_pod

    def __iter__(self) -> Iterator[Nomination]:
        return iter(list(self._by_pod.values()))

    def __len__(self) -> int:
        return len(self._by_pod)
