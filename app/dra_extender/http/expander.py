"""The gRPC expander of cluster-autoscaler (service grpcplugin.Expander): of the node groups that it may enlarge for
pending pods, those whose new nodes suit them.

An option is a node group, a number of new nodes, and pods. The pods that use devices are simulated on this number of
nodes like the template of the group, with the devices of an existing node of the group. Promises: an answer changes
nothing, and is computed in small steps. An option is left out if none of its pods fits, or if another one is better:
places more pods, or as many on fewer nodes, or leaves fewer parts of devices on them, or fewer whole devices. Equal
options are all returned. An option that cannot be decided stays. An invalid request gets a status, after which
cluster-autoscaler keeps all.

Field numbers are those of cluster-autoscaler's expander.proto and of k8s.io/api/core/v1/generated.proto. Other fields
are skipped. An option that is returned has only its name: cluster-autoscaler reads nothing else.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import structlog
from fastapi import HTTPException

from dra_extender.api.groups import MOST_SHOWN, group_of
from dra_extender.http.insight import Insight, QueryQueue
from dra_extender.http.metrics import EXPANSIONS, ExpansionResult, Metrics
from dra_extender.insight.requests import InvalidRequestError
from dra_extender.insight.whatif.simulation import NewNodes, SimulationRequest, simulation
from dra_extender.insight.whatif.whatif import MOST_NAMES
from dra_extender.limits import FIELDS_OF_MESSAGE
from dra_extender.scheduling.turns import PORTION, Turns, run
from dra_extender.scheduling.view import View
from dra_extender.unexpected import unexpected

log = structlog.get_logger(__name__)

SECONDS: Final = 4.0
"""cluster-autoscaler waits five seconds for an answer."""
CONNECTIONS: Final = 4
"""More are refused: cluster-autoscaler has one."""
CALLS_OF_CONNECTION: Final = 2
"""Others wait before the service receives their messages."""
HANDSHAKE_SECONDS: Final = 10.0
CONNECTED_SECONDS: Final = 30.0
"""After it a client has to connect again, and a call whose message does not arrive ends."""
LOGGED: Final = 50
"""The most options whose verdicts a log line has, so that it is not longer than other lines."""
OF_PLACE: Final = frozenset(
    f"{part}kubernetes.io" for part in ("", "beta.", "topology.", "failure-domain.beta.", "node-role.")
)
"""Prefixes of labels that say where a node is and what it is for, but do not tell node groups apart."""

Fields = dict[int, list[bytes]]
"""The fields of a message of protobuf by number. Numbers stay encoded."""


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins here, and where it ends. Raises ValueError."""
    value = 0
    for shift, byte in zip(range(0, 70, 7), data[at : at + 10], strict=False):
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at + shift // 7 + 1
    raise ValueError("a number does not end, or has more than ten bytes")


def _fields(*parts: bytes, most: int = FIELDS_OF_MESSAGE, first: bool = False) -> Fields:
    """Of one message, which may be sent in parts; `first`: of one with more fields, the first. Raises ValueError."""
    data, at, found = b"".join(parts), 0, Fields()
    with suppress(KeyError, ValueError):
        for _ in range(most):
            if at >= len(data):
                break
            tag, start = _varint(data, at)
            size, start = _varint(data, start) if tag & 7 == 2 else ({0: 0, 1: 8, 5: 4}[tag & 7], start)
            at = start + size if tag & 7 else _varint(data, start)[1]
            found.setdefault(tag >> 3, []).append(data[start:at])
        else:
            at = len(data) if first else at
    if at != len(data):
        raise ValueError(f"invalid protobuf, or a message with more than {most:,} fields")
    return found


def _text(found: Fields, number: int) -> str:
    return found.get(number, [b""])[-1].decode()


def _map(entries: Iterable[bytes]) -> dict[str, bytes]:
    return {_text(pair, 1): pair.get(2, [b""])[-1] for pair in (_fields(entry, most=2) for entry in entries)}


def _field(number: int, data: bytes) -> bytes:
    size, length = len(data), bytearray()
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    return bytes((number << 3 | 2, *length, size)) + data


class Option(NamedTuple):
    """`pods` are encoded."""

    group: str
    nodes: int
    pods: list[bytes]


