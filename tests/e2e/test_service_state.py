"""`why` on the real control plane while no replica holds the lease, and when a scheduler does not call the service."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, Final

import pytest

from tests.e2e.case import Case
from tests.e2e.extender import ROOT
from tests.e2e.ground import SCHEDULER, Ground

pytestmark = pytest.mark.e2e

CONFIG: Final = {"name": "dra-scheduler-config", "namespace": "dra-system"}


def why(case: Case, pod: str) -> tuple[Any, str]:
    """The diagnosis, and what is on standard error."""
    command = [sys.executable, "-m", "dra_extender.cli", "why", f"{case.name}/{pod}", "--output=json"]
    command.append(f"--kubeconfig={case.ground.plane.admin_kubeconfig}")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return json.loads(done.stdout), done.stderr


def test_a_pod_fits_only_while_a_replica_decides_and_its_scheduler_calls_it(ground: Ground, case: Case) -> None:
    case.publish(ground.nodes[0], 2)
    text = (ROOT / "scheduler_config" / "secondary-scheduler.yaml").read_text()
    ground.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": CONFIG, "data": {"config.yaml": text}})
    ground.extender.stop()
    try:
        case.pod_with_claim("waits")
        case.pod_with_claim("astray", scheduler="nobody")
        found, told = why(case, "waits")
        stopped = "no replica of dra-extender decides: lease dra-system/dra-extender is not held by a replica"
        assert (found["state"], found["rule"], found["summary"]) == ("refused", "service", stopped)
        assert stopped in told
        ground.extender.start()
        case.until_bound("waits")
        case.claim("both", case.request(count=2))
        case.pod("both", "both", schedulingGates=[{"name": "example.com/later"}])
        found, told = why(case, "both")
        assert (found["rule"], told) == ("scheduling gate", "")
        assert f"whether scheduler {SCHEDULER} runs" in found["unchecked"]
        found, _ = why(case, "astray")
        assert found["summary"] == f"scheduler nobody does not call dra-extender; these schedulers do: {SCHEDULER}"
    finally:
        if ground.extender.process is None:
            ground.extender.start()
        ground.delete(f"/api/v1/namespaces/{CONFIG['namespace']}/configmaps/{CONFIG['name']}")
