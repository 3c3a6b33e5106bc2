"""What several allocators made of the same devices, told from the order in which the API server stored it.

`History` replays every version of claims and pods by resourceVersion, which is one sequence for all kinds of one API
server. It tells each time that a device got into a second claim: who wrote first, who wrote second, how that ended, and
what pods were bound at the same time. Who wrote an allocation is what the API server noted in managedFields. Pure.

Promises: every overlap of two allocations is listed once per device, however short it was. It `stood` when the pod of
the claim that was written second was bound while the first claim still had the device; a second write that was taken
back before any binding gives nothing away. A device was `shared` when pods of both claims were bound at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

OURS, IN_TREE = "dra-extender", "kube-scheduler"
"""Field managers of the two allocators: the names at the front of their user agents."""
STOCK = "default-scheduler"
"""The scheduler with the in-tree plugin."""

Device = str
"""driver/pool/device."""
Ending = Literal["taken back", "gave way", "ran out", "open"]


class ClaimVersion(msgspec.Struct, frozen=True, tag="claim"):
    """A claim as stored at a version. `writer` of the allocation; empty without one. `gone`: it was deleted."""

    version: int
    uid: str
    key: str
    devices: frozenset[Device] = frozenset()
    writer: str = ""
    consumers: frozenset[str] = frozenset()
    gone: bool = False


class PodVersion(msgspec.Struct, frozen=True, tag="pod"):
    """A pod as stored at a version. `claims`: namespace/name of all that it uses."""

    version: int
    uid: str
    key: str
    scheduler: str = ""
    claims: tuple[str, ...] = ()
    node: str = ""
    phase: str = "Pending"
    gone: bool = False

    @property
    def over(self) -> bool:
        return self.gone or self.phase in ("Succeeded", "Failed")


Version = ClaimVersion | PodVersion


class Overlap(msgspec.Struct):
    """A device in two claims, from version `since` to `until` (0 = to the end).

    `first` and `second` are namespace/name of the claims in the order in which they were written; `ending` says which
    allocation went first: the second one (taken back), or the first one because its bind gave way or its pods were done
    (ran out). `first_bound`, `second_bound`: whether pods of the claim were bound while both had the device.
    `again`: the first claim's device was in another claim before, which has let it go. An allocator that only keeps a
    set of allocated devices takes such a device for free.
    """

    device: Device
    first: str
    second: str
    first_writer: str
    second_writer: str
    since: int
    until: int = 0
    ending: Ending = "open"
    first_bound: bool = False
    second_bound: bool = False
    again: bool = False
    binders: dict[str, str] = msgspec.field(default_factory=dict)
    """The pods of the second claim that were bound in that time, and their schedulers."""

    @property
    def joined(self) -> bool:
        """True when ours wrote second, and only the in-tree scheduler bound pods with it: it takes the allocation
        of a claim that its own pods share for good, and reserves it before ours is taken back.
        """
        in_tree = bool(self.binders) and set(self.binders.values()) == {STOCK}
        return self.second_bound and self.second_writer == OURS and in_tree

    @property
    def stood(self) -> bool:
        """True when the second writer went on to bind a pod."""
        return self.second_bound and not self.joined

    @property
    def shared(self) -> bool:
        """Whether bound pods had the device in common."""
        return self.first_bound and self.second_bound

    @property
    def claims(self) -> frozenset[str]:
        return frozenset((self.first, self.second))

    def __str__(self) -> str:
        return (
            f"device {self.device} of claim {self.first} (written by {self.first_writer}) is in claim {self.second} "
            f"(by {self.second_writer}) as well since version {self.since}"
        ) + "".join(f"; {scheduler} bound {pod}" for pod, scheduler in self.binders.items())


class History:
    """Feed it with `replay`, once."""

    def __init__(self) -> None:
        self.overlaps: list[Overlap] = []
        self.wrong: list[str] = []
        """Pods that were bound or ran although a claim of theirs was not allocated and reserved for them."""
        self.bound: dict[str, PodVersion] = {}
        """By key: the version at which each pod was bound first."""
        self.ran: dict[str, PodVersion] = {}
        """By key: the version at which each pod ran first."""
        self.allocations: defaultdict[str, int] = defaultdict(int)
        """Written allocations by writer."""
        self._claims: dict[str, ClaimVersion] = {}
        self._named: dict[str, str] = {}
        self._pods: dict[str, PodVersion] = {}
        self._holders: defaultdict[Device, list[str]] = defaultdict(list)
        self._open: dict[tuple[Device, str, str], Overlap] = {}
        self._left: set[tuple[Device, str]] = set()
        """Holders of a device that another claim held and released in between."""
        self._used: set[str] = set()
        """Claims with which a pod was bound since they were allocated."""

    @property
    def held(self) -> list[str]:
        """Claims that are allocated at the end."""
        return sorted(claim.key for claim in self._claims.values() if claim.devices)

    def by(self, second: str, first: str = "") -> list[Overlap]:
        """The overlaps that this writer made by writing second; `first`: only onto what that one wrote."""
        found = [overlap for overlap in self.overlaps if overlap.second_writer == second]
        return [overlap for overlap in found if first in ("", overlap.first_writer)]

    def replay(self, versions: Iterable[Version]) -> None:
        """All versions of all objects, in any order, duplicates allowed."""
        for version in sorted(versions, key=lambda seen: seen.version):
            if isinstance(version, ClaimVersion):
                self._claim(version)
            else:
                self._pod(version)

    # --- claims

    def _claim(self, now: ClaimVersion) -> None:
        before = self._claims.pop(now.uid, None)
        had = before.devices if before is not None else frozenset()
        has = frozenset() if now.gone else now.devices
        if not now.gone:
            self._claims[now.uid] = now
            self._named[now.key] = now.uid
        for device in sorted(had - has):
            self._release(device, now)
        if not has:
            self._used.discard(now.uid)
        if has - had:
            self.allocations[now.writer] += 1
        for device in sorted(has - had):
            for holder in self._holders[device]:
                self._overlap(device, self._claims[holder], now)
            self._holders[device].append(now.uid)

    def _overlap(self, device: Device, first: ClaimVersion, second: ClaimVersion) -> None:
        overlap = Overlap(
            device, first.key, second.key, first.writer, second.writer, second.version,
            first_bound=self._is_used(first), second_bound=self._is_used(second),
            again=(device, first.uid) in self._left,
        )  # fmt: skip
        self.overlaps.append(overlap)
        self._open[device, first.uid, second.uid] = overlap

    def _is_used(self, claim: ClaimVersion) -> bool:
        """Whether a pod that it is reserved for is bound and not over."""
        pods = (self._pods.get(uid) for uid in claim.consumers)
        return any(pod is not None and pod.node and not pod.over for pod in pods)

    def _release(self, device: Device, now: ClaimVersion) -> None:
        self._holders[device].remove(now.uid)
        self._left.discard((device, now.uid))
        self._left.update((device, holder) for holder in self._holders[device])
        for pair in [pair for pair in self._open if pair[0] == device and now.uid in pair[1:]]:
            overlap = self._open.pop(pair)
            overlap.until = now.version
            if now.uid in self._used:
                overlap.ending = "ran out"
            else:
                overlap.ending = "taken back" if now.uid == pair[2] else "gave way"

    # --- pods

    def _pod(self, now: PodVersion) -> None:
        self._pods[now.uid] = now
        if now.gone:
            return
        if now.node and now.key not in self.bound:
            self.bound[now.key] = now
            self._check(now, "bound")
            self._mark(now)
        if now.phase == "Running" and now.key not in self.ran:
            self.ran[now.key] = now
            self._check(now, "running")

    def _check(self, pod: PodVersion, what: str) -> None:
        for key in pod.claims:
            claim = self._claims.get(self._named.get(key, ""))
            if claim is None or not claim.devices:
                self.wrong.append(f"pod {pod.key} is {what} although claim {key} is not allocated")
            elif pod.uid not in claim.consumers:
                self.wrong.append(f"pod {pod.key} is {what} although claim {key} is not reserved for it")

    def _mark(self, pod: PodVersion) -> None:
        uids = {self._named[key] for key in pod.claims if key in self._named}
        self._used |= uids
        for (_, first, second), overlap in self._open.items():
            overlap.first_bound = overlap.first_bound or first in uids
            overlap.second_bound = overlap.second_bound or second in uids
            if second in uids:
                overlap.binders[pod.key] = pod.scheduler


# --- from what the API server says ------------------------------------------------------------------------------------


def writer(claim: Mapping[str, Any]) -> str:
    """The field manager that wrote the claim's allocation; empty when it has none."""
    for entry in claim["metadata"].get("managedFields", ()):
        if "f:allocation" in entry.get("fieldsV1", {}).get("f:status", {}):
            return str(entry.get("manager", ""))
    return ""


