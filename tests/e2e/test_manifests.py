"""A real API server takes the shipped manifests as they are."""

from __future__ import annotations

import pytest

from tests.e2e.extender import ROOT
from tests.e2e.ground import Ground

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("folder", [".", "policies"])
def test_the_manifests_are_valid_without_a_warning_about_a_field(ground: Ground, folder: str) -> None:
    path = ROOT / "manifests" / folder
    # ../scheduler_config is outside the folder that is applied.
    options = ("--dry-run=server", "--validate=strict", "--load-restrictor=LoadRestrictionsNone")
    built = ground.plane.kubectl("kustomize", options[2], str(path))
    told = ground.plane.kubectl("apply", *options[:2], "--filename=-", stdin=built)
    assert "(server dry run)" in told
