"""Every misfit waits on the real control plane. Event, `why`, HTTP and page say the same, and what its row says.

Pods that only wait do so at once. A pod that needs devices in use, or objects that others would be told about, waits
while no other does.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
import pytest
from playwright.sync_api import Page, sync_playwright

from dra_extender.insight.why.report import Diagnosis
from dra_extender.insight.why.text import event_of
from embedded_cluster.manifests import path_of
from tests.e2e.controlplane import ControlPlane
from tests.e2e.ground import Ground
from tests.e2e.misfitrows import LOW, Row, create, prepare
from tests.e2e.plane import Plane
from tests.support.diagnosis.misfits import CLUSTERS, MISFITS, POD
from tests.support.page.browser import ARGUMENTS, chromium
from tests.support.patience import LONGEST

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.needs("DRAExtendedResource"),
    pytest.mark.own_plane("what no node has, a node of the cluster may have"),
]

NOT_PLAYED: Final = {
    "a claim that nobody uses has the last devices": "the service deallocates such a claim",
    "the claim is allocated on a node that does not exist any more": "the service deallocates such a claim",
    "more local storage than any node has": "the pod uses no devices, so nobody is told about it",
}
ENOUGH: Final = 60
"""Rows that are played on each release, at least."""


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    with ControlPlane(tmp_path_factory.mktemp("controlplane")) as made:
        yield made


@pytest.fixture(scope="module")
def ground(plane: Plane) -> Iterator[Ground]:
    """No nodes but those of the misfits."""
    with Ground(plane, nodes=0) as made:
        meta = {"name": LOW}
        made.apply({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": meta, "value": -5})
        yield made


@pytest.fixture(scope="module")
def page(ground: Ground) -> Iterator[Page]:
    """The page of the service, with the token of a reader."""
    if not chromium():
        pytest.skip("no Chromium on this machine: apt-get install chromium, or name one in CHROMIUM")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS, timeout=1000 * LONGEST)
        shown = browser.new_context(ignore_https_errors=True).new_page()
        shown.set_default_timeout(1000 * LONGEST)
        shown.goto(ground.extender.insight + "/")
        shown.locator("#token-input").fill(ground.reader)
        shown.get_by_role("button", name="Use this token").click()
        yield shown
        browser.close()


@pytest.mark.parametrize("place", CLUSTERS)
def test_event_why_http_and_page_say_the_same(ground: Ground, page: Page, place: str) -> None:
    documents = CLUSTERS[place]()
    create(ground, documents)
    numbered = [(number, misfit) for number, misfit in enumerate(MISFITS) if misfit.place == place]
    rows = [Row(ground, number, misfit) for number, misfit in numbered if misfit.name not in NOT_PLAYED]
    assert len(rows) > ENOUGH
    prepare(ground, rows)
    played = [[row for row in rows if not row.alone], *([row] for row in rows if row.alone)]
    wrong: dict[str, list[str]] = {}
    for together in played:
        for row in together:
            row.make()
        wrong |= {row.misfit.name: told for row in together if (told := problems(row, page))}
        reasons, diagnoses = waiting(ground)
        for row in together:
            found, answer = diagnosis(row), diagnoses.get(row.pod) if row.listed else why(row)
            reason = answer.summary if answer is not None else reasons.get(row.pod)
            if reason != found.summary or (answer is not None and answer.remedies != found.remedies):
                wrong.setdefault(row.misfit.name, []).append(f"why says {reason!r}, {answer}; HTTP {found}")
        for row in together:
            row.unmake()
    for document in reversed(documents):
        ground.delete(path_of(document))
    assert wrong == {}, json.dumps(wrong, indent=1)


def problems(row: Row, page: Page) -> list[str]:
    """How the answer of the service differs from its row, and event and page from this answer."""
    misfit = row.misfit
    if not happens(row, lambda: diagnosis(row).rule == misfit.rule):
        return [f"the service says {diagnosis(row).summary!r}"]
    told = diagnosis(row)
    shorts = [remedy.short for remedy in told.remedies]
    wanted = row.said(misfit.among or misfit.remedy)
    found = [f"{part!r} is not in {told.summary!r}" for part in map(row.said, misfit.says) if part not in told.summary]
    if (wanted not in shorts) if misfit.among else (shorts[:1] != ([wanted] if wanted else [])):
        found.append(f"the remedies are {shorts}, not {wanted!r}")
    event = event_of(told)
    if event is not None and not happens(row, lambda: event.note in notes(row)):
        found.append(f"the events are {notes(row)}, not {event.note!r}")
    first = [
        f"{remedy.text} (then it fits {remedy.nodes} node{'s' * (remedy.nodes != 1)})" for remedy in told.remedies[:1]
    ]
    if row.listed and not happens(row, lambda: shown(page, row) == [told.summary, *first]):
        found.append(f"the page shows {shown(page, row)}, not {[told.summary, *first]}")
    return found


def happens(row: Row, look: Callable[[], bool]) -> bool:
    """Whether it comes to be so."""
    try:
        return row.ground.eventually(look)
    except AssertionError:
        return False


def diagnosis(row: Row) -> Diagnosis:
    found: Any = row.ground.extender.ask(f"/insight/diagnosis?pod={row.pod}")
    return msgspec.convert(found, Diagnosis)


def notes(row: Row) -> list[str]:
    """The notes of the events of the pod that the service wrote."""
    listed = row.ground.get(f"/apis/events.k8s.io/v1/namespaces/{row.name}/events")["items"]
    return [
        item["note"]
        for item in listed
        if item["regarding"]["name"] == POD and item["reportingController"].startswith("dra-extender")
    ]


def waiting(ground: Ground) -> tuple[dict[str, str], dict[str, Diagnosis]]:
    """What `kubectl dra why -A` shows: the reason of each pod, and the diagnosis of one pod of each reason."""
    groups = ask(ground, "--all-namespaces")
    found = [msgspec.convert(group["diagnosis"], Diagnosis) for group in groups]
    return {pod: group["reason"] for group in groups for pod in group["pods"]}, {told.pod: told for told in found}


def why(row: Row) -> Diagnosis:
    """What `kubectl dra why POD` shows."""
    return msgspec.convert(ask(row.ground, row.pod), Diagnosis)


def ask(ground: Ground, what: str) -> Any:
    command = [sys.executable, "-m", "dra_extender.cli", "why", what, "--output=json"]
    command.append(f"--kubeconfig={ground.plane.admin_kubeconfig}")
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)


def shown(page: Page, row: Row) -> list[str]:
    """The reason and the first remedy that the page shows for the pod."""
    page.locator("#pods-filter").fill(row.name)
    texts = """(pod) => [...document.querySelectorAll(`[data-pod="${pod}"] .why`)].flatMap((why) =>
        [...why.querySelectorAll(":scope > .summary, :scope > .help .remedy > p")].map((each) => each.textContent))"""
    found: list[str] = page.evaluate(texts, row.pod)
    return found
