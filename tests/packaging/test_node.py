"""CI obtains what the tests on real nodes need of the system, and the documentation lists it."""

from __future__ import annotations

import re

from tests.support.node.machine import PACKAGES, SECCOMP
from tests.support.packaging.image import ROOT


def test_what_nodes_need_is_what_ci_obtains_and_contributors_are_told() -> None:
    packages = " ".join(PACKAGES)
    assert f'obtain {SECCOMP} "the tests on real nodes" {packages}\n' in (ROOT / ".ci" / "run").read_text()
    for page in ("CONTRIBUTING.md", "tests/controlplane/README.md"):
        assert f"`apt-get install --no-install-recommends {packages}`" in (ROOT / page).read_text()


def test_nodes_are_of_the_release_of_the_control_plane() -> None:
    modules = (ROOT / "tests" / "controlplane" / folder / "go.mod" for folder in (".", "node"))
    plane, node = (re.findall(r"k8s\.io/kubernetes (v\S+)", module.read_text()) for module in modules)
    assert plane == node
