"""The extender verbs: `POST /scheduler/{filter,prioritize,preempt,bind}` and `POST /advisor/prioritize`.

Promises towards kube-scheduler (extender protocol v1, as its client in pkg/scheduler/extender.go reads it): success is
status 200 and one JSON value with its length; whatever is wrong with a request is said in the protocol's own terms
where it has any (filter and bind: `Error`), otherwise by a status that is not 200 (prioritize and preempt have no
error field); a client that is not allowed gets 403 and no decision; where replicas forward calls, one that does not
lead answers as the leader does; while no decision may be made it answers 503 and closes the connection, so that the
next call can reach another. No request, however wrong, leads to a 500 or disturbs another. A client that hangs up does
not stop its bind.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Sequence, Sized
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

import msgspec
import structlog
from starlette.types import Receive, Scope, Send

from dra_extender.api.decoding import DecodeError, decode, encode
from dra_extender.api.extender import (
    NEEDS_NAMES,
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
    HostPriority,
)
from dra_extender.http.answers import Answer, BodyTooLargeError, DisconnectedError, problem, read_body, send_answer
from dra_extender.http.clients import Clients
from dra_extender.http.forwarding import MISDIRECTED, Forwarding, is_forwarded
from dra_extender.http.metrics import Metrics, VerbName, VerbResult
from dra_extender.unexpected import unexpected

log = structlog.get_logger(__name__)

A = TypeVar("A")
R = TypeVar("R")
Answered: TypeAlias = R | Awaitable[R]

NEEDS_VICTIMS = "dra-extender: the request has neither NodeNameToMetaVictims nor NodeNameToVictims"
MOST_NODES: Final = 65_536
"""Of one request: more than a cluster has. Every name is looked up, and is in the answer."""
LONGEST: Final = 253
"""Of a name (DNS subdomain)."""
BROKEN = "dra-extender: internal error, see its log"


class Verbs(Protocol):
    """The decisions behind the verbs. They do not raise; what does is a bug and is answered as one."""

    def filter(self, args: ExtenderArgs) -> Answered[ExtenderFilterResult]: ...

    def prioritize(self, args: ExtenderArgs) -> Answered[Sequence[HostPriority]]: ...

    def advise(self, args: ExtenderArgs) -> Answered[Sequence[HostPriority]]: ...

    def preempt(self, args: ExtenderPreemptionArgs) -> Answered[ExtenderPreemptionResult]: ...

    def bind(self, args: ExtenderBindingArgs) -> Answered[ExtenderBindingResult]: ...


Described = tuple[VerbResult, dict[str, object]]
"""How a call ended, and what the log says about it."""


class Terms(msgspec.Struct, frozen=True):
    """What all verbs of a service have in common: why no decision may be made now (empty when it may), where answers
    are counted, the largest body in bytes, who may call, and who asks the leader where this replica does not lead.
    """

    unavailable: Callable[[], str]
    metrics: Metrics
    max_body: int
    clients: Clients
    forwarding: Forwarding | None = None


class Verb(Generic[A, R]):
    """One verb as an ASGI application."""

    def __init__(
        self,
        name: VerbName,
        args: type[A],
        decide: Callable[[A], Answered[R]],
        terms: Terms,
        *,
        refuse: Callable[[int, str], Answer],
        unusable: Callable[[A], str] = lambda _: "",
        describe: Callable[[A, R], Described],
    ) -> None:
        """`refuse` makes the answer that says what is wrong with a request, `unusable` finds what is wrong with decoded
        arguments, `describe` gives result and log fields.
        """
        self.name = name
        self._args = args
        self._decide = decide
        self._refuse = refuse
        self._unusable = unusable
        self._describe = describe
        self._terms = terms
        self._log = log.bind()
        """As it is configured now: otherwise each call would look that up, for lines that are not written as well."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        if scope["method"] != "POST":
            await send_answer(send, problem(405, "POST only"), {b"allow": b"POST"})
            return
        try:
            answer, result = await self._answer(scope, await read_body(scope, receive, self._terms.max_body))
        except BodyTooLargeError:
            text = f"dra-extender: {self.name} request: larger than {self._terms.max_body} bytes"
            answer, result = msgspec.structs.replace(self._refuse(413, text), close=True), "malformed"
        except DisconnectedError:
            return
        self._terms.metrics.answered(self.name, result, time.perf_counter() - started)
        await send_answer(send, answer)

    async def _answer(self, scope: Scope, body: bytes) -> tuple[Answer, VerbResult]:
        stranger = self._terms.clients.refusal(scope.get("state", {}))
        if stranger:
            return problem(403, stranger), "forbidden"
        forwarded = is_forwarded(scope)
        if self._terms.forwarding is not None and not forwarded:
            answer = await self._terms.forwarding.answer(scope, body)
            if answer is not None:
                return answer, "forwarded"
        reason = self._terms.unavailable()
        if reason:
            status = MISDIRECTED if forwarded else 503
            return problem(status, f"dra-extender: {reason}", close=True), "unavailable"
        try:
            args = decode(self._args, body)
        except DecodeError as mistake:
            return self._refuse(400, f"dra-extender: {self.name} request: {mistake.problem}"), "malformed"
        wrong = self._unusable(args)
        if wrong:
            return self._refuse(400, wrong), "malformed"
        try:
            decided = self._decide(args)
            result = await self._outcome(decided) if inspect.isawaitable(decided) else decided
            answer = Answer(encode(result))
        except Exception as mistake:
            unexpected("verb", mistake, verb=self.name)
            return self._refuse(503, BROKEN), "broken"
        ended, fields = self._describe(args, result)
        (self._log.info if self.name == "bind" else self._log.debug)(self.name, outcome=ended, **fields)
        return answer, ended

    async def _outcome(self, decided: Awaitable[R]) -> R:
        """Binds go on when their client has gone: what they wrote must be finished or undone."""
        return await (asyncio.shield(decided) if self.name == "bind" else decided)


