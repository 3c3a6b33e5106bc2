"""`helm test`, with the programs of its pod as processes."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tests.support.chart.helm import NAME, Document
from tests.support.chart.release import WHERE, Release
from tests.support.chart.site import Programs, eventually
from tests.support.patience import LONGEST


class Outcome(NamedTuple):
    """How `helm test` ended: the exit status of its pod and of the command, and all output."""

    pod: int
    command: int
    said: str

    @property
    def passed(self) -> bool:
        return (self.pod, self.command) == (0, 0) and "Phase:          Succeeded" in self.said


def run_test_of_helm(
    release: Release, programs: Programs, command: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> Outcome:
    """Run `helm test`, or the command that a user types for it; what its pod contains is run here as soon as kubelet
    would.
    """
    site = release.site
    typed = list(command) or [str(release.helm.path), "test", NAME, WHERE, "--timeout=90s"]
    made = environment or release.helm.environment()
    with subprocess.Popen(typed, env=dict(made), stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as test:

        def running() -> Document:
            listed = site.get("pods", WHERE, "--field-selector=status.phase=Running")["items"]
            return next((each for each in listed if "helm.sh/hook" in each["metadata"].get("annotations", {})), {})

        found = eventually(running, "the pod of the test", programs.logs)
        status = programs.run(found["spec"])
        site.ended(found["metadata"]["namespace"], found["metadata"]["name"], "Failed" if status else "Succeeded")
        said, _ = test.communicate(timeout=LONGEST)
    return Outcome(status, test.returncode, said.decode() + programs.logs())
