"""Calls of extenders over HTTP, byte for byte as kube-scheduler makes and reads them.

POST of plain JSON, answer 200 only, one JSON value, field names matched without regard to case. Every failure is a
`CallError` with the text that kube-scheduler shows. Source: Kubernetes 1.36, pkg/scheduler/extender.go.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import aiohttp
import msgspec
import orjson

from embedded_cluster.objects import FullPod
from embedded_cluster.scheduler.config import ExtenderConfig

_OK = 200


class CallError(Exception):
    """The call did not lead to an answer that counts."""


class Filtered(msgspec.Struct, frozen=True):
    """What an extender left of the nodes, and why it refused the others."""

    nodes: list[str]
    failed: Mapping[str, str]
    unresolvable: Mapping[str, str]


class ExtenderCall(msgspec.Struct, frozen=True):
    """One finished call, for those who watch: `seconds` it took, `problem` is empty when it counted."""

    verb: str
    pod: str
    nodes: int
    seconds: float
    problem: str = ""


class Extenders:
    """All extenders of a configuration. `made` counts calls by verb; `on_call` hears of each."""

    def __init__(
        self, extenders: Sequence[ExtenderConfig], on_call: Callable[[ExtenderCall], object] = lambda call: None
    ) -> None:
        self._extenders = tuple(extenders)
        self._on_call = on_call
        self.made: Counter[str] = Counter()
        self._session = aiohttp.ClientSession(
            headers={"User-Agent": "Go-http-client/1.1", "Accept-Encoding": "gzip"},
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=90),
        )

    async def close(self) -> None:
        await self._session.close()

    def with_verb(self, verb: str) -> list[ExtenderConfig]:
        """Those that have the verb, in the order of calls."""
        return [extender for extender in self._extenders if getattr(extender, f"{verb}_verb")]

    async def filter(self, extender: ExtenderConfig, pod: FullPod, wire: bytes, nodes: Sequence[str]) -> Filtered:
        """Raises CallError."""
        url = extender.url(extender.filter_verb)
        answer = await self._post(extender, "filter", url, _arguments(wire, nodes), pod, len(nodes))
        result = _folded(answer)
        if problem := result.get("error"):
            raise CallError(str(problem))
        names = result.get("nodenames")
        if names is None:
            names = [item["metadata"]["name"] for item in (result.get("nodes") or {}).get("items") or ()]
        known = set(nodes)
        for name in names:
            if name not in known:
                claim = f'extender "{extender.url_prefix}" claims a filtered node "{name}"'
                raise CallError(f"{claim} which is not found in the input node list")
        return Filtered(names, result.get("failednodes") or {}, result.get("failedandunresolvablenodes") or {})

    async def prioritize(
        self, extender: ExtenderConfig, pod: FullPod, wire: bytes, nodes: Sequence[str]
    ) -> dict[str, int]:
        """Scores by host as the extender gave them, extra entries summed. Raises CallError."""
        url = extender.url(extender.prioritize_verb)
        answer = await self._post(extender, "prioritize", url, _arguments(wire, nodes), pod, len(nodes))
        if not isinstance(answer, list):
            raise CallError(f"json: cannot unmarshal {type(answer).__name__} into Go value of type v1.HostPriorityList")
        scores: dict[str, int] = {}
        for entry in answer:
            if not (isinstance(entry, dict) and "Host" in entry and "Score" in entry):
                folded = _folded(entry)
                entry = {"Host": folded.get("host", ""), "Score": folded.get("score", 0)}
            score = entry["Score"]
            if not isinstance(score, int):
                raise CallError("json: cannot unmarshal number into Go struct field HostPriority.Score of type int64")
            host = str(entry["Host"])
            scores[host] = scores.get(host, 0) + score
        return scores

    async def preempt(
        self, extender: ExtenderConfig, pod: FullPod, wire: bytes, victims: Mapping[str, Sequence[str]]
    ) -> dict[str, list[str]]:
        """Node -> UIDs of victims as the extender wants them. Raises CallError."""
        meta = {node: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 0} for node, uids in victims.items()}
        body = b'{"Pod":%b,"NodeNameToVictims":null,"NodeNameToMetaVictims":%b}' % (wire, orjson.dumps(meta))
        url = extender.url(extender.preempt_verb)
        answer = _folded(await self._post(extender, "preempt", url, body, pod, len(victims)))
        nodes = answer.get("nodenametometavictims") or {}
        return {
            node: [str(_folded(victim).get("uid", "")) for victim in _folded(entry).get("pods") or ()]
            for node, entry in nodes.items()
        }

    async def bind(self, extender: ExtenderConfig, pod: FullPod, node: str) -> None:
        """Returns when the extender says that the pod is bound. Raises CallError."""
        body = orjson.dumps(
            {
                "PodName": pod.metadata.name,
                "PodNamespace": pod.metadata.namespace,
                "PodUID": pod.metadata.uid,
                "Node": node,
            }
        )
        result = _folded(await self._post(extender, "bind", extender.url(extender.bind_verb), body, pod, 1))
        if problem := result.get("error"):
            raise CallError(str(problem))

    async def _post(self, extender: ExtenderConfig, verb: str, url: str, body: bytes, pod: FullPod, nodes: int) -> Any:
        self.made[verb] += 1
        started = time.monotonic()
        problem = ""
        try:
            return await self._exchange(extender, verb, url, body)
        except CallError as failure:
            problem = str(failure)
            raise
        finally:
            self._on_call(ExtenderCall(verb, pod.metadata.key, nodes, time.monotonic() - started, problem))

    async def _exchange(self, extender: ExtenderConfig, verb: str, url: str, body: bytes) -> Any:
        try:
            async with self._session.post(
                url,
                data=body,
                headers={"Content-Type": "application/json"},
                timeout=aiohttp.ClientTimeout(total=extender.timeout),
            ) as reply:
                if reply.status != _OK:
                    raise CallError(f"failed {verb} with extender at URL {url}, code {reply.status}")
                data = await reply.read()
        except TimeoutError:
            late = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
            raise CallError(f'Post "{url}": {late}') from None
        except (aiohttp.ClientError, OSError) as problem:
            raise CallError(f'Post "{url}": {_said(problem)}') from None
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError as problem:
            raise CallError("EOF" if not data else str(problem)) from None


def _said(problem: Exception) -> str:
    """A transport problem in Go's words where it has them."""
    if isinstance(problem, aiohttp.ClientConnectorError):
        number = problem.os_error.errno
        reason = os.strerror(number).lower() if number else str(problem.os_error)
        return f"dial tcp {problem.host}:{problem.port}: connect: {reason}"
    return "EOF" if isinstance(problem, aiohttp.ServerDisconnectedError) else str(problem) or type(problem).__name__


def _arguments(wire: bytes, nodes: Sequence[str]) -> bytes:
    """ExtenderArgs: all three keys, the unused one null."""
    return b'{"Pod":%b,"Nodes":null,"NodeNames":%b}' % (wire, orjson.dumps(list(nodes)))


def _folded(value: Any) -> dict[str, Any]:
    """An object with its keys in lower case; anything else cannot be read."""
    if not isinstance(value, dict):
        raise CallError(f"json: cannot unmarshal {type(value).__name__} into Go value")
    return {key.lower(): item for key, item in value.items()}


def wire_form(raw: bytes) -> bytes:
    """A pod as extender calls contain it: without kind, apiVersion and managedFields."""
    pod = orjson.loads(raw)
    pod.pop("kind", None)
    pod.pop("apiVersion", None)
    pod.get("metadata", {}).pop("managedFields", None)
    return orjson.dumps(pod)
