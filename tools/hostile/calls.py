"""Requests that are well-formed HTTP and ask for something absurd: bodies of the verbs, questions of insight.

Pure; a part is drawn from dice.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from tools.hostile.lines import value
from tools.hostile.things import DRIVER, Attack, Thing

VERBS: Final = ("filter", "prioritize", "preempt", "bind")
_POD: Final = '{"metadata":{"name":"p","namespace":"n","uid":"u"},"spec":{"resourceClaims":[{"name":"c"}]}}'
_MANY: Final = 1_000_000
_LONG: Final = 15_000_000


def things(dice: random.Random) -> Iterator[Thing]:
    """Calls of both doors."""
    yield from _of_verbs(dice)
    yield from _of_insight(dice)


def _call(name: str, verb: str, body: bytes, connections: int = 2, *, again: int = 1, generated: bool = False) -> Thing:
    return Thing("calls", name, Attack("verbs", connections, post(verb, body), again=again), generated)


def post(path: str, body: bytes) -> bytes:
    """A whole request for a verb, or for a path."""
    where = path if path.startswith("/") else f"/scheduler/{path}"
    head = f"POST {where} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


def _of_verbs(dice: random.Random) -> Iterator[Thing]:
    names = _names("n", _MANY)
    for verb in ("filter", "prioritize"):
        yield _call(f"1,000,000 nodes to {verb}", verb, f'{{"Pod":{_POD},"NodeNames":{names}}}'.encode())
    repeated = b",".join([b'"node-1"'] * _MANY)
    yield _call("one node 1,000,000 times", "filter", f'{{"Pod":{_POD},"NodeNames":['.encode() + repeated + b"]}")
    long = f'{{"Pod":{_POD},"NodeNames":["{"n" * _LONG}"]}}'
    yield _call("a node with a name of 15 MB", "filter", long.encode())
    yield _call("a pod with a name of 15 MB", "filter", long.replace('"p"', f'"{"p" * 100}"').encode())
    named = {"PodName": "p" * _LONG, "PodNamespace": "n", "PodUID": "u", "Node": "node-1"}
    yield _call("a bind of a pod with a name of 15 MB", "bind", msgspec.json.encode(named))
    unknown = {"PodName": "p", "PodNamespace": "n", "PodUID": "u", "Node": "n" * 100_000}
    yield _call(
        "2,000 binds of a pod that is not there", "bind", msgspec.json.encode(unknown | {"Node": "n"}), again=2_000
    )
    yield _call("binds to a node with a name of 100 KB", "bind", msgspec.json.encode(unknown), again=100)
    victims = ",".join(f'"n{i}":{{"Pods":[{{"UID":"u{i}"}}]}}' for i in range(200_000))
    yield _call(
        "victims on 200,000 nodes", "preempt", f'{{"Pod":{_POD},"NodeNameToMetaVictims":{{{victims}}}}}'.encode()
    )
    crowd = ",".join(f'{{"UID":"u{i}"}}' for i in range(500_000))
    one = f'{{"Pod":{_POD},"NodeNameToMetaVictims":{{"node-1":{{"Pods":[{crowd}]}}}}}}'
    yield _call("500,000 victims on one node", "preempt", one.encode())
    tolerant = ",".join(f'{{"key":"k{i}","operator":"Exists"}}' for i in range(300_000))
    pod = _POD.replace('"spec":{', f'"spec":{{"tolerations":[{tolerant}],')
    yield _call("a pod with 300,000 tolerations", "filter", f'{{"Pod":{pod},"NodeNames":["node-1"]}}'.encode())
    claims = ",".join(f'{{"name":"c{i}","resourceClaimName":"x{i}"}}' for i in range(200_000))
    pod = _POD.replace('{"name":"c"}', claims)
    yield _call("a pod with 200,000 claims", "filter", f'{{"Pod":{pod},"NodeNames":["node-1"]}}'.encode())
    digits = _POD.replace('"spec":{', f'"spec":{{"priority":{"9" * 5_000_000},')
    yield _call("a priority of 5,000,000 digits", "filter", f'{{"Pod":{digits},"NodeNames":[]}}'.encode())
    twice = b"{" + b",".join([b'"Pod":{},"NodeNames":["a"]'] * 400_000) + b"}"
    yield _call("every key 400,000 times", "filter", twice)
    escaped = b'{"Pod":{"metadata":{"name":"' + b"\\u0000" * 2_000_000 + b'"}},"NodeNames":["node-1"]}'
    yield _call("a name of 2,000,000 escapes", "filter", escaped)
    for verb in VERBS:
        drawn = msgspec.json.encode({"Pod": _plain(dice), "NodeNames": _plain(dice), "PodName": _plain(dice)})
        yield _call(f"generated JSON to {verb}", verb, drawn, 10, again=50, generated=True)
    for method, path in (("BREW", "/scheduler/filter"), ("GET", "/scheduler/bind"), ("POST", "/scheduler/explode")):
        request = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode()
        yield Thing("calls", f"{method} {path}", Attack("verbs", 10, request, again=200))


def _names(prefix: str, count: int) -> str:
    return "[" + ",".join(f'"{prefix}{i}"' for i in range(count)) + "]"


def _plain(dice: random.Random) -> Any:
    """Random JSON that an encoder takes."""
    while True:
        try:
            drawn = value(dice)
            msgspec.json.encode(drawn)
        except (UnicodeEncodeError, OverflowError, ValueError):
            continue
        return drawn


def _of_insight(dice: random.Random) -> Iterator[Thing]:
    def asked(name: str, request: bytes, connections: int = 20, *, again: int = 1, generated: bool = False) -> Thing:
        return Thing("questions", name, Attack("insight", connections, request, again=again), generated)

    for path in ("/metrics", "/insight/devices?limit=500", "/insight/problems"):
        yield asked(f"300 times at once {path}", get(path), 300)
    yield asked("100 readers of events that take nothing", get("/insight/events"), 100)
    yield asked("9,000 states that there are not", get("/insight/devices?" + "state=x&" * 7_000))
    yield asked("the same class 4,000 times", get("/insight/devices?" + f"class={DRIVER}&" * 2_500))
    yield asked("the same node 5,000 times", get("/insight/devices?" + "node=node-1&" * 5_000))
    yield asked("a page after 60 KB", get(f"/insight/devices?after={'z' * 60_000}"))
    yield asked("limits without limit", get("/insight/devices?limit=" + "9" * 4_000))
    yield asked("as many decisions as there may be", get(f"/insight/headroom?class={DRIVER}&count=32"), 50)
    yield asked("a pod with a name of 60 KB", get(f"/insight/diagnosis?pod=a/{'%61' * 20_000}"))
    tokens = b"".join(
        b"GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %d%s\r\n\r\n" % (i, b"t" * 1_000)
        for i in range(500)
    )
    yield asked("500 tokens of nobody", tokens, 10)
    yield from _suppositions(dice, asked)


def _suppositions(dice: random.Random, asked: Any) -> Iterator[Thing]:
    def what_if(name: str, body: Any, *, generated: bool = False) -> Thing:
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        made: Thing = asked(name, post("/insight/whatif", data), generated=generated)
        return made

    def simulation(name: str, body: Any) -> Thing:
        made: Thing = asked(name, post("/v1/simulate", msgspec.json.encode(body)))
        return made

    nodes = [f"node-{i}" for i in range(1, 9)]
    pods = [{"metadata": {"name": f"p-{i}"}} for i in range(10_000)]
    yield simulation("a simulation after 10,000 pods", {"pod": pods[0], "placed": pods[1:]})
    like = [{"like": "node-1", "count": 500}, {"like": "node-2", "count": 500}]
    yield simulation("a simulation of 1,000 nodes", {"pod": pods[0], "placed": pods[1:900], "newNodes": like})
    yield simulation("a gang of 512 on 1,000 nodes", {"gang": pods[:512], "newNodes": like})
    yield what_if(
        "what if 100 nodes came and all went", {"addNodes": [{"like": "node-1", "count": 100}], "drain": nodes}
    )
    yield what_if("a supposition of brackets", b'{"pods":' + b"[" * 500_000)
    yield what_if("suppositions of 1 MB", b'{"pods":["' + b"a" * 1_000_000 + b'"]}')
    yield what_if("the same pod 100 times", {"pods": ["ordinary/asked"] * 100})
    for number in range(4):
        fields = ("addNodes", "withoutPods", "drain", "pods")
        drawn = {field: [_plain(dice) for _ in range(dice.randint(0, 100))] for field in fields if dice.random() < 0.5}
        yield what_if(f"generated supposition {number}", drawn, generated=True)