def claim_version(claim: Mapping[str, Any], *, gone: bool = False) -> ClaimVersion:
    """A claim as in an answer of the API server."""
    meta, status = claim["metadata"], claim.get("status", {})
    results = status.get("allocation", {}).get("devices", {}).get("results", ())
    devices = frozenset(f"{result['driver']}/{result['pool']}/{result['device']}" for result in results)
    return ClaimVersion(
        version=int(meta["resourceVersion"]),
        uid=meta["uid"],
        key=f"{meta['namespace']}/{meta['name']}",
        devices=devices,
        writer=writer(claim) if devices else "",
        consumers=frozenset(consumer["uid"] for consumer in status.get("reservedFor", ())),
        gone=gone,
    )


def pod_version(pod: Mapping[str, Any], *, gone: bool = False) -> PodVersion:
    """A pod as in an answer of the API server."""
    meta, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
    entries = [*spec.get("resourceClaims", ()), *status.get("resourceClaimStatuses", ())]
    names = [entry["resourceClaimName"] for entry in entries if entry.get("resourceClaimName")]
    return PodVersion(
        version=int(meta["resourceVersion"]),
        uid=meta["uid"],
        key=f"{meta['namespace']}/{meta['name']}",
        scheduler=spec.get("schedulerName", ""),
        claims=tuple(f"{meta['namespace']}/{name}" for name in names),
        node=spec.get("nodeName", ""),
        phase=status.get("phase", ""),
        gone=gone,
    )
