"""The shipped Deployment is upgraded, rolled back, restarted, killed, as docs/upgrade.md says, under 20 pods a second.

Its pods are processes, the Deployment controller, the EndpointSlices, kubectl and both kube-schedulers are Kubernetes'
own. What is asserted is who led and what came of every pod; how long no pod was bound is printed, next to how long that
was on this machine while replicas started and ended and the leader stayed.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dra_extender.service.logs import UNEXPECTED
from dra_extender.version import VERSION
from tests.e2e.case import Case
from tests.e2e.components import metric
from tests.e2e.deploymentnode import DeploymentNode, ServiceProxy
from tests.e2e.extender import ROOT
from tests.e2e.ground import SCHEDULER, SHIPPED, Ground
from tests.e2e.leadership import Leadership
from tests.e2e.stream import Stream
from tests.support.documentation.blocks import all_blocks, block_below
from tests.support.documentation.terminal import type_all
from tests.support.patience import LONGEST

pytestmark = [pytest.mark.e2e, pytest.mark.own_plane("the pods of the Deployment are processes on this machine")]

UPGRADED = "kubectl -n dra-system rollout status deployment/dra-extender --timeout=90s"


@dataclass
class Shipped:
    """The Deployment on its nodes, behind its Service."""

    ground: Ground
    node: DeploymentNode
    proxy: ServiceProxy
    leadership: Leadership
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """Of a reader of the documentation."""
        plane = self.ground.plane
        path = f"{plane.binaries}:/usr/bin:/bin"
        return {"PATH": path, "KUBECONFIG": str(plane.admin_kubeconfig), "HOME": str(self.folder)}

    def shell(self, script: str, **variables: str) -> str:
        """What commands print that a reader of the documentation would type. Raises AssertionError."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.folder,
            env=self.environment | variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}\n{self.tails()}"
        return done.stdout

    @property
    def images(self) -> set[str]:
        """The pods that are not terminating."""
        pods = self.ground.get(f"/api/v1/namespaces/dra-system/pods?labelSelector=app.kubernetes.io/name={SHIPPED}")
        return {
            pod["spec"]["containers"][0]["image"] for pod in pods["items"] if "deletionTimestamp" not in pod["metadata"]
        }

    def errors(self) -> float:
        """How many attempts of kube-scheduler to place a pod ended with an error, including errors of refused calls."""
        page = self.ground.plane.metrics(SCHEDULER)
        return metric(page, "scheduler_schedule_attempts_total", result="error")

    def unexpected(self) -> list[str]:
        """The logs that have an error outside every plan."""
        return [log.name for log in (self.folder / "pods").glob("*.log") if UNEXPECTED in log.read_text()]

    def tails(self) -> str:
        return "\n".join(f"--- {log.name}\n{log.read_text()[-3000:]}" for log in (self.folder / "pods").glob("*.log"))


@pytest.fixture(scope="module")
def shipped(ground: Ground, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shipped]:
    """The Deployment instead of the extender of the other tests, installed as the documentation says."""
    folder = tmp_path_factory.mktemp("shipped")
    for part in ("manifests", "scheduler_config"):
        shutil.copytree(ROOT / part, folder / part)
    (folder / "pods").mkdir()
    ground.extender.stop()
    ground.plane.stop_component(SCHEDULER)
    machine = {
        "DRA_EXTENDER_KUBECONFIG": str(ground.plane.service_account_kubeconfig("dra-system", SHIPPED)),
        "PATH": "/usr/bin:/bin",
    }
    node = DeploymentNode(ground.client, f"app.kubernetes.io/name={SHIPPED}", folder / "pods", machine)
    proxy = ServiceProxy(ground.client, "dra-system", "dra-extender")
    leadership = Leadership(ground.client, "dra-system", "dra-extender")
    made = Shipped(ground, node, proxy, leadership, folder)
    jobs = [ground.begin(node.run()), ground.begin(proxy.run()), ground.begin(leadership.run())]
    try:
        made.shell(block_below("docs/install.md", "Certificates").text)
        made.shell("kubectl apply -k manifests/")
        ground.plane.start_scheduler()
        made.shell(UPGRADED)
        ground.start_scheduler(change=lambda config: _through(config, made))
        yield made
    finally:
        if SCHEDULER in ground.plane.components:
            ground.plane.stop_component(SCHEDULER)
        made.shell(
            # In the foreground: until it is gone, the ReplicaSet replaces deleted pods.
            "kubectl -n dra-system delete deployment --all --cascade=foreground --wait --timeout=60s\n"
            "kubectl -n dra-system delete service,pdb,networkpolicy --all --wait\n"
            f"kubectl -n dra-system delete pods -l app.kubernetes.io/name={SHIPPED} --wait --timeout=60s\n"
            "kubectl -n dra-system delete secret dra-extender-tls dra-extender-client-tls"
        )
        ground.plane.stop_component("default-scheduler")
        for job in jobs:
            ground.end(job)
        ground.extender.start()
        ground.start_scheduler()


def _through(config: dict[str, Any], shipped: Shipped) -> None:
    """The shipped names and certificates; only the address belongs to the stand-in for kube-proxy."""
    files = {"caFile": "ca.crt", "certFile": "client.crt", "keyFile": "client.key"}
    for extender in config["extenders"]:
        extender["urlPrefix"] = shipped.proxy.url + "/scheduler"
        extender["tlsConfig"] |= {name: str(shipped.folder / file) for name, file in files.items()}
        extender["tlsConfig"]["serverName"] = "dra-extender.dra-system.svc"