class VerbSet(msgspec.Struct, frozen=True):
    """All verbs of one service, each an ASGI application."""

    filter: Verb[ExtenderArgs, ExtenderFilterResult]
    prioritize: Verb[ExtenderArgs, Sequence[HostPriority]]
    preempt: Verb[ExtenderPreemptionArgs, ExtenderPreemptionResult]
    bind: Verb[ExtenderBindingArgs, ExtenderBindingResult]
    advise: Verb[ExtenderArgs, Sequence[HostPriority]]


def make_verbs(verbs: Verbs, terms: Terms) -> VerbSet:
    """The verbs over these decisions."""

    def prioritize(
        name: VerbName, decide: Callable[[ExtenderArgs], Answered[Sequence[HostPriority]]]
    ) -> Verb[ExtenderArgs, Sequence[HostPriority]]:
        return Verb(
            name,
            ExtenderArgs,
            decide,
            terms,
            refuse=problem,
            unusable=_without_names,
            describe=_describe_prioritize,
        )

    return VerbSet(
        filter=Verb(
            "filter",
            ExtenderArgs,
            verbs.filter,
            terms,
            refuse=lambda _, text: Answer(encode(ExtenderFilterResult(Error=text))),
            unusable=_without_names,
            describe=_describe_filter,
        ),
        prioritize=prioritize("prioritize", verbs.prioritize),
        preempt=Verb(
            "preempt",
            ExtenderPreemptionArgs,
            verbs.preempt,
            terms,
            refuse=problem,
            unusable=_without_victims,
            describe=_describe_preempt,
        ),
        bind=Verb(
            "bind",
            ExtenderBindingArgs,
            verbs.bind,
            terms,
            refuse=lambda _, text: Answer(encode(ExtenderBindingResult(Error=text))),
            unusable=_incomplete_binding,
            describe=_describe_bind,
        ),
        advise=prioritize("advise", verbs.advise),
    )


def _without_names(args: ExtenderArgs) -> str:
    return NEEDS_NAMES if args.NodeNames is None else _too_many("NodeNames", args.NodeNames)


def _without_victims(args: ExtenderPreemptionArgs) -> str:
    if args.NodeNameToMetaVictims is None and args.NodeNameToVictims is None:
        return NEEDS_VICTIMS
    return _too_many("NodeNameToMetaVictims", args.NodeNameToMetaVictims or ()) or _too_many(
        "NodeNameToVictims", args.NodeNameToVictims or ()
    )


def _too_many(field: str, nodes: Sized) -> str:
    if len(nodes) <= MOST_NODES:
        return ""
    return f"dra-extender: the request has {len(nodes):,} nodes in {field}, and no cluster has more than {MOST_NODES:,}"


def _incomplete_binding(args: ExtenderBindingArgs) -> str:
    for name in ("PodName", "PodNamespace", "PodUID", "Node"):
        given = getattr(args, name)
        if not given:
            return f"dra-extender: bind request: {name} is empty"
        if given in (".", ".."):
            return f'dra-extender: bind request: {name} is "{given}", which no object can be called'
        if len(given) > LONGEST:
            return f"dra-extender: bind request: {name} has {len(given):,} characters, and {LONGEST} are allowed"
    return ""


def _describe_filter(args: ExtenderArgs, result: ExtenderFilterResult) -> Described:
    fields: dict[str, object] = {"pod": args.Pod.metadata.key, "nodes": len(args.NodeNames or ())}
    if result.Error:
        return "error", fields | {"error": result.Error}
    return "ok", fields | {"fits": len(result.NodeNames)}


def _describe_prioritize(args: ExtenderArgs, result: Sequence[HostPriority]) -> Described:
    return "ok", {"pod": args.Pod.metadata.key, "nodes": len(result)}


def _describe_preempt(args: ExtenderPreemptionArgs, result: ExtenderPreemptionResult) -> Described:
    return "ok", {
        "pod": args.Pod.metadata.key,
        "nodes": len(args.NodeNameToMetaVictims or ()),
        "candidates": len(result.NodeNameToMetaVictims),
    }


def _describe_bind(args: ExtenderBindingArgs, result: ExtenderBindingResult) -> Described:
    fields: dict[str, object] = {"pod": f"{args.PodNamespace}/{args.PodName}", "node": args.Node}
    return ("error", fields | {"error": result.Error}) if result.Error else ("ok", fields)
