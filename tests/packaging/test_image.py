"""What the Dockerfile builds on is named by content: the base image by digest, everything installed by hash."""

from __future__ import annotations

import re

from tests.support.packaging.image import DOCKERFILE, PACKAGES, ROOT


def test_every_stage_builds_on_the_base_image_which_is_named_by_digest() -> None:
    (base,) = re.findall(r"^ARG BASE=(\S+)$", DOCKERFILE, re.MULTILINE)
    assert re.fullmatch(r"python:3\.13\.\d+-slim-\w+@sha256:[0-9a-f]{64}", base)
    stages = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert stages == ["${BASE}", "${BASE}"]
    assert set(re.findall(r"^COPY --from=(\S+)", DOCKERFILE, re.MULTILINE)) == {"build"}


def test_whatever_pip_installs_is_given_by_hash_or_was_built_here() -> None:
    installs = re.findall(r"pip (?:--python \S+ )?install (.+?)(?: \\)?$", DOCKERFILE, re.MULTILINE)
    assert installs == [
        "--require-hashes -r requirements/build.lock",
        "--require-hashes -r requirements/runtime.lock",
        "--no-index --no-deps /tmp/dist/*.whl",
    ]
    assert not re.search(r"\b(apt|curl|wget|ADD)\b", DOCKERFILE)


def test_what_building_needs_is_what_ci_obtains_and_contributors_are_told() -> None:
    packages = " ".join(PACKAGES)
    assert f'obtain {PACKAGES[0]} "the tests of the image" {packages}\n' in (ROOT / ".ci" / "run").read_text()
    assert f"`apt-get install --no-install-recommends {packages}`" in (ROOT / "CONTRIBUTING.md").read_text()