@dataclass
class Load:
    """Pods that come all the time, and what they say about the time since `begun`."""

    ground: Ground
    shipped: Shipped
    stream: Stream
    begun: float
    errors: float

    def evenness(self) -> float:
        """The longest gap while a replica comes and goes that does not lead: the machine's.

        Which one goes is said (`pod-deletion-cost`): among pods that became ready at about the same time, the
        controller of the ReplicaSet takes any.
        """
        shell, before, leader = self.shipped.shell, set(self.shipped.node.pods), self.shipped.leadership.leader
        scale = "kubectl -n dra-system scale deployment dra-extender"
        shell(f"kubectl -n dra-system annotate pods {' '.join(before)} controller.kubernetes.io/pod-deletion-cost=1")
        shell(f"{scale} --replicas=3 && {UPGRADED}")
        shell(f"{scale} --replicas=2")
        self.ground.eventually(lambda: len(self.shipped.node.pods) == len(before), "the end of the third replica")
        gap = self.stream.gap(self.begun, self.ground.now())
        assert (set(self.shipped.node.pods), self.shipped.leadership.leader) == (before, leader)
        return gap

    def until_all_are_bound(self) -> None:
        self.stream.stop()
        self.ground.eventually(lambda: not self.stream.waiting, f"binding of {self.stream.waiting}")

    def refused(self) -> float:
        return self.shipped.errors() - self.errors


@pytest.fixture
def load(case: Case, ground: Ground, shipped: Shipped) -> Iterator[Load]:
    for node in ground.nodes:
        case.publish(node, 100)
    stream = Stream(ground.client, case.name, case.name, SCHEDULER)
    job = ground.begin(stream.run())
    try:
        ground.eventually(lambda: len(stream.bound) > 20, "the first bindings")
        yield Load(ground, shipped, stream, ground.now(), shipped.errors())
        stream.stop()
    finally:
        ground.end(job)


def test_an_upgrade_a_rollback_and_a_restart_refuse_no_call_and_hand_the_lease_over(
    load: Load, shipped: Shipped
) -> None:
    quiet, known = load.evenness(), len(shipped.leadership.takeovers)
    gaps: dict[str, float] = {}
    for heading, image in (("Upgrade", "0.9.0-e2e"), ("Roll back", VERSION), ("Restart", VERSION)):
        before, began, bound = set(shipped.node.pods), load.ground.now(), len(load.stream.bound)
        said = shipped.shell(block_below("docs/upgrade.md", heading).text, VERSION="0.9.0-e2e")
        assert said.splitlines()[-1] == 'deployment "dra-extender" successfully rolled out'
        load.ground.eventually(partial(before.isdisjoint, shipped.node.pods), "the end of the old replicas")
        gaps[heading] = load.stream.gap(began, load.ground.now())
        assert (len(shipped.node.pods), shipped.images) == (2, {f"dra-extender:{image}"})
        load.ground.eventually(
            lambda: shipped.leadership.leader in shipped.node.pods, "a leader among the new replicas"
        )
        assert len(load.stream.bound) > bound, "pods are bound meanwhile"
    load.until_all_are_bound()
    print(f"pods {len(load.stream.bound)}, longest gaps {gaps}, {quiet:.2f} s while the leader stayed")
    assert (load.refused(), shipped.proxy.refused, shipped.node.ended_badly) == (0, 0, [])
    takeovers = shipped.leadership.takeovers[known:]
    assert len(takeovers) >= len(gaps)
    assert [each for each in takeovers if not each.released] == [], "nobody waits for a lease to expire"
    assert (load.stream.waiting, shipped.unexpected()) == ([], [])


@pytest.fixture
def monitored(shipped: Shipped) -> Iterator[Shipped]:
    """With the namespace of a Prometheus."""
    shipped.shell("kubectl create namespace monitoring")
    yield shipped
    shipped.shell(
        "kubectl delete namespace/monitoring clusterrolebinding/monitoring-reads-dra-extender --ignore-not-found"
    )


def test_what_the_pages_say_to_look_at_and_to_allow_can_be_typed(monitored: Shipped) -> None:
    typed = [block for block in all_blocks() if block.place == "shipped deployment"]
    commands = [command for block in typed for command in block.commands()]
    assert len(commands) > 5
    answers = type_all(commands, monitored.folder, monitored.environment)
    assert [(each.command.text, each.status, each.output) for each in answers if not each.is_well] == []
    told = {each.command.text.partition(" #")[0].strip(): each.output for each in answers}
    pods = told["kubectl -n dra-system get pods -l app.kubernetes.io/name=dra-extender"]
    assert len([line for line in pods.splitlines() if "1/1" in line and "Running" in line]) == 2
    assert monitored.leadership.leader in told["kubectl -n dra-system get lease dra-extender"]


def test_when_the_leaders_node_is_lost_pods_are_bound_again_once_its_lease_has_expired(
    load: Load, shipped: Shipped
) -> None:
    quiet, old = load.evenness(), shipped.leadership.leader
    began, known = load.ground.now(), len(shipped.leadership.takeovers)
    load.ground.call(shipped.node.pods[old].lose)
    load.ground.eventually(lambda: shipped.leadership.leader != old, "another leader", LONGEST)
    bound = len(load.stream.bound)
    load.ground.eventually(lambda: len(load.stream.bound) > bound, "the next binding")
    gap = load.stream.gap(began, load.ground.now())
    shipped.shell(f"kubectl -n dra-system delete pod {old} --grace-period=0 --force")
    load.until_all_are_bound()
    print(f"lost: longest gap {gap:.2f} s, {quiet:.2f} s while the leader stayed")
    (takeover,) = shipped.leadership.takeovers[known:]
    assert (takeover.before, takeover.released) == (old, False)
    assert takeover.lapse >= takeover.duration > 1, "not before it has expired"
    assert load.stream.waiting == []