def decoded(request: bytes) -> Turns[tuple[list[Option], dict[str, bytes]]]:
    """The options, with their first pods, and the encoded template of each node group. Raises ValueError."""
    whole, options, templates = _fields(request), list[Option](), dict[str, bytes]()
    for data in whole.get(1, ()):
        found = _fields(data, first=True)
        count = _varint(found.get(2, [b"\0"])[-1], 0)[0]
        options.append(Option(_text(found, 1), count, max(found.get(5, []), found.get(4, []), key=len)))
        yield
    for entry in (*whole.get(2, ()), *whole.get(3, ())):
        templates |= _map([entry])
        yield
    return options, templates


def node_of(data: bytes) -> dict[str, Any]:
    """What decisions read of the Node, as JSON. Raises ValueError."""
    meta, spec, status = (_fields(*_fields(data).get(number, ())) for number in (1, 2, 3))
    labels = {key: value.decode() for key, value in _map(meta.get(11, ())).items()}
    taints = [{"key": _text(each, 1), "value": _text(each, 2), "effect": _text(each, 3)}
              for each in (_fields(taint, most=4) for taint in spec.get(5, ()))]  # fmt: skip
    allocatable = {key: _text(_fields(value, most=1), 1) for key, value in _map(status.get(2, ())).items()}
    features = [each.decode() for each in status.get(14, ())]
    return {
        "metadata": {"name": _text(meta, 1), "labels": labels},
        "spec": {"taints": taints},
        "status": {"allocatable": allocatable, "declaredFeatures": features},
    }


Verdict = tuple[int, int, float, int] | str
"""Of an option of which pods fit: their number, negated; how many new nodes they need; and how many devices stay free
there, in parts and whole. Less is better.
"""
UNKNOWN, NO_POD, NO_DEVICE, REFUSED = "unknown", "no pod uses devices", "nodes publish no devices", "no pod fits"


def best(view: View, options: Sequence[Option], templates: dict[str, bytes]) -> Turns[list[Option]]:
    """The options to choose from. Raises ValueError."""
    verdicts = dict[int, Verdict]()
    for number, option in enumerate(options):
        verdicts[number] = yield from _verdict(view, option, templates.get(option.group))
    fitting = [verdict for verdict in verdicts.values() if isinstance(verdict, tuple)]
    wanted: set[Verdict] = {UNKNOWN, NO_POD, *sorted(fitting)[:1]}
    wanted = wanted if wanted.intersection(verdicts.values()) else {NO_DEVICE}
    told = {options[number].group[:MOST_SHOWN]: str(each) for number, each in islice(verdicts.items(), LOGGED)}
    log.info("node groups compared", options=len(options), verdicts=told)
    return [options[number] for number, verdict in verdicts.items() if verdict in wanted]


def _verdict(view: View, option: Option, template: bytes | None) -> Turns[Verdict]:
    pods = []
    for data in islice(option.pods, MOST_NAMES):
        pods.append(view.pods.get(_text(_fields(*_fields(data).get(1, ())), 5)))
        yield
    waiting = [pod for pod in pods if pod is not None and not pod.spec.node_name and view.uses_devices(pod)]
    if not waiting or template is None:
        return NO_POD if None not in pods and template is not None else UNKNOWN
    node, keys, gangs = node_of(template), [pod.metadata.key for pod in waiting], any(map(group_of, waiting))
    like, devices = yield from _like(view, node["metadata"]["labels"])
    new = NewNodes(like=like, node=node, count=max(1, min(option.nodes, len(keys))))
    only = None if gangs else ()  # other pods of a gang may fit existing nodes
    request = SimulationRequest(pod=keys[-1], placed=tuple(keys[:-1]), nodes=only, new_nodes=(new,))
    try:
        found = yield from simulation(view, request)
    except InvalidRequestError as problem:
        group, why = option.group[:MOST_SHOWN], problem.sentence[:MOST_SHOWN]
        log.warning("node group cannot be simulated", group=group, problem=why)
        return UNKNOWN
    placed = [found.pods[key].node for key in keys if found.pods[key].node]
    if not all(found.pods[key].decided for key in keys) or (not like and len(placed) < len(keys)):
        return UNKNOWN
    if not placed:
        return REFUSED if devices else NO_DEVICE
    return -len(placed), len({*placed} - view.cluster.nodes.keys()), found.left_in_parts, found.left_whole


