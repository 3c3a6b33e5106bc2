"""Shadow mode on a real control plane: the in-tree plugin schedules random pods, and every difference has a rule."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest

from dra_extender.insight.shadow import RULES
from tests.e2e.case import Case
from tests.e2e.extender import ROOT, Extender, scheduler_trust
from tests.e2e.ground import Ground

pytestmark = pytest.mark.e2e

ACCOUNT = "dra-extender-shadow"
USER = f"system:serviceaccount:dra-system:{ACCOUNT}"
PODS = int(os.environ.get("SHADOW_PODS", "60"))
SEED = int(os.environ.get("SHADOW_SEED", "1"))
RUNNING = 16
"""Pods that exist at the same time: more than fit."""
STOCK = "default-scheduler"


@pytest.fixture(scope="module", params=["first-fit", "pack"])
def shadow(request: pytest.FixtureRequest, ground: Ground) -> Iterator[Extender]:
    """The service with the permissions of manifests/shadow, and the cluster's own scheduler."""
    permissions = (ROOT / "manifests" / "shadow" / "permissions.yaml").read_text()
    ground.plane.kubectl("apply", "-f", "-", stdin=permissions.replace("dra-extender", ACCOUNT))
    replica = ground.new_extender(ACCOUNT, mode="shadow", lease_name=ACCOUNT, placement=request.param)
    kubeconfig = ground.plane.service_account_kubeconfig("dra-system", ACCOUNT)
    replica.environment |= {"DRA_EXTENDER_KUBECONFIG": str(kubeconfig), "DRA_EXTENDER_SCHEDULER_NAMES": ""}
    replica.start(wait=False)
    ground.eventually(lambda: replica.status("/insight/shadow") == 200, "the beginning of the record")
    ground.plane.start_scheduler(STOCK)
    yield replica
    ground.plane.stop_component(STOCK)
    replica.stop()
    ground.plane.kubectl("delete", "-f", "-", stdin=permissions.replace("dra-extender", ACCOUNT))


def report(shadow: Extender) -> dict[str, Any]:
    found: dict[str, Any] = shadow.ask("/insight/shadow")
    return found


def make(case: Case, rng: random.Random, name: str) -> None:
    """A pod with a claim of one to three devices, of its own or from a template, or with a preferred alternative."""
    stock, count = case.ground.plane.stock_scheduler, rng.choice((1, 1, 1, 2, 3))
    kind = rng.choice(("claim", "template", "alternative"))
    if kind == "template":
        case.pod(name, template=f"devices-{count}", scheduler=stock)
        return
    alternatives = [
        {"name": f"of-{number}", "deviceClassName": case.name, "allocationMode": "ExactCount", "count": number}
        for number in (3, 2, 1)
    ]
    request = {"name": "r", "firstAvailable": alternatives} if kind == "alternative" else case.request(count=count)
    case.claim(name, request)
    case.pod(name, name, scheduler=stock)


def writes(ground: Ground) -> Counter[tuple[str, str]]:
    """What the service has created or changed: verbs and resources, reviews left out, which store nothing."""
    whole, _, _ = ground.plane.audit_log.read_text().rpartition("\n")  # the last line may be half written
    events = (json.loads(line) for line in whole.splitlines())
    own = [event for event in events if event["user"]["username"] == USER]
    found = Counter((event["verb"], event["objectRef"]["resource"]) for event in own)
    return Counter({key: count for key, count in found.items() if not key[1].endswith("reviews")})


def test_every_pod_has_one_rule_and_the_service_writes_its_lease_only(
    case: Case, ground: Ground, shadow: Extender
) -> None:
    for node in ground.nodes:
        case.publish(node, 8)
    for count in (1, 2, 3):
        case.template(f"devices-{count}", case.request(count=count))
    rng, before, alive, number = random.Random(SEED), report(shadow), list[str](), 0

    def one_ends() -> None:
        """One of the bound pods. The others wait, until enough have ended."""
        bound = ground.eventually(lambda: case.bound(alive), "a binding")
        ground.eventually(lambda: not report(shadow)["behind"], "a record")
        gone = rng.choice(bound)
        alive.remove(gone)
        case.delete_pod(gone)

    for number in range(PODS):
        make(case, rng, name := f"pod-{number}")
        alive.append(name)
        if len(alive) >= RUNNING or rng.random() < 0.2:
            one_ends()
    while alive:
        one_ends()
    ground.eventually(lambda: report(shadow)["pods"] >= before["pods"] + PODS, "a record of every pod")
    found = report(shadow)
    counts = {each["rule"]: each["pods"] for each in found["rules"]}
    assert found["pods"] == before["pods"] + PODS == sum(counts.values())
    assert set(counts) == set(RULES)
    unwanted = ("refused", "not allocated", "not decided")
    missed = [each for each in found["rules"] if each["rule"] in unwanted and each["pods"]]
    assert missed == [], json.dumps(missed)
    for each in found["rules"]:
        rule = each["rule"]
        for example in each["examples"]:
            theirs, ours = example["theirs"], example["ours"]
            assert (rule == "same") == (theirs == ours) or rule in ("waited", "lost alternative"), example
            assert rule != "other devices" or theirs["node"] == ours["node"], example
            assert rule != "other node" or theirs["node"] != ours["node"], example
    if found["policy"] == "first-fit":
        odd = [each for each in found["rules"] if each["rule"] in ("other node", "other devices") and each["pods"]]
        assert odd == [], f"without a policy, only races differ: {json.dumps(odd)}"
    assert {resource for _, resource in writes(ground)} == {"leases"}
    assert shadow.status("/readyz") == 200


def test_the_verbs_say_that_nothing_is_decided(ground: Ground, shadow: Extender) -> None:
    status, text = ground.run(_filtered(ground, shadow))
    assert (status, "shadow mode" in text) == (503, True)


async def _filtered(ground: Ground, shadow: Extender) -> tuple[int, str]:
    connector = aiohttp.TCPConnector(ssl=scheduler_trust(ground.plane.credentials))
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.post(f"{shadow.url}/scheduler/filter", json={"Pod": {"metadata": {"name": "p"}}}) as answer,
    ):
        return answer.status, await answer.text()
