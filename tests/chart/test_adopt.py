"""Somebody types docs/adopt.md from top to bottom on the real control plane, and sees what the page says.

All commands of the page are typed in its order. `OTHERWISE` lists what is done in another way here.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.chart.conftest import DRIVER
from tests.e2e.controlplane import ControlPlane
from tests.support.chart.hooks import run_test_of_helm
from tests.support.chart.reader import Reader
from tests.support.chart.release import WHERE, Release, everything, pod
from tests.support.chart.site import Programs, Site, eventually
from tests.support.documentation.blocks import COMMANDS, Block, Command, blocks_of
from tests.support.documentation.terminal import Answer

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(1800),
    pytest.mark.own_plane("releases have the names of the manifests"),
]

PAGE: Final = "docs/adopt.md"
TYPED: Final = [block for block in blocks_of(PAGE) if block.place == "adoption"]
OTHERWISE: Final = {
    "docker, kubelet": "the test has no registry and starts no containers: it marks pods as running, and starts their "
    "programs as processes, with the settings of the installed Deployments",
    "make demo": "tests/documentation/test_demo.py types it",
    "a static pod of kube-scheduler": "it is a process: it is started with the flags and files of the notes of Helm",
    "some days": "the report is read when the pods of this test are in it",
}
TEAM: Final = "team-a"
SERVICE: Final = "system:serviceaccount:dra-system:dra-extender"
UPGRADE_TO_SHADOW: Final = "mode=shadow"


def of_class(name: str, *, team: bool) -> dict[str, Any]:
    test = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].team == {str(team).lower()}"
    spec = {"selectors": [{"cel": {"expression": test}}]}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


def gpus(node: str, *, team: bool) -> dict[str, Any]:
    devices = [{"name": f"gpu-{number}", "attributes": {"team": {"bool": team}}} for number in range(4)]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": node}, "spec": spec}


def template(namespace: str, device_class: str) -> dict[str, Any]:
    requests = [{"name": "r", "exactly": {"deviceClassName": device_class}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "gpu", "namespace": namespace},
        "spec": {"spec": {"devices": {"requests": requests}}},
    }


CLAIMS: Final = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
CONTAINER: Final = {"resources": {"requests": {"cpu": "8"}}}


def gpu_pod(name: str, scheduler: str = "default-scheduler") -> dict[str, Any]:
    """It requests one device of the class `gpu`, which the team does not use."""
    return pod(name, scheduler, resourceClaims=CLAIMS, container=CONTAINER)


def deployment() -> dict[str, Any]:
    """The team's workload."""
    labels = {"app": "train"}
    container = {"name": "c", "image": "none"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "train", "namespace": TEAM},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [container], "resourceClaims": CLAIMS, "terminationGracePeriodSeconds": 0},
            },
        },
    }


