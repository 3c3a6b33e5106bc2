"""What tests do to the exchanges on a wire: which one, and what happens to it. Rules for `Wire.rule`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from tests.e2e.wire import Exchange, Rule

Match = Callable[[Exchange], bool]
Then = Callable[[Exchange], Awaitable[web.Response | None]]


def finalizer(claim: str) -> Match:
    return lambda exchange: exchange.method == "PATCH" and exchange.path.endswith(f"/resourceclaims/{claim}")


def status(claim: str) -> Match:
    return lambda exchange: exchange.method == "PATCH" and exchange.path.endswith(f"/resourceclaims/{claim}/status")


def binding(pod: str) -> Match:
    return lambda exchange: exchange.path.endswith(f"/pods/{pod}/binding")


WRITES = {"finalizer": finalizer, "status": status, "binding": binding}


def once(match: Match, then: Then) -> Rule:
    """The first exchange that matches is treated so, and no other."""
    done: list[Exchange] = []

    async def rule(exchange: Exchange) -> web.Response | None:
        if done or not match(exchange):
            return None
        done.append(exchange)
        return await then(exchange)

    return rule


def refuse(code: int, reason: str) -> Then:
    async def then(exchange: Exchange) -> web.Response:
        body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
        return web.json_response(body | {"message": "disturbed by a test"}, status=code)

    return then


def verb(name: str, pod: str) -> Match:
    """A call of kube-scheduler about a pod, given as namespace/name."""
    return lambda exchange: exchange.verb == name and exchange.pod == pod
