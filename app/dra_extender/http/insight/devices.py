"""Questions about devices: which there are, who has them, how many more pods fit."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Annotated, Final

from fastapi import APIRouter, HTTPException, Query, Response

from dra_extender.devices.readonly import ReadOnlyCluster
from dra_extender.http.insight.desk import UNANSWERED, Desk, NodeNames, answering, encoded, find_nodes
from dra_extender.http.reports import Inventory, NodeReport, node_report
from dra_extender.insight.devicereport.details import DeviceDetails, detailing
from dra_extender.insight.devicereport.report import Census, State
from dra_extender.insight.devicereport.taking import Asked, taking
from dra_extender.insight.headroom import DECISIONS, Headroom, class_claim, class_words, measuring, problem_of

MOST_NODES: Final = 500
MOST_DEVICES = 5_000
"""A page of the inventory ends after the node with which it has so many devices."""
MOST_WANTED: Final = 32
"""Devices that one claim gets at most (AllocationResultsMaxSize)."""


def router(desk: Desk) -> APIRouter:
    """`/devices`, `/device`, `/headroom` and `/inventory`."""
    found = APIRouter()
    _add_devices(found, desk)
    _add_device(found, desk)
    _add_headroom(found, desk)
    _add_inventory(found, desk)
    return found


def _add_devices(router: APIRouter, desk: Desk) -> None:
    @router.get("/devices", response_class=Response, responses=answering(Census, "devices"))
    async def devices(
        node: Annotated[list[str] | None, Query(description="what this node sees; may be repeated")] = None,
        driver: Annotated[list[str] | None, Query(description="of this driver; may be repeated")] = None,
        device_class: Annotated[
            list[str] | None, Query(alias="class", description="that this DeviceClass selects; may be repeated")
        ] = None,
        state: Annotated[list[State] | None, Query(description="in this state; may be repeated")] = None,
        namespace: Annotated[str, Query(description="that claims of this namespace hold")] = "",
        limit: Annotated[int, Query(ge=1, le=MOST_NODES, description="pools in one page")] = 100,
        after: Annotated[str, Query(description="`next` of the page before")] = "",
    ) -> Response:
        """Devices, in what state they are, and who holds them; how many there are in each state."""
        view = desk.view
        asked = Asked(
            nodes=frozenset(node or ()),
            drivers=frozenset(driver or ()),
            classes=frozenset(device_class or ()),
            states=frozenset(state or ()),
            namespaces=frozenset(filter(None, (namespace,))),
        )
        missing = asked.unknown(view.cluster)
        if missing:
            raise HTTPException(404, missing)
        return encoded(await desk.answer(taking(view, asked, limit=limit, after=after)))


def _add_device(router: APIRouter, desk: Desk) -> None:
    @router.get("/device", response_class=Response, responses=answering(DeviceDetails, "the device"))
    async def device(
        driver: Annotated[str, Query(description="its driver")],
        pool: Annotated[str, Query(description="its pool")],
        name: Annotated[str, Query(alias="device", description="its name")],
    ) -> Response:
        """One device: what is published of it, in what state it is, and who holds it."""
        found = await desk.answer(detailing(desk.view, (driver, pool, name)))
        if found is None:
            raise HTTPException(404, f"device {driver}/{pool}/{name} is not known")
        return encoded(found)


def _add_headroom(router: APIRouter, desk: Desk) -> None:
    @router.get("/headroom", response_class=Response, responses=answering(Headroom, "how many more pods fit"))
    async def headroom(
        device_class: Annotated[str, Query(alias="class", description="DeviceClass of the pods' devices")],
        count: Annotated[int, Query(ge=1, le=MOST_WANTED, description="devices that each pod wants")] = 1,
        limit: Annotated[int, Query(ge=1, le=DECISIONS, description="decisions that are made at most")] = DECISIONS,
    ) -> Response:
        """How many more pods with devices of this class fit now? Devices alone are looked at."""
        view = desk.view
        if device_class not in view.cluster.classes:
            raise HTTPException(404, f"DeviceClass {device_class} is not known")
        claims = (class_claim(device_class, count),)
        problem = problem_of(view, claims)
        if problem:
            raise HTTPException(400, problem)
        what = class_words(device_class, count)
        return encoded(await desk.answer(measuring(view, what, claims, most=limit)))


def _add_inventory(router: APIRouter, desk: Desk) -> None:
    @router.get("/inventory", responses=UNANSWERED)
    async def inventory(
        node: NodeNames = None,
        limit: Annotated[int, Query(ge=1, le=MOST_NODES, description="nodes in one page")] = 100,
        after: Annotated[str, Query(description="`next` of the page before")] = "",
    ) -> Inventory:
        """Nodes, their pools, their devices, and who holds them."""
        view = desk.view
        names = [name for name in find_nodes(view, node) if name > after]
        return await desk.answer(_inventory(view.cluster, names, limit))


def _inventory(cluster: ReadOnlyCluster, names: Sequence[str], limit: int) -> Generator[None, None, Inventory]:
    """One page, a node at a step. Nodes that go meanwhile are left out."""
    nodes: list[NodeReport] = []
    devices = 0
    for index, name in enumerate(names):
        if len(nodes) >= limit or devices >= MOST_DEVICES:
            return Inventory(nodes=nodes, next=names[index - 1])
        seen = cluster.inventory.view(name)
        if seen is not None:
            devices += len(seen.devices)
            nodes.append(node_report(seen, cluster.ledger))
        yield
    return Inventory(nodes=nodes, next="")
