"""Plays recorded exchanges with the API server that the tests of scheduling and chaos have in memory.

The simulation has ports, not paths: a request is translated into what one of ours would have called for it, and a
request that none of ours makes is left out, with a reason. What it changed at the real server is put as recorded then,
as others do, so that the scenario goes on. Compared are the class of the outcome and the stored object, as far as the
simulation has it; resource versions and uids by whether they are the same as before.

Three things stand for others, because the server treats them alike: a ConfigMap for a claim, a label for an annotation,
and any finalizer for ours.
"""

from __future__ import annotations

import json
import re
import string
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from dra_extender.api.core import Pod
from dra_extender.api.decoding import DecodeError, convert, to_builtins
from dra_extender.api.errors import ApiError, error_from_status
from dra_extender.api.meta import Object
from dra_extender.api.resource import FINALIZER, AllocationResult, ResourceClaim, ResourceClaimConsumerReference
from tests.support.contract.answers import Json, at, differences, drop
from tests.support.contract.exchanges import Answer, Scenario, Step, merged
from tests.support.simulation.api import Api
from tests.support.simulation.client import Client

Stored: TypeAlias = ResourceClaim | Pod

Reason = Literal[
    "kinds of objects that only others write",
    "what only others do to pods",
    "lists, watches and other forms of an answer",
    "options that none of ours sends",
    "other versions of the API",
    "rights: everybody has all",
    "requests that are not well formed",
    "whole objects are never replaced",
    "fields that none of ours writes",
    "fields that the simulation has not",
    "names that the server makes",
    "the form of what is written",
]
NAMESPACE = "default"
OF_A_BINDING = {"example.com/allocation": "a1"}
"""Annotations that a binding hands on to the pod; none of ours sends any."""
OPAQUE = {
    "claims": "Alternatives are checked|Configurations are checked|Constraints are checked|Counts and modes are checked"
    "|Requested capacity is checked|Requests are checked|Selectors are checked|Tolerations are checked"
    "|What is said of a selector that is no good"
    "|Admin access needs the label of the namespace",
    "claimstatus": "Admin access in an allocation needs the label of the namespace|An allocation has proper names"
    "|Binding conditions come in pairs|Configurations of an allocation are checked"
    "|The node selector of an allocation is checked|A share is a lower case UUID|Tolerations of results are checked",
    "objects": "A name is needed|A name must be a DNS name|A resource version cannot be given at creation"
    "|Finalizers need a proper name|Kind and version of the object must be those of the path"
    "|Labels and annotations must be well formed|Namespace of the object and of the path must be the same"
    "|A namespace that is not there|Owner references must be complete",
    "patches": "A patch that breaks the object is refused",
    "pods": "A binding is checked|The claim behind an extended resource is checked|The claims of a pod are told in its "
    "status|The status of a pod is written through its own resource",
}
"""Scenarios whose refusals are about the form of names, quantities, selectors and the like."""
_PATH = re.compile(r"\$(?P<plural>claims|configmaps|pods)(/(?P<name>[^/?]+))?(/(?P<part>\w+))?(?P<query>\?.*)?")


