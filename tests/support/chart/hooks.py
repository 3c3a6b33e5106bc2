"""`helm test`, with the programs of its pod as processes."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from tests.support.chart.helm import NAME, Document
from tests.support.chart.release import WHERE, Release
from tests.support.chart.site import Programs, eventually
from tests.support.patience import LONGEST


def pass_the_test_of_helm(
    release: Release, programs: Programs, command: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> None:
    """Run `helm test`, or the command that somebody types for it; what its pod contains is run here as soon as kubelet
    would. Raises AssertionError with the logs when it does not pass.
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
    assert (status, test.returncode) == (0, 0), said.decode() + programs.logs()
    assert "Phase:          Succeeded" in said.decode()
