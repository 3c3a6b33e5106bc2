"""What `why` reads from the service, for users who may not list the cluster, and about the service."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from dra_extender.cli.answers.service import CONFIG, ServiceState, by_state, diagnosis_by_service, service_state
from dra_extender.cli.output import UnanswerableError
from dra_extender.cli.questions import WhyOptions
from dra_extender.insight.why.redaction import redacted
from dra_extender.insight.why.text import shortly
from dra_extender.kube.credentials import FORWARDED_TOKEN
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.reader import Reader
from tests.support.diagnosis.hardware import cluster
from tests.support.diagnosis.misfits import MISFITS, POD
from tests.support.diagnosis.scene import Scene
from tests.support.diagnosis.strangers import among_strangers
from tests.support.kube.scripted import ScriptedServer
from tests.support.questions import diagnose

RUNS = "whether scheduler dra runs"
WAY = "/api/v1/namespaces/infra/services/https:dra:insight/proxy/insight/diagnosis"


def given(server: ScriptedServer, folder: Path, user: dict[str, str]) -> WhyOptions:
    config = {
        "clusters": [{"name": "c", "cluster": {"server": server.url}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    return WhyOptions(kubeconfig=str(file), service="infra/dra")


async def test_a_diagnosis_arrives_as_the_service_has_made_it(server: ScriptedServer, tmp_path: Path) -> None:
    """One of each rule."""
    misfits = {misfit.rule: misfit for misfit in MISFITS}.values()
    made = [redacted(among_strangers(misfit).diagnose(POD), Reader("default")) for misfit in misfits]
    server.on("GET", WAY, *((200, msgspec.to_builtins(each)) for each in made))
    options = given(server, tmp_path, {"token": "t"})
    for each in made:
        assert await diagnosis_by_service(options, f"default/{POD}", "no") == each


NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
LEASE = "/apis/coordination.k8s.io/v1/namespaces/infra/leases/dra"
CONFIGS = "/api/v1/namespaces/infra/configmaps"


def lease(renewed: str | None, holder: str = "dra-0") -> tuple[int, Any]:
    return 200, {"metadata": {"name": "dra"}, "spec": {"holderIdentity": holder, "renewTime": renewed}}


def config(*schedulers: str, name: str = "dra-scheduler-config-8h2", extenders: int = 1) -> tuple[int, Any]:
    profiles = [{"schedulerName": each} if each else {} for each in schedulers]
    text = yaml.safe_dump({"profiles": profiles, "extenders": [{"filterVerb": "filter"}] * extenders})
    return 200, {"items": [{"metadata": {"name": name}, "data": {"config.yaml": text}}]}


STOPPED = "no replica of dra-extender decides: lease infra/dra is "


@pytest.mark.parametrize(
    ("said", "configs", "want"),
    [
        (lease("2026-01-01T11:59:58.000000Z"), config("dra"), ServiceState(frozenset({"dra"}), checked=True)),
        (
            lease("2026-01-01T11:57:00.000000Z"),
            config("dra"),
            ServiceState(frozenset({"dra"}), True, f"{STOPPED}last renewed at 2026-01-01T11:57:00.000000Z"),
        ),
        (
            lease("2026-01-01T11:59:58Z", ""),
            (403, {}),
            ServiceState(checked=True, stopped=f"{STOPPED}not held by a replica"),
        ),
        (lease(None), (403, {}), ServiceState()),
        ((403, {}), (403, {}), ServiceState()),
        ((404, {}), config("dra", ""), ServiceState(frozenset({"dra", "default-scheduler"}))),
        ((404, {}), config("dra", extenders=0), ServiceState()),
        ((404, {}), config("dra", name="other"), ServiceState()),
        ((404, {}), (200, {"items": [{"metadata": {"name": CONFIG}, "data": {"config.yaml": "[}"}}]}), ServiceState()),
        ((404, {}), (200, {"items": [{"metadata": {"name": CONFIG}, "data": {"config.yaml": "[1]"}}]}), ServiceState()),
    ],
)
async def test_what_the_cluster_says_about_the_service_is_read_and_the_rest_is_unknown(
    server: ScriptedServer, tmp_path: Path, said: tuple[int, Any], configs: tuple[int, Any], want: ServiceState
) -> None:
    server.on("GET", LEASE, said)
    server.on("GET", CONFIGS, configs)
    assert await service_state(given(server, tmp_path, {"token": "t"}), NOW) == want


@pytest.mark.parametrize(
    ("state", "status", "unchecked", "summary"),
    [
        (ServiceState(checked=True), "fits", ("volumes", RUNS), ""),
        (ServiceState(), "fits", ("volumes", RUNS, "whether dra-extender runs"), ""),
        (ServiceState(checked=True, stopped="nothing decides"), "refused", ("volumes", RUNS), "nothing decides"),
    ],
)
def test_a_pod_does_not_fit_while_no_replica_decides(
    state: ServiceState, status: str, unchecked: tuple[str, ...], summary: str
) -> None:
    claim = {
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
    }
    entries = [{"name": "c", "resourceClaimName": "c"}]
    with_claim = {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"resourceClaims": entries, "schedulerName": "dra"}}
    plain = {"kind": "Pod", "metadata": {"name": "plain"}, "spec": {}}
    stranger = {"kind": "Pod", "metadata": {"name": "stranger"}, "spec": {"schedulerName": "other"}}
    scene = Scene([*cluster(), claim, with_claim, plain, stranger])
    scene.config = SchedulingConfig(scheduler_names=frozenset({"dra", "default-scheduler"}))
    view, found = scene.view(), {}
    for name in ("p", "plain", "stranger"):
        pod = view.pods.named("default", name)
        assert pod is not None
        found[name] = by_state(view, pod, diagnose(view, pod), state)
    assert (found["p"].state, found["p"].unchecked, found["p"].summary) == (status, unchecked, summary)
    assert found["plain"].state == "fits", "pods without devices do not need the service"
    assert found["stranger"].rule == "scheduler"
    assert ("find out why dra-extender does not run" in shortly(found["p"])) == (status == "refused")


FORBIDDEN = {"kind": "Status", "reason": "Forbidden", "message": "cannot get services/proxy", "code": 403}


@pytest.mark.parametrize(
    ("user", "answer", "problem"),
    [
        (
            {"token": "t"},
            (403, FORBIDDEN),
            "cannot get services/proxy; ask an administrator for a RoleBinding to role dra-why in namespace infra",
        ),
        ({"token": "t"}, (403, {"detail": "jane may not get pod a/p"}), "jane may not get pod a/p"),
        ({"token": "t"}, (404, {"detail": "pod a/p not found"}), "pod a/p not found"),
        ({}, (200, {}), "your kubeconfig has no token, and the service does not see client certificates: use a token"),
    ],
)
async def test_an_error_says_what_is_missing_and_what_to_ask_for(
    server: ScriptedServer, tmp_path: Path, user: dict[str, str], answer: tuple[int, Any], problem: str
) -> None:
    server.on("GET", WAY, answer)
    with pytest.raises(UnanswerableError) as caught:
        await diagnosis_by_service(given(server, tmp_path, user), "a/p", "cannot list nodes")
    told = "cannot list nodes; the service infra/dra does not answer instead: "
    assert str(caught.value) == f"{told}{problem}. `kubectl describe pod` shows the short answer"


async def test_the_token_is_sent_in_a_header_that_reaches_the_service(server: ScriptedServer, tmp_path: Path) -> None:
    server.on("GET", WAY, (404, {"detail": "no pod"}))
    with pytest.raises(UnanswerableError):
        await diagnosis_by_service(given(server, tmp_path, {"token": "t"}), "a/p", "no")
    (asked,) = server.asked
    assert (asked.headers[FORWARDED_TOKEN], asked.query) == ("Bearer t", {"pod": "a/p"})


async def test_an_answer_of_another_version_is_an_error(server: ScriptedServer, tmp_path: Path) -> None:
    server.on("GET", WAY, (200, {"pod": 1}))
    with pytest.raises(UnanswerableError, match="Expected"):
        await diagnosis_by_service(given(server, tmp_path, {"token": "t"}), "a/p", "no")
