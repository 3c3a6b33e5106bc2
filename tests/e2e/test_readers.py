"""Readers of the insight address, as shipped: tokens of a real API server, roles of the manifests."""

from __future__ import annotations

import json
import urllib.error
from collections.abc import Iterator

import pytest

from tests.e2e.ground import Ground

pytestmark = pytest.mark.e2e

NAMESPACE = "dra-system"
MONITOR = "monitor"


@pytest.fixture(scope="module")
def monitor(ground: Ground) -> Iterator[str]:
    """The name of an account that may read metrics by the role in the manifests, and nothing else."""
    plane = ground.plane
    plane.kubectl("create", "serviceaccount", MONITOR, f"--namespace={NAMESPACE}")
    role = "--clusterrole=dra-extender-metrics-reader"
    plane.kubectl("create", "clusterrolebinding", MONITOR, role, f"--serviceaccount={NAMESPACE}:{MONITOR}")
    yield MONITOR
    plane.kubectl("delete", f"serviceaccount/{MONITOR}", f"--namespace={NAMESPACE}", "--ignore-not-found")
    plane.kubectl("delete", f"clusterrolebinding/{MONITOR}")


def token(ground: Ground, account: str, *more: str) -> str:
    return ground.plane.kubectl("create", "token", account, f"--namespace={NAMESPACE}", *more).strip()


def asked(ground: Ground, path: str, shown: str) -> tuple[int, str]:
    """Status and text of the answer."""
    try:
        with ground.extender.open(path, shown) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, str(json.load(error)["detail"])


def test_an_account_reads_what_its_role_grants(ground: Ground, monitor: str) -> None:
    shown = token(ground, monitor)
    ground.eventually(lambda: asked(ground, "/metrics", shown)[0] == 200, "the role")
    status, text = asked(ground, "/insight/devices", shown)
    assert (status, text.partition(":")[0]) == (403, "system")
    assert f"{NAMESPACE}:{monitor} may not get /insight/devices" in text
    assert asked(ground, "/insight/devices", ground.reader)[0] == 200


@pytest.mark.parametrize("shown", ["", "garbage", "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl"])
def test_what_is_no_token_of_the_cluster_reads_nothing_but_probes(ground: Ground, shown: str) -> None:
    assert asked(ground, "/metrics", shown)[0] == 401
    assert asked(ground, "/readyz", shown)[0] == 200


def test_a_token_for_somebody_else_is_none_for_us(ground: Ground, monitor: str) -> None:
    assert asked(ground, "/metrics", token(ground, monitor, "--audience=vault"))[0] == 401


def test_a_token_ends_with_its_account(ground: Ground) -> None:
    plane = ground.plane
    plane.kubectl("create", "serviceaccount", "gone", f"--namespace={NAMESPACE}")
    shown = token(ground, "gone")
    assert asked(ground, "/metrics", shown)[0] == 403
    again = token(ground, "gone", "--duration=601s")  # another one, which the service has not seen
    plane.kubectl("delete", "serviceaccount/gone", f"--namespace={NAMESPACE}")
    ground.eventually(lambda: asked(ground, "/metrics", again)[0] == 401, "the end of the account's tokens")


def test_the_service_has_not_logged_a_token(ground: Ground) -> None:
    asked(ground, "/metrics", "garbage-that-would-be-found")
    text = ground.extender.log.read_text(errors="replace")
    assert "garbage-that-would-be-found" not in text
    assert ground.reader not in text
