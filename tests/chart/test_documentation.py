"""The commands of the pages on installing and upgrading, typed on a real control plane as a reader types them.

There are no images here and no cert-manager: what those take is marked in the pages. `helm test` waits for a pod whose
programs run as processes, so it gets them while it waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.chart.helm import NAME
from tests.support.chart.hooks import run_test_of_helm
from tests.support.chart.reader import Reader
from tests.support.chart.release import WHERE, Release
from tests.support.chart.site import Programs
from tests.support.documentation.blocks import ROOT, Block, all_blocks

pytestmark = [pytest.mark.e2e, pytest.mark.own_plane("releases have the names of the manifests")]

TYPED = [block for block in all_blocks() if block.place == "installation"]
KUSTOMIZED = ("extender", "scheduler", "rbac")


def blocks(heading: str) -> list[Block]:
    """Those below a heading of any page."""
    found = [block for block in TYPED if block.heading == heading]
    assert found, f"no page has commands for tests below {heading}"
    return found


@pytest.fixture
def reader(release: Release, tmp_path: Path) -> Reader:
    return Reader(release, tmp_path)


def test_what_the_pages_say_of_helm_works_from_the_installation_to_the_end(
    operator: None, release: Release, reader: Reader, tmp_path: Path
) -> None:
    """`operator` first: the kinds of monitors that a runbook asks for."""
    pages = ("docs/install.md", "docs/upgrade.md", "docs/uninstall.md")
    found = {block.page: block for block in blocks("With Helm")}
    installing, upgrading, uninstalling = (found[page] for page in pages)
    install, test = installing.commands()
    assert test.text.startswith(f"helm test {NAME}")
    (said,) = reader.types(install)
    assert "STATUS: deployed" in said.output
    with Programs(release.site, tmp_path) as programs:
        programs.extender()
        programs.scheduler()
        tested = run_test_of_helm(release, programs, ["bash", "-c", test.text], reader.environment)
        assert tested.passed, tested.said
    (asked,) = blocks("What to look at")
    reader.types(*asked.commands())
    answers = reader.types(*upgrading.commands())
    assert ["Happy Helming" in answers[0].output, "Rollback was a success" in answers[1].output] == [True, True]
    reader.types(*uninstalling.commands())
    assert release.site.get("deployments", WHERE) == {}


@pytest.fixture
def taken_away(release: Release) -> Iterator[None]:
    """Without the namespace, which other tests use."""
    yield
    for part in KUSTOMIZED:
        release.site.plane.kubectl("delete", "-k", str(ROOT / "manifests" / part), "--ignore-not-found")
    release.site.plane.kubectl("delete", "secret", "dra-extender-tls", "dra-extender-client-tls", WHERE)


def test_what_the_page_says_of_kustomize_gives_deployments_that_become_available(
    release: Release, reader: Reader, taken_away: None
) -> None:
    namespace, everything = blocks("Secondary scheduler (recommended)")
    (certificates,) = blocks("Certificates")
    reader.types(*namespace.commands(), *certificates.commands())
    answers = reader.types(*everything.commands())
    for deployment, answer in zip(("dra-extender", "dra-scheduler"), answers[1:], strict=True):
        assert answer.output.splitlines()[-1] == f'deployment "{deployment}" successfully rolled out'
