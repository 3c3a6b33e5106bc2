"""A release on a site, from its installation to the moment when nothing of it is left."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from tests.support.chart.helm import CHART, NAME, NAMESPACE, Helm, Values
from tests.support.chart.site import Site, eventually

WHERE = f"--namespace={NAMESPACE}"


def pod(name: str, scheduler: str, namespace: str = "default", **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "none", **spec.pop("container", {})}
    body = {"schedulerName": scheduler, "containers": [container], "terminationGracePeriodSeconds": 0, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": body}


class Release:
    """Helm with the cluster."""

    def __init__(self, site: Site, home: Path) -> None:
        self.site = site
        self.helm = Helm(home, site.plane.admin_kubeconfig)
        self._before = everything(site)

    def install(self, values: Values, *options: str) -> str:
        """Install; what Helm says, with the notes."""
        return self.helm.run("install", NAME, str(CHART), WHERE, *options, values=values)

    def upgrade(self, values: Values, *options: str) -> str:
        return self.helm.run("upgrade", NAME, str(CHART), WHERE, *options, values=values)

    def follow(self, notes: str, folder: Path) -> Path:
        """Run the commands of the notes that are for control-plane nodes: the folder that stands for their /etc."""
        _, _, rest = notes.partition("On each control-plane node:\n")
        commands, _, flags = rest.partition("Then start kube-scheduler with\n")
        assert "--config=/etc/kubernetes/dra-extender.yaml --feature-gates=SchedulerPopFromBackoffQ=false" in flags
        plane, copied = self.site.plane, folder / "etc"
        path = f"{plane.binaries}:{os.environ['PATH']}"
        made = {**os.environ, "KUBECONFIG": str(plane.admin_kubeconfig), "PATH": path}
        subprocess.run(["bash", "-euc", commands.replace("/etc/", f"{copied}/")], env=made, check=True)
        return copied

    def end(self) -> None:
        """Uninstall. Raises AssertionError when anything stays but what the programs have made."""
        self.helm.run("uninstall", NAME, WHERE, "--ignore-not-found")
        made = ("lease/dra-extender", "lease/dra-scheduler", "resourceclaim/dra-extender-requeue")
        self.site.plane.kubectl("delete", *made, WHERE, "--ignore-not-found")
        eventually(lambda: not self._left(), "the end of all objects", lambda: str(self._left()))

    def _left(self) -> set[str]:
        return everything(self.site) - self._before

    def secret(self, name: str) -> dict[str, str]:
        return dict(self.site.get("secret", name, WHERE)["data"])

    def environment(self) -> dict[str, str]:
        spec = self.site.get("deployment", "dra-extender", WHERE)["spec"]["template"]["spec"]
        return {entry["name"]: entry.get("value", "") for entry in spec["containers"][0]["env"]}


def everything(site: Site) -> set[str]:
    """Kind, namespace and name of all objects in the cluster, except events and endpoints."""
    kinds = site.plane.kubectl("api-resources", "--verbs=list", "--output=name").split()
    telling = ("events", "endpointslices", "endpoints", "componentstatuses")
    listed = ",".join(kind for kind in kinds if not kind.startswith(telling))
    columns = "custom-columns=:.kind,:.metadata.namespace,:.metadata.name"
    said = site.plane.kubectl("get", listed, "--all-namespaces", f"--output={columns}", "--ignore-not-found")
    return {" ".join(line.split()) for line in said.splitlines() if line.strip()}