class Left(Exception):
    """None of ours makes this request."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason: Reason = reason


@dataclass
class Played:
    """What became of the exchanges of some scenarios."""

    alike: int = 0
    left: Counter[Reason] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Request:
    """A step, with everything in it that stands for something else replaced."""

    step: Step
    kind: type[Stored]
    name: str
    part: str
    body: Json

    @property
    def key(self) -> str:
        return f"{NAMESPACE}/{self.name}"


class Player:
    """One scenario against one simulation."""

    def __init__(self, scenario: Scenario, recorded: list[Answer]) -> None:
        self.api = Api()
        self.client = Client(self.api, latency=0.0)
        self._scenario, self._recorded = scenario, recorded
        self._finalizer = "example.com/more" if "example.com/more" in repr(scenario.steps) else "example.com/keep"
        self._variables: dict[str, str] = {"ns": NAMESPACE}
        self._same: dict[str, str] = {}
        """Placeholders of the recording, and what they stand for here."""

    async def play(self, played: Played) -> None:
        """All steps, told in `played`."""
        for number, (step, answer) in enumerate(zip(self._scenario.steps, self._recorded, strict=True)):
            want = self._replaced(answer)
            try:
                request = self._request(step)
                found = await self._play(request, want)
                played.alike += not found
                where = f"{self._scenario.file}: {self._scenario.name}: {number} {step.method} {step.path}"
                played.differences += [f"{where}: {line}" for line in found]
            except Left as left:
                played.left[left.reason] += 1
                self._follow(step, want)
            self._keep(step, want)

    # translation

    def _replaced(self, value: Json) -> Json:
        text = json.dumps(value).replace("<ns>", NAMESPACE).replace(self._finalizer, FINALIZER)
        text = text.replace(json.dumps(OF_A_BINDING), "{}")
        return json.loads(text.replace('"labels"', '"annotations"'))

    def _request(self, step: Step) -> _Request:
        if step.limited:
            raise Left("rights: everybody has all")
        found = _PATH.fullmatch(step.path)
        if found is None:
            raise Left(
                "other versions of the API" if "v1beta" in step.path else "kinds of objects that only others write"
            )
        if step.accept != "application/json" or (step.method == "GET" and not found["name"]):
            raise Left("lists, watches and other forms of an answer")
        if found["query"]:
            raise Left("options that none of ours sends")
        if step.method == "PUT":
            raise Left("whole objects are never replaced")
        if isinstance(step.body, str) or step.content_type.split("/")[1].partition("-")[0] not in _TYPES:
            raise Left("requests that are not well formed")
        if "while their feature is off" in self._scenario.name:
            raise Left("fields that the simulation has not")
        kind: type[Stored] = Pod if found["plural"] == "pods" else ResourceClaim
        text = string.Template(json.dumps(self._replaced(step.body))).safe_substitute(self._variables)
        return _Request(step, kind, found["name"] or "", found["part"] or "", json.loads(text))

    async def _play(self, request: _Request, want: Answer) -> list[str]:
        """What differs. Raises Left."""
        call = self._claims(request) if request.kind is ResourceClaim else self._pods(request)
        if want["status"] in (400, 422, 500) and self._scenario.name in OPAQUE.get(self._scenario.file, "").split("|"):
            raise Left("the form of what is written")
        try:
            got = await call()
        except ApiError as error:
            return [] if type(error) is _outcome(want) else [f"want {_told(want)}, got {error!r}"]
        except DecodeError as error:
            if want["status"] in (400, 422):
                raise Left("requests that are not well formed") from None
            if "unknown field" in str(error):
                raise Left("fields that none of ours writes") from None
            raise
        if want["status"] == 404 and got is None:
            return []  # the port says nothing of it
        if want["status"] >= 300:
            return [f"want {_told(want)}, got {got}"]
        stored = self.api.objects.get((request.kind, request.key))
        return self._differences(request, want["body"], stored, got)

    def _claims(self, request: _Request) -> Callable[[], Awaitable[Any]]:
        body, method = request.body, request.step.method
        if method == "GET" and not request.part:
            return lambda: self.client.read_claim(NAMESPACE, request.name)
        if method == "POST" and not request.name:
            if "name" not in body.get("metadata", {}) and "generateName" in body.get("metadata", {}):
                raise Left("names that the server makes")
            return lambda: self.client.create_claim(NAMESPACE, body)
        if method == "DELETE" and not request.part:
            wanted = (body or {}).get("preconditions", {})
            return lambda: self.client.delete_claim(self._decided(request, wanted))
        if method == "PATCH":
            return self._status(request) if request.part == "status" else self._metadata(request)
        raise Left("requests that are not well formed")

    def _decided(self, request: _Request, preconditions: Mapping[str, str]) -> ResourceClaim:
        """The claim a write is made for: as it is stored, unless the request says of which one it is."""
        stored: ResourceClaim | None = self.api.objects.get((ResourceClaim, request.key))
        if stored is None:
            return convert(ResourceClaim, {"metadata": {"name": request.name, "namespace": NAMESPACE}})
        changed = {
            name: preconditions[wire]
            for name, wire in (("uid", "uid"), ("resource_version", "resourceVersion"))
            if wire in preconditions
        }
        return msgspec.structs.replace(stored, metadata=msgspec.structs.replace(stored.metadata, **changed))

    def _metadata(self, request: _Request) -> Callable[[], Awaitable[ResourceClaim]]:
        if request.body == [{"op": "remove", "path": "/metadata/finalizers/0"}]:
            body: Json = {"metadata": {"finalizers": None}}
        else:
            body = request.body
        if not isinstance(body, dict) or body.keys() != {"metadata"}:
            raise Left("fields that none of ours writes")
        meta = body["metadata"]
        claim = self._decided(request, meta)
        written = meta.keys() - {"uid", "resourceVersion"}
        have = claim.metadata.finalizers
        if (
            written == {"annotations"}
            and isinstance(meta["annotations"], dict)
            and None not in meta["annotations"].values()
        ):
            return lambda: self.client.annotate(claim, meta["annotations"])
        if written == {"finalizers"}:
            wanted = tuple(meta["finalizers"] or ())
            if wanted == (*have, FINALIZER):
                return lambda: self.client.add_finalizer(claim)
            if FINALIZER in have and wanted == tuple(name for name in have if name != FINALIZER):
                return lambda: self.client.remove_finalizer(claim)
        raise Left("fields that none of ours writes")

    def _status(self, request: _Request) -> Callable[[], Awaitable[ResourceClaim]]:
        patch, body = request.body.get("status", {}), request.body
        odd = body.keys() - {"status", "metadata"} or body.get("metadata", {}).keys() - {"uid", "resourceVersion"}
        if odd or patch.keys() - {"allocation", "reservedFor"}:
            raise Left("fields that none of ours writes")
        claim = self._decided(request, body.get("metadata", {}))
        if patch == {"allocation": None, "reservedFor": None}:
            return lambda: self.client.deallocate(claim)
        reserved = to_builtins(claim.status.reserved_for)
        if "strategic" in request.step.content_type:
            reserved = _by_uid(reserved, patch.get("reservedFor", ()))
        elif "reservedFor" in patch:
            reserved = patch["reservedFor"] or []
        allocation: AllocationResult | UnsetType | None = UNSET if "allocation" not in patch else None
        try:
            if patch.get("allocation") is not None:
                allocation = convert(
                    AllocationResult, merged(to_builtins(claim.status.allocation) or {}, patch["allocation"])
                )
            consumers = [convert(ResourceClaimConsumerReference, entry) for entry in reserved]
        except DecodeError:
            raise Left("the form of what is written") from None
        return lambda: self.client.write_status(claim, allocation=allocation, reserved_for=consumers)

    def _pods(self, request: _Request) -> Callable[[], Awaitable[Any]]:
        body, method = request.body, request.step.method
        if method == "GET" and not request.part:
            return lambda: self.client.read_pod(NAMESPACE, request.name)
        stored = self.api.objects.get((Pod, request.key))
        if method == "POST" and request.part == "binding":
            if "schedulingGates" in repr(self._scenario.steps):
                raise Left("fields that the simulation has not")
            uid = body["metadata"].get("uid", stored.metadata.uid if stored is not None else "")
            version = body["metadata"].get("resourceVersion", "")
            return lambda: self.client.bind_pod(NAMESPACE, request.name, uid, version, body["target"].get("name", ""))
        if method == "PATCH" and request.part == "status":
            if body.keys() != {"status"} or "$" in json.dumps(body) or stored is None:
                raise Left("fields that none of ours writes")
            if "strategic" not in request.step.content_type and "conditions" in body["status"]:
                raise Left("fields that none of ours writes")
            return lambda: self.client.patch_pod_status(stored, body["status"])
        raise Left("what only others do to pods")

    # comparison

    def _differences(self, request: _Request, body: Json, stored: Stored | None, got: Stored | None) -> list[str]:
        """Between what the real server answered and what is stored here, or was answered when it is not."""
        if not isinstance(body, dict) or body.get("kind") == "Status":
            return []
        if _gone(body) and stored is not None:
            return [f"want it to be gone, got {stored}"]
        have = got if got is not None else stored
        if have is None:
            return []
        want, plain = convert(request.kind, body), to_builtins(have)
        for path in request.step.ignore:
            drop(plain, path)
        have = convert(request.kind, plain)
        found = []
        for name in ("finalizers", "annotations", "owner_references", "name", "namespace"):
            pair = getattr(want.metadata, name), getattr(have.metadata, name)
            found += [f"{name}: want {pair[0]}, got {pair[1]}"] if pair[0] != pair[1] else []
        if bool(want.metadata.deletion_timestamp) != bool(have.metadata.deletion_timestamp):
            found.append(f"deletion: want {want.metadata.deletion_timestamp}, got {have.metadata.deletion_timestamp}")
        found += self._told_apart(want.metadata.resource_version, have.metadata.resource_version)
        found += self._told_apart(want.metadata.uid, have.metadata.uid)
        if body.get("kind") in ("ResourceClaim", "Pod"):
            for part in ("spec", "status"):
                found += _apart(getattr(want, part), getattr(have, part), part)
        return found

    def _told_apart(self, want: str, have: str) -> list[str]:
        if self._same.setdefault(want, have) == have and list(self._same.values()).count(have) == 1:
            return []
        return [f"{want} was {self._same[want]}, and is {have} now"]

    # what others do

    def _follow(self, step: Step, want: Answer) -> None:
        """Others do what none of ours does: as recorded."""
        body = want.get("body")
        found = _PATH.fullmatch(step.path)
        if found is None or step.method == "GET" or want["status"] >= 300 or "dryRun" in step.path:
            return
        kind: type[Stored] = Pod if found["plural"] == "pods" else ResourceClaim
        if not isinstance(body, dict) or body.get("kind") not in ("ResourceClaim", "Pod", "ConfigMap"):
            if step.method == "DELETE" or found["part"] == "eviction":
                self.api.objects.pop((kind, f"{NAMESPACE}/{found['name']}"), None)
            return
        obj = convert(kind, body)
        if _gone(body) or (step.method == "DELETE" and not obj.metadata.deletion_timestamp):
            self.api.drop(obj)
        elif obj.metadata.resource_version not in self._same:
            uid = self._same.setdefault(obj.metadata.uid, obj.metadata.uid)
            stored = self.api.put(msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, uid=uid)))
            self._same[obj.metadata.resource_version] = stored.metadata.resource_version

    def _keep(self, step: Step, want: Answer) -> None:
        for name, source in step.keep.items():
            told = str(at(want.get("body"), source))
            self._variables[name] = self._same.get(told, told)


_TIME = re.compile(r'"\d{4}-\d\d-\d\dT[0-9:.]+Z"')
_TYPES = {"json", "merge", "strategic"}


def _apart(want: Object, have: Object, part: str) -> list[str]:
    """Where two structs differ, apart from when things were."""
    plain = [_full(json.loads(_TIME.sub('"<time>"', json.dumps(to_builtins(each))))) for each in (want, have)]
    return differences(plain[0], plain[1], part)


def _full(value: Json) -> Json:
    """Without the objects in which nothing is said."""
    if isinstance(value, dict):
        kept = {key: _full(item) for key, item in value.items()}
        return {key: item for key, item in kept.items() if item != {}}
    return [_full(item) for item in value] if isinstance(value, list) else value


def _gone(body: Json) -> bool:
    """Whether an answer is the last that is heard of an object."""
    meta = body["metadata"]
    return "deletionTimestamp" in meta and not meta.get("finalizers") and not meta.get("deletionGracePeriodSeconds", 0)


def _outcome(want: Answer) -> type[ApiError] | None:
    if want["status"] < 300:
        return None
    return type(error_from_status(want["status"], "", "", want["body"].get("details")))


def _told(want: Answer) -> str:
    kind = _outcome(want)
    return f"{kind.__name__ if kind is not None else 'success'} ({want['status']})"


def _by_uid(entries: list[Json], patch: list[Json]) -> list[Json]:
    """A strategic merge patch of a list with the key uid."""
    taken = {entry["uid"] for entry in patch}
    new = [entry for entry in patch if entry.get("$patch") != "delete"]
    return [*new, *(entry for entry in entries if entry["uid"] not in taken)]


async def play(scenario: Scenario, recorded: list[Answer], played: Played) -> None:
    """One scenario with a simulation of its own."""
    await Player(scenario, recorded).play(played)