@pytest.fixture(scope="module")
def site(needs_helm: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Three nodes for everybody and one for the team. The cluster's own scheduler has placed the team's pods."""
    directory = tmp_path_factory.mktemp("plane")
    with (
        tempfile.TemporaryDirectory() as short,  # names of sockets have at most 107 characters
        ControlPlane(directory, audit=True, egress=Path(short) / "egress") as plane,
        Site(plane, nodes=4) as site,
    ):
        nodes = {f"node-{number}": number == 4 for number in range(1, 5)}
        plane.apply(
            of_class("gpu", team=False),
            of_class("gpu-of-team", team=True),
            *(gpus(node, team=team) for node, team in nodes.items()),
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}},
            template("default", "gpu"),
            template(TEAM, "gpu-of-team"),
        )
        plane.kubectl("wait", "--for=create", "--timeout=90s", f"--namespace={TEAM}", "serviceaccount/default")
        plane.apply(deployment())
        plane.kubectl("rollout", "status", "deployment/train", f"--namespace={TEAM}", "--timeout=90s")
        yield site


class Adopter:
    """Types blocks of the page. `programs`: what runs in the pods of the release now."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.site = site
        self.release = Release(site, folder / "helm")
        self.reader = Reader(self.release, folder)
        self._folder = folder
        self._stack = ExitStack()
        self._written = 0
        self.programs = Programs(site, folder)

    def types(self, *commands: Command) -> list[Answer]:
        """Each succeeds, and says what the page shows."""
        answers = self.reader.types(*commands)
        for answer in answers:
            assert answer.lacking() == [], f"{answer.command.text}\nsays\n{answer.output}"
        return answers

    def runs(self, name: str, deployment: str = "dra-extender", *, second_scheduler: bool = False) -> None:
        """What kubelet does after an upgrade: the programs of before end, those of the release start."""
        self.end()
        folder = self._folder / name
        folder.mkdir()
        self.programs = self._stack.enter_context(Programs(self.site, folder))
        self.programs.extender(deployment)
        if second_scheduler:
            self.programs.scheduler()

    def end(self) -> None:
        self._stack.close()

    def writes(self) -> set[str]:
        """The resources that the service has created or changed since the last call, without reviews."""
        whole, _, _ = self.site.plane.audit_log.read_text().rpartition("\n")  # the last line may be half written
        lines = whole.splitlines()
        events, self._written = [json.loads(line) for line in lines[self._written :]], len(lines)
        own = {event["objectRef"]["resource"] for event in events if event["user"].get("username") == SERVICE}
        return {resource for resource in own if not resource.endswith("reviews")}

    def report(self) -> dict[str, Any]:
        """Of shadow mode."""
        (answer,) = self.reader.types(Command("kubectl dra shadow --context shadow-reader -o json"))
        return dict(json.loads(answer.output))

    def create(self, document: dict[str, Any], *more: str) -> Answer:
        """As a user creates it. The API server may refuse it."""
        (self._folder / "created.yaml").write_text(yaml.safe_dump(document))
        return self.reader.answers(Command(" ".join(("kubectl create -f created.yaml", *more))))[0]

    def until_running(self, name: str, namespace: str = "default") -> dict[str, Any]:
        def phase() -> str:
            return str(self._pod(name, namespace)["status"].get("phase"))

        eventually(lambda: phase() == "Running", f"pod {name}", self.programs.logs)
        return self._pod(name, namespace)

    def node(self, name: str) -> str:
        return str(self._pod(name)["spec"].get("nodeName", ""))

    def _pod(self, name: str, namespace: str = "default") -> dict[str, Any]:
        return self.site.get("pod", name, f"--namespace={namespace}")

    def held(self) -> dict[str, list[str]]:
        """By UID of the pod, its devices. No device is given twice."""
        claims = self.site.get("resourceclaims", "--all-namespaces")["items"]
        found: dict[str, list[str]] = {}
        for claim in claims:
            status = claim.get("status", {})
            results = status.get("allocation", {}).get("devices", {}).get("results", [])
            for user in status.get("reservedFor", []):
                found[user["uid"]] = [f"{each['pool']}/{each['device']}" for each in results]
        devices = [device for each in found.values() for device in each]
        assert len(devices) == len(set(devices)), found
        return found

    def team(self) -> set[str]:
        """The schedulers of the team's running pods."""
        pods = self.site.get("pods", f"--namespace={TEAM}")["items"]
        return {each["spec"]["schedulerName"] for each in pods if "deletionTimestamp" not in each["metadata"]}


@pytest.fixture
def adopter(site: Site, tmp_path: Path) -> Iterator[Adopter]:
    made = Adopter(site, tmp_path)
    yield made
    made.end()


def is_of(block: Block, *words: str) -> list[Command]:
    """The commands of the block, which has these words."""
    assert all(word in block.text for word in words), f"{block}: the page has another order"
    return block.commands()


def test_all_commands_of_the_page_are_typed_or_run_elsewhere() -> None:
    others = [block for block in blocks_of(PAGE) if block.language in COMMANDS and block not in TYPED]
    assert [block.place for block in others] == ["demo"]
    assert all(OTHERWISE.values())


def test_who_types_the_page_adopts_the_extender_step_by_step_and_goes_back(adopter: Adopter, tmp_path: Path) -> None:
    install, account, report, second, team, look, deny, flags, unnamed, to_second, to_shadow, away = TYPED
    before = everything(adopter.site)
    watch(adopter, install, account, report)
    held = adopter.held()
    one_team(adopter, second, team, look)
    the_cluster(adopter, deny, flags, unnamed, tmp_path)
    go_back(adopter, to_second, to_shadow)
    running = adopter.held()
    adopter.end()
    adopter.types(*is_of(away, "helm uninstall"))
    assert adopter.held() == running, "running pods keep their devices"
    kept = {uid: devices for uid, devices in running.items() if uid in held}
    assert len(kept) == WATCHED
    assert kept.items() <= held.items(), "and so they did in each step"
    left = {each for each in everything(adopter.site) - before if each.split()[1] not in ("default", TEAM)}
    assert left == set()


WATCHED: Final = 3


def watch(adopter: Adopter, install: Block, account: Block, report: Block) -> None:
    (installed, _) = adopter.types(*is_of(install, UPGRADE_TO_SHADOW, "placement=pack"))
    assert "kubectl dra shadow" in installed.output
    adopter.runs("shadow")
    adopter.types(*is_of(account, "create token"))
    for number in range(WATCHED):
        assert adopter.create(gpu_pod(f"infer-{number}")).status == 0
        adopter.until_running(f"infer-{number}")
        eventually(lambda number=number: adopter.report()["pods"] > number, "a record", adopter.programs.logs)  # type: ignore[misc]
    (shown,) = adopter.types(*is_of(report, "kubectl dra shadow"))
    assert f"{WATCHED} pods since" in shown.output
    assert "policy pack" in shown.output
    found = adopter.report()
    counts = {each["rule"]: each["pods"] for each in found["rules"] if each["pods"]}
    assert (sum(counts.values()), counts.get("refused", 0), counts.get("not decided", 0)) == (WATCHED, 0, 0), counts
    assert counts.get("other node", 0) > 0, "the cluster's scheduler spreads the pods"
    assert (found["now"]["devices"], found["packed"]["devices"]) == (WATCHED + 2, WATCHED + 2)
    assert (found["now"]["nodes"], found["packed"]["nodes"]) == (4, 2), "the team's node, and one for the others"
    assert adopter.writes() == {"leases"}
    assert adopter.site.get("deployment", "dra-extender", WHERE)["spec"]["replicas"] == 1
    (asked,) = adopter.reader.answers(Command(f"kubectl auth can-i patch resourceclaims/status -A --as={SERVICE}"))
    assert asked.output.splitlines()[-1] == "no"
    token = adopter.site.plane.kubectl("create", "token", "shadow-reader", WHERE).strip()
    metrics = adopter.programs.page("/metrics", token)[1]
    assert f'dra_extender_shadow_pods_total{{rule="other node"}} {counts["other node"]}.0' in metrics


def one_team(adopter: Adopter, second: Block, team: Block, look: Block) -> None:
    upgrade, *status, test = is_of(second, "mode=secondary", "helm test")
    adopter.types(upgrade, *status)
    adopter.runs("secondary", second_scheduler=True)
    typed = ["bash", "-c", test.text]
    tested = run_test_of_helm(adopter.release, adopter.programs, typed, adopter.reader.environment)
    assert tested.passed, tested.said
    adopter.types(*is_of(team, "schedulerName"))
    assert adopter.team() == {"dra-scheduler"}
    why, audit = adopter.types(*is_of(look, "kubectl dra why", "kubectl dra audit"))
    assert (why.status, audit.status) == (0, 0)
    other = adopter.create(gpu_pod("other"))
    assert (other.status, "Warning: " in other.output and "need schedulerName: dra-scheduler" in other.output) == (
        0,
        True,
    ), other.output
    adopter.until_running("other")


def the_cluster(adopter: Adopter, deny: Block, flags: Block, unnamed: Block, folder: Path) -> None:
    adopter.types(*is_of(deny, "policy.action=Deny"))
    adopter.runs("deny", second_scheduler=True)
    trial = gpu_pod("trial")

    def refused() -> bool:
        return "need schedulerName: dra-scheduler" in adopter.create(trial, "--dry-run=server").output

    eventually(lambda: refused() and adopter.create(trial, "--dry-run=server").status != 0, "the policy")
    assert adopter.create(gpu_pod("named", "dra-scheduler")).status == 0
    adopter.until_running("named")

    (upgraded,) = adopter.types(*is_of(flags, "mode=stock", "nodes="))
    copied = adopter.release.follow(upgraded.output, folder)
    (made,) = adopter.site.get("deployments", WHERE)["items"]
    adopter.runs("stock", made["metadata"]["name"])
    plane = adopter.site.plane
    plane.stop_component("default-scheduler")
    adopter.programs.stock_scheduler(copied)
    adopter.types(*is_of(unnamed, '"default-scheduler"'))
    assert adopter.team() == {"default-scheduler"}
    assert adopter.create(gpu_pod("unnamed")).status == 0
    adopter.until_running("unnamed")
    told = plane.kubectl("get", "events", "--namespace=default", "--field-selector=reason=DevicesAllocated")
    assert "unnamed" in told


def go_back(adopter: Adopter, to_second: Block, to_shadow: Block) -> None:
    plane = adopter.site.plane
    plane.stop_component("called-stock")
    plane.kubectl("delete", "lease/kube-scheduler", "--namespace=kube-system")
    plane.start_scheduler()
    adopter.types(*is_of(to_second, "mode=secondary", "policy.action=Warn"))
    adopter.runs("second-again", second_scheduler=True)
    assert adopter.create(gpu_pod("back", "dra-scheduler")).status == 0
    adopter.until_running("back")
    adopter.types(*is_of(to_shadow, UPGRADE_TO_SHADOW))
    adopter.runs("shadow-again")
    adopter.writes()
    assert adopter.create(gpu_pod("forgotten", "dra-scheduler")).status == 0
    created = adopter.create(gpu_pod("later"))
    assert (created.status, "Warning" in created.output) == (0, False)
    adopter.until_running("later")
    assert adopter.node("forgotten") == "", "a pod that names the scheduler stays pending"
    eventually(lambda: adopter.report()["pods"] > 0, "a new record", adopter.programs.logs)
    assert adopter.writes() == {"leases"}
