"""The extender verbs: `POST /scheduler/{filter,prioritize,preempt,bind}` and `POST /advisor/prioritize`.

Promises to kube-scheduler (extender protocol v1, as its client in pkg/scheduler/extender.go reads it):
- success is status 200 and one JSON value with its length;
- an invalid request gets an error in the protocol's own field where there is one (filter and bind: `Error`), otherwise
  a status other than 200 (prioritize and preempt have no error field);
- a client that is not allowed gets 403 and no decision;
- a replica that is not the leader answers as the leader does, if calls are forwarded;
- while no decision may be made, the response is 503 and closes the connection, so the next call can reach another
  replica;
- no request, however wrong, causes a 500 or disturbs another request;
- a bind continues after its client has disconnected.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sized
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

import msgspec
import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from dra_extender.api.decoding import DecodeError, decode
from dra_extender.api.extender import (
    NEEDS_NAMES,
    NEEDS_VICTIMS,
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
)
from dra_extender.http.authorization import AllowedClients
from dra_extender.http.forwarding import HEADER, MISDIRECTED, Forwarding
from dra_extender.http.metrics import Metrics, VerbName, VerbResult
from dra_extender.http.responses import CLOSE, BodyTooLargeError, error_response, json_response, read_body
from dra_extender.limits import NODES_OF_REQUEST, OBJECTS_OF_REQUEST
from dra_extender.scheduling.extender import Extender
from dra_extender.unexpected import unexpected

log = structlog.get_logger(__name__)

A = TypeVar("A")
R = TypeVar("R")

INTERNAL_ERROR: Final = "dra-extender: internal error, see its log"
LONGEST_NAME: Final = 253
"""Characters of a name (DNS subdomain)."""
MAX_BODY: Final = 8 * 2**20


class VerbContext(msgspec.Struct, frozen=True):
    """What all verbs of a service share. `unavailable`: why no decision may be made now (empty when it may).
    `max_body`: bytes. `forwarding` calls the leader when this replica is not the leader.
    """

    unavailable: Callable[[], str]
    metrics: Metrics
    max_body: int = MAX_BODY
    clients: AllowedClients = msgspec.field(default_factory=AllowedClients)
    forwarding: Forwarding | None = None


class _VerbKind(msgspec.Struct, Generic[A, R], frozen=True):
    """`invalid`: what is wrong with decoded arguments (empty: nothing). `describe`: the fields of the log line.
    `result`: the struct with the field `Error`, if the protocol has one.
    """

    name: VerbName
    args: type[A]
    decide: Callable[[Extender, A], Awaitable[R]]
    """If it raises, that is a bug: the response has the text of `INTERNAL_ERROR`."""
    invalid: Callable[[A], str]
    describe: Callable[[A, R], dict[str, object]]
    result: Callable[..., R] | None = None

    def refuse(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
        """The response to an invalid request."""
        if self.result is None:
            return error_response(status, text, headers)
        return json_response(self.result(Error=text), headers=headers)


@dataclass(eq=False)
class _Verb(Generic[A, R]):
    """One verb as an ASGI application."""

    _kind: _VerbKind[A, R]
    _extender: Callable[[], Extender]
    _context: VerbContext
    _log: Any = field(default_factory=log.bind)  # once: structlog reads its configuration each time

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        if scope["method"] != "POST":
            await error_response(405, "POST only", {"Allow": "POST"})(scope, receive, send)
            return
        try:
            response, result = await self._respond(scope, receive)
        except BodyTooLargeError:
            text = f"dra-extender: {self._kind.name} request: larger than {self._context.max_body} bytes"
            response, result = self._kind.refuse(413, text, CLOSE), "malformed"
        except ClientDisconnect:
            return
        self._context.metrics.answered(self._kind.name, result, time.perf_counter() - started)
        await response(scope, receive, send)

    async def _respond(self, scope: Scope, receive: Receive) -> tuple[Response, VerbResult]:
        """Reads the body only for a client that may call the verbs."""
        kind, context = self._kind, self._context
        refusal = context.clients.refusal(scope.get("state", {}))
        if refusal:
            return error_response(403, refusal, CLOSE), "forbidden"
        body = await read_body(Request(scope, receive), context.max_body)
        forwarded = any(name == HEADER for name, _ in scope["headers"])
        if context.forwarding is not None and not forwarded:
            response = await context.forwarding.forward(scope, body)
            if response is not None:
                return response, "forwarded"
        reason = context.unavailable()
        if reason:
            status = MISDIRECTED if forwarded else 503
            return error_response(status, f"dra-extender: {reason}", CLOSE), "unavailable"
        objects = body.count(b"{")
        if objects > OBJECTS_OF_REQUEST:
            text = f"the request has {objects:,} objects; at most {OBJECTS_OF_REQUEST:,} are allowed"
            return kind.refuse(400, f"dra-extender: {kind.name} request: {text}"), "malformed"
        try:
            args = decode(kind.args, body)
        except DecodeError as mistake:
            return kind.refuse(400, f"dra-extender: {kind.name} request: {mistake.problem}"), "malformed"
        invalid = kind.invalid(args)
        if invalid:
            return kind.refuse(400, invalid), "malformed"
        try:
            decided = kind.decide(self._extender(), args)
            # A bind continues when its client disconnects: it must finish or undo its writes.
            result = await (asyncio.shield(decided) if kind.name == "bind" else decided)
            response = json_response(result)
        except Exception as mistake:
            unexpected("verb", mistake, verb=kind.name)
            return kind.refuse(503, INTERNAL_ERROR), "broken"
        error = getattr(result, "Error", "")
        ended: VerbResult = "error" if error else "ok"
        fields = kind.describe(args, result) | ({"error": error} if error else {})
        (self._log.info if kind.name == "bind" else self._log.debug)(kind.name, outcome=ended, **fields)
        return response, ended


def verb_routes(extender: Callable[[], Extender], context: VerbContext) -> dict[str, ASGIApp]:
    """The verbs by path. `extender` is called for each request, while `context.unavailable` is empty."""
    return {path: _Verb(kind, extender, context) for path, kind in _KINDS.items()}


def _invalid_nodes(args: ExtenderArgs) -> str:
    return NEEDS_NAMES if args.NodeNames is None else _too_many("NodeNames", args.NodeNames)


def _invalid_filter(args: ExtenderArgs) -> str:
    if args.Nodes is not None and args.NodeNames is None:
        return _too_many("Nodes", args.Nodes.items or ())
    return _invalid_nodes(args)


def _invalid_victims(args: ExtenderPreemptionArgs) -> str:
    victims = args.NodeNameToMetaVictims
    return NEEDS_VICTIMS if victims is None else _too_many("NodeNameToMetaVictims", victims)


def _too_many(field: str, nodes: Sized) -> str:
    if len(nodes) <= NODES_OF_REQUEST:
        return ""
    return f"dra-extender: the request has {len(nodes):,} nodes in {field}; at most {NODES_OF_REQUEST:,} are allowed"


def _invalid_binding(args: ExtenderBindingArgs) -> str:
    for name in ("PodName", "PodNamespace", "PodUID", "Node"):
        given = getattr(args, name)
        if not given:
            return f"dra-extender: bind request: {name} is empty"
        if given in (".", ".."):
            return f'dra-extender: bind request: {name} is "{given}", which is not a valid name'
        if len(given) > LONGEST_NAME:
            return f"dra-extender: bind request: {name} has {len(given):,} characters; {LONGEST_NAME} are allowed"
    return ""


def _fields(args: ExtenderArgs | ExtenderPreemptionArgs, nodes: Sized) -> dict[str, object]:
    return {"pod": args.Pod.metadata.key, "nodes": len(nodes)}


_KINDS: Final[Mapping[str, _VerbKind[Any, Any]]] = {
    "/scheduler/filter": _VerbKind(
        "filter",
        ExtenderArgs,
        lambda extender, args: extender.filter(args),
        _invalid_filter,
        lambda args, result: _fields(args, args.NodeNames or ()) | {"fits": len(result.NodeNames)},
        ExtenderFilterResult,
    ),
    "/scheduler/prioritize": _VerbKind(
        "prioritize", ExtenderArgs, lambda extender, args: extender.prioritize(args), _invalid_nodes, _fields
    ),
    "/scheduler/preempt": _VerbKind(
        "preempt",
        ExtenderPreemptionArgs,
        lambda extender, args: extender.preempt(args),
        _invalid_victims,
        lambda args, result: (
            _fields(args, args.NodeNameToMetaVictims or ()) | {"candidates": len(result.NodeNameToMetaVictims)}
        ),
    ),
    "/scheduler/bind": _VerbKind(
        "bind",
        ExtenderBindingArgs,
        lambda extender, args: extender.bind(args),
        _invalid_binding,
        lambda args, _: {"pod": f"{args.PodNamespace}/{args.PodName}", "node": args.Node},
        ExtenderBindingResult,
    ),
    "/advisor/prioritize": _VerbKind(
        "advise", ExtenderArgs, lambda extender, args: extender.advise(args), _invalid_nodes, _fields
    ),
}
