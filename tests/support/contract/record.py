"""Record what a real API server answers: ``python -m tests.support.contract.record [FILE ...]``.

Runs the scenarios (all, or those of the files named) against a fresh control plane of etcd and kube-apiserver alone,
so that no controller has a hand in it, and writes the answers to ``recordings/``: of the older release (with its
binaries in ``KUBEBUILDER_ASSETS``) only those that differ, into its folder. With ``--kubeconfig`` it asks that server
instead.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from dra_extender.kube import credentials
from tests.e2e.controlplane import ControlPlane
from tests.support.contract import exchanges, releases
from tests.support.contract.answers import differences


async def server(kubeconfig: Path) -> exchanges.Server:
    """The server of a kubeconfig."""
    login = await credentials.load(credentials.ClientSettings(kubeconfig=str(kubeconfig)))
    authorization = await login.authorization()
    return exchanges.Server(login.server, login.ssl, {"Authorization": authorization} if authorization else {})


async def record(kubeconfig: Path, scenarios: Iterable[exchanges.Scenario], release: str) -> None:
    """Run scenarios and write a recording per file."""
    where = await server(kubeconfig)
    recorded: dict[str, dict[str, list[exchanges.Answer]]] = {}
    for scenario in (each for each in scenarios if releases.is_since(release, each.since)):
        namespace = f"contract-{secrets.token_hex(3)}"
        recorded.setdefault(scenario.file, {})[scenario.name] = await exchanges.run(where, scenario, namespace)
    for file, answers in recorded.items():
        target = exchanges.RECORDINGS / f"{file}.json"
        if release == releases.OLDER:
            target = exchanges.RECORDINGS / release / f"{file}.json"
            newer = exchanges.recording(file)
            answers = {name: answer for name, answer in answers.items() if differences(newer[name], answer)}
            target.unlink(missing_ok=True)
        if answers:
            target.parent.mkdir(exist_ok=True)
            target.write_text(json.dumps(answers, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
        print(f"{file}: {len(answers)} scenarios")


def main(arguments: Sequence[str]) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Record what a real API server answers.")
    parser.add_argument("files", nargs="*", help="files of scenarios, without .yaml (default: all)")
    parser.add_argument("--kubeconfig", type=Path, help="a running server to ask")
    parser.add_argument("--release", default=releases.RELEASE, choices=(releases.RELEASE, releases.OLDER))
    options = parser.parse_args(arguments)
    scenarios = [each for each in exchanges.load() if not options.files or each.file in options.files]
    if options.kubeconfig:
        asyncio.run(record(options.kubeconfig, scenarios, options.release))
        return
    with (
        tempfile.TemporaryDirectory() as directory,
        ControlPlane(Path(directory), controllers=False) as plane,
    ):
        plane.restart_apiserver()  # so that there is a time which the watches have forgotten
        asyncio.run(record(plane.admin_kubeconfig, scenarios, releases.release_of(plane.version)))


if __name__ == "__main__":
    main(sys.argv[1:])