def _like(view: View, labels: dict[str, str]) -> Turns[tuple[str, int]]:
    """Of the existing nodes with all labels of the group, the one with most devices, and how many it has."""
    found, group = ("", -1), {key: labels[key] for key in labels if key.partition("/")[0] not in OF_PLACE}.items()
    for number, (name, node) in enumerate([*view.cluster.nodes.items()] if group else ()):
        if group <= node.metadata.labels.items() and name in view.cluster.nodes:
            devices = sum(len(each.spec.devices) for each in view.cluster.inventory.own_slices(name))
            found = (name, devices) if devices > found[1] else found
        if number % PORTION == 0:
            yield
    return found


class ExpanderServer:
    """The service on one address. It has the life of an `HttpServer`. Its certificates are those of its start, because
    grpc 1.85 ends the process now and then when it asks for certificates during handshakes: `renew` starts it again.
    """

    def __init__(self, insight: Insight, metrics: Metrics, address: str, files: Sequence[Path], most: int) -> None:
        """`files`: certificate, key, and authorities if clients must show a certificate. `most`: bytes of a request."""
        self.port, self._address, self._files, self._most = 0, address, files, most
        self._queue, self._metrics = QueryQueue(insight), metrics
        self._server: Any = None

    async def start(self) -> None:
        """Raises OSError. Only a service with an expander loads grpc, which takes 27 MiB."""
        os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # it writes a line for each failed handshake of a stranger
        import grpc.aio

        certificate, key, *authorities = (file.read_bytes() for file in self._files)
        trusted = b"".join(authorities) or None
        try:
            credentials = grpc.ssl_server_credentials([(key, certificate)], trusted, bool(authorities))
        except ValueError:
            raise OSError("the file of client authorities is empty") from None
        options = {
            "grpc.max_receive_message_length": self._most,
            "grpc.so_reuseport": 0,
            "grpc.max_allowed_incoming_connections": CONNECTIONS,
            "grpc.max_concurrent_streams": CALLS_OF_CONNECTION,
            "grpc.server_handshake_timeout_ms": int(HANDSHAKE_SECONDS * 1000),
            "grpc.max_connection_age_ms": int(CONNECTED_SECONDS * 1000),
            "grpc.max_connection_age_grace_ms": int(SECONDS * 1000),
        }
        server = grpc.aio.server(options=list(options.items()))
        method = grpc.unary_unary_rpc_method_handler(partial(self._best_options, grpc.StatusCode))
        service = grpc.method_handlers_generic_handler("grpcplugin.Expander", {"BestOptions": method})
        server.add_generic_rpc_handlers((service,))
        try:
            self.port = server.add_secure_port(self._address, credentials)
        except RuntimeError:
            raise OSError(f"cannot listen on {self._address}") from None
        await server.start()
        self._server = server

    async def stop(self, grace: float) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.stop(grace)

    async def renew(self, changed: bool) -> None:
        """Start again if the certificates have `changed`, or if the last attempt failed. Calls under way end first."""
        if changed or self._server is None:
            await self.stop(SECONDS)
            try:
                await self.start()
            except OSError as problem:
                log.warning("the expander will try again to listen", problem=str(problem))

    async def _best_options(self, codes: Any, request: bytes, context: Any) -> bytes:
        result: ExpansionResult = "error"
        try:
            view = self._queue.insight.view
            options, templates = await run(decoded(request))
            kept, result = options, "late"
            with suppress(TimeoutError):
                async with asyncio.timeout(SECONDS):
                    kept = await self._queue.answer_at_length(best(view, options, templates))
                    result = "some" if 0 < len(kept) < len(options) else "all" if kept else "none"
        except HTTPException as problem:
            await context.abort(codes.UNAVAILABLE, problem.detail)
        except ValueError as problem:
            await context.abort(codes.INVALID_ARGUMENT, str(problem))
        except Exception as problem:
            unexpected("expander", problem)
            await context.abort(codes.INTERNAL, type(problem).__name__)
        finally:
            self._metrics.count(EXPANSIONS, result)
        return b"".join(_field(1, _field(1, option.group.encode())) for option in kept)
