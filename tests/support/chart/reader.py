"""Somebody in a checkout with kubectl, `kubectl dra` and Helm, who types what the documentation says."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tests.support.chart.release import Release
from tests.support.documentation.blocks import ROOT, Command
from tests.support.documentation.terminal import Answer, type_all


class Reader:
    """They have a kubeconfig of their own, with the rights of an administrator."""

    def __init__(self, release: Release, folder: Path) -> None:
        self.folder = folder
        for part in ("charts", "manifests", "scheduler_config"):
            shutil.copytree(ROOT / part, folder / part)
        kubeconfig = shutil.copy(release.site.plane.admin_kubeconfig, folder / "kubeconfig")
        tools = (release.helm.path.parent, release.site.plane.binaries, Path(sys.executable).parent)
        made = release.helm.environment()
        path = ":".join([*map(str, tools), made["PATH"]])
        self.environment = made | {"PATH": path, "HOME": str(folder), "KUBECONFIG": str(kubeconfig)}

    def answers(self, *commands: Command) -> list[Answer]:
        """What the commands answer, well or not."""
        return type_all(commands, self.folder, self.environment)

    def types(self, *commands: Command) -> list[Answer]:
        """What the commands answer. Raises AssertionError for one that does not succeed."""
        answers = self.answers(*commands)
        for answer in answers:
            assert answer.is_well, f"{answer.command.text}\nended with {answer.status}\n{answer.output}"
        return answers
