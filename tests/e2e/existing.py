"""A cluster that is there already, for the tests that otherwise make a control plane of their own.

The tests make nodes, classes, roles and namespaces with fixed names, and delete them. So a cluster is taken only when
it is named by ``E2E_KUBECONFIG`` (never by the KUBECONFIG of one's shell), when it says of itself that it may be thrown
away (a ConfigMap, which ``hack/kind-up.sh`` makes), and when it is used for nothing else. What is in the cluster
before the tests is noted in that ConfigMap; everything of the same kinds that is there at the end and was not before is
deleted.

The cluster's own nodes are left alone: no scheduler of the tests puts a pod there.

As a command, ``python -m tests.e2e.existing KUBECONFIG`` removes what tests left behind that were killed.
"""

from __future__ import annotations

import base64
import binascii
import copy
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn, Self

import yaml

from tests.e2e.components import numbers, offered, release
from tests.e2e.controlplane import DRA_FEATURES
from tests.e2e.credentials import Credentials
from tests.e2e.plane import KubectlError, Plane

VARIABLE = "E2E_KUBECONFIG"
MARK = "dra-extender-e2e"
"""The ConfigMap in kube-system that says: this cluster may be thrown away."""
NAMESPACE = "dra-e2e"
"""Of the tests' own accounts."""
SYSTEM = frozenset(("default", "kube-node-lease", "kube-public", "kube-system", "local-path-storage"))
"""The namespaces of an unused cluster, as kubeadm and kind make them."""
SCHEDULER_ROLES = ("system:kube-scheduler", "system:volume-scheduler")
STOCK_SCHEDULER = "default-scheduler"

KINDS = (
    "namespaces",
    "nodes",
    "resourceslices.resource.k8s.io",
    "deviceclasses.resource.k8s.io",
    "devicetaintrules.resource.k8s.io",
    "priorityclasses.scheduling.k8s.io",
    "clusterroles.rbac.authorization.k8s.io",
    "clusterrolebindings.rbac.authorization.k8s.io",
    "validatingadmissionpolicies.admissionregistration.k8s.io",
    "validatingadmissionpolicybindings.admissionregistration.k8s.io",
)
"""Kinds of cluster-wide objects that tests make. Their namespaced ones are in namespaces of theirs, but for roles and
bindings in kube-system."""
SWEEP_SECONDS = 180.0


class RefusedError(RuntimeError):
    """The tests may not use this cluster; the text says why and what to do."""


class NotOursError(RuntimeError):
    """A test asked for what only a control plane of the tests' own has; it lacks the marker `own_plane`."""


def chosen(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The kubeconfig of the cluster to take; None: none was named, and the tests make a control plane of their own."""
    named = environment.get(VARIABLE, "")
    return Path(named).resolve() if named else None


def objection(mark: Mapping[str, Any] | None, found: Iterable[str]) -> str:
    """Why a cluster may not be used, and what to do; empty: it may.

    `mark` is the data of the ConfigMap, None when it does not exist; `found` has the objects as ``namespace/default``.
    """
    if mark is None:
        return (
            "it does not say that it may be thrown away. The tests make and delete nodes, roles and namespaces. "
            "hack/kind-up.sh makes a cluster for them; if nothing in this one matters: "
            f"kubectl create configmap {MARK} --namespace=kube-system"
        )
    if "before" in mark:
        return (
            "tests use it now, or were killed before they could clean up. When none are running: "
            "python -m tests.e2e.existing KUBECONFIG, or make a new cluster"
        )
    used = sorted(
        name for kind, _, name in (each.partition("/") for each in found) if kind == "namespace" and name not in SYSTEM
    )
    if used:
        return f"somebody uses it: it has the namespaces {', '.join(used)} besides those of Kubernetes"
    devices = sorted(each for each in found if each.startswith(("deviceclass.", "resourceslice.")))
    if devices:
        return f"it has devices already ({', '.join(devices)}), and the tests count on none but their own"
    return ""


class ExistingCluster(Plane):
    """The cluster of a kubeconfig (its current context) as a context manager. Entering raises RefusedError.

    Schedulers and kubectl are local processes, from the same binaries as with a control plane of our own.
    """

    NEEDED = ("kube-scheduler", "kubectl")
    node_lifecycle = True
    stock_scheduler = STOCK_SCHEDULER + "-e2e"

    def __init__(self, directory: Path, kubeconfig: Path) -> None:
        super().__init__(directory)
        self.given = kubeconfig
        self._entered = False

    def __enter__(self) -> Self:
        self._log_in()
        mark = self._mark()
        found = self._found() if mark is not None else set()
        reason = objection(mark, found)
        if not reason and release("kube-scheduler") != numbers(self.version):
            reason = f"it is of {self.version}, and kube-scheduler in {self.binaries} is not (KUBEBUILDER_ASSETS)"
        if reason:
            raise RefusedError(f"the cluster of {self.given} ({self.url}) is not for these tests: {reason}")
        self._note(sorted(found))
        self._entered = True
        try:
            self.others = tuple(name.removeprefix("node/") for name in sorted(found) if name.startswith("node/"))
            known = offered(DRA_FEATURES, "kube-scheduler")
            self.feature_gates = {name: name in self.features for name in known}
            self._make_accounts()
        except BaseException:
            self.stop()
            raise
        return self

    def clean(self) -> list[str]:
        """Delete what tests left behind that were killed, and return its names. Raises RefusedError."""
        self._log_in()
        return self.sweep()

    def stop(self) -> None:
        """Stop what was started and delete what was made."""
        super().stop()
        if self._entered:
            self.sweep()
            self._entered = False

    @property
    def audit_log(self) -> NoReturn:
        raise NotOursError("the audit log of an existing cluster cannot be read")

    def restart_apiserver(self) -> NoReturn:
        raise NotOursError("the API server of an existing cluster cannot be restarted")

    def user_kubeconfig(self, user: str, group: str | None = None) -> Path:
        """A kubeconfig without permissions: of a service account, because the tests cannot sign certificates here."""
        if group is not None:
            raise NotOursError("nobody can be put into a group of an existing cluster")
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": user, "namespace": NAMESPACE}}
        self.apply(account)
        return self.service_account_kubeconfig(NAMESPACE, user)

    def scheduler_kubeconfig(self) -> Path:
        return self.service_account_kubeconfig(NAMESPACE, "kube-scheduler")

    def fitted(self, configuration: Mapping[str, Any]) -> dict[str, Any]:
        """Beside the cluster's own scheduler, and away from the cluster's own nodes."""
        config = copy.deepcopy(dict(configuration))
        # The name and the lease of the stock one are taken.
        election = config["leaderElection"]
        if election.get("resourceNamespace", "kube-system") == "kube-system":
            election["resourceNamespace"] = NAMESPACE
        for profile in config.setdefault("profiles", [{}]):
            if profile.setdefault("schedulerName", STOCK_SCHEDULER) == STOCK_SCHEDULER:
                profile["schedulerName"] = self.stock_scheduler
            if self.others:
                profile.setdefault("pluginConfig", []).append({"name": "NodeAffinity", "args": _away_from(self.others)})
        return config

    # --- getting in

    def _log_in(self) -> None:
        if not self.given.is_file():
            raise RefusedError(f"there is no kubeconfig {self.given} ({VARIABLE} names it)")
        (self.directory / "logs").mkdir(parents=True, exist_ok=True)
        # One context with everything it needs inside: nothing that happens to the file later leads elsewhere.
        view = ("config", "view", "--minify", "--flatten", "--raw", "--output=json")
        try:
            config = json.loads(self.kubectl(*view, kubeconfig=self.given))
        except KubectlError as problem:
            raise RefusedError(f"kubeconfig {self.given} cannot be used: {problem}") from None
        cluster = config["clusters"][0]["cluster"]
        self.url = cluster["server"]
        try:
            authority = base64.b64decode(cluster["certificate-authority-data"])
        except (KeyError, binascii.Error):
            raise RefusedError(f"kubeconfig {self.given} names no certificate authority of {self.url}") from None
        self.credentials = Credentials(self.directory / "pki")
        self.authorities = self.directory / "pki" / "authorities.crt"
        self.authorities.write_bytes(authority.rstrip() + b"\n" + self.credentials.ca_file.read_bytes())
        self.admin_kubeconfig.touch(mode=0o600)
        self.admin_kubeconfig.write_text(yaml.safe_dump(config))

    def _make_accounts(self) -> None:
        meta = {"name": "kube-scheduler", "namespace": NAMESPACE}
        rbac = {"apiVersion": "rbac.authorization.k8s.io/v1"}
        subjects = [{"kind": "ServiceAccount", **meta}]
        group = "rbac.authorization.k8s.io"
        self.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
            *(
                {
                    **rbac,
                    "kind": "ClusterRoleBinding",
                    "metadata": {"name": f"{NAMESPACE}-{role.removeprefix('system:')}"},
                    "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
                    "subjects": subjects,
                }
                for role in SCHEDULER_ROLES
            ),
            {
                **rbac,
                "kind": "RoleBinding",
                "metadata": {"name": f"{NAMESPACE}-auth-reader", "namespace": "kube-system"},
                "roleRef": {"apiGroup": group, "kind": "Role", "name": "extension-apiserver-authentication-reader"},
                "subjects": subjects,
            },
            # The stock configurations elect a leader under this name.
            {
                **rbac,
                "kind": "Role",
                "metadata": meta,
                "rules": [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]}],
            },
            {
                **rbac,
                "kind": "RoleBinding",
                "metadata": meta,
                "roleRef": {"apiGroup": group, "kind": "Role", "name": "kube-scheduler"},
                "subjects": subjects,
            },
        )

    # --- the mark, and what was there before

    def _mark(self) -> dict[str, str] | None:
        read = ("get", f"configmap/{MARK}", "--namespace=kube-system", "--ignore-not-found", "--output=json")
        try:
            told = self.kubectl(*read)
        except KubectlError as problem:
            raise RefusedError(f"the cluster of {self.given} ({self.url}) cannot be reached: {problem}") from None
        return json.loads(told).get("data", {}) if told else None

    def _note(self, before: list[str] | None) -> None:
        patch = json.dumps({"data": {"before": json.dumps(before) if before is not None else None}})
        self.kubectl("patch", "configmap", MARK, "--namespace=kube-system", "--type=merge", f"--patch={patch}")

    def _found(self) -> set[str]:
        """The objects of the kinds that tests make, as ``node/name``; those in kube-system behind its name."""
        told = self.kubectl("api-resources", "--namespaced=false", "--verbs=delete,list", "--output=name").split()
        served = [kind for kind in KINDS if kind in told]
        found = set(self.kubectl("get", ",".join(served), "--output=name").split())
        roles = self.kubectl("get", "roles,rolebindings", "--namespace=kube-system", "--output=name").split()
        return found | {f"kube-system {name}" for name in roles}

    # --- cleaning up

    def sweep(self) -> list[str]:
        """Delete what was not there before, and return its names. Raises RefusedError when what was is not noted."""
        mark = self._mark()
        if mark is None or "before" not in mark:
            raise RefusedError(f"the cluster of {self.given} has no note of what was there before tests: nothing to do")
        before = set(json.loads(mark["before"]))
        made = sorted(self._found() - before)
        self._delete([name for name in made if not name.startswith("kube-system ")])
        self._delete([name.split()[1] for name in made if name.startswith("kube-system ")], "kube-system")
        nodes = {name.removeprefix("node/") for name in made if name.startswith("node/")}
        namespaces = {name.removeprefix("namespace/") for name in made if name.startswith("namespace/")}
        deadline = time.monotonic() + SWEEP_SECONDS
        while left := self._release(nodes, namespaces):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the namespaces {', '.join(sorted(left))} do not go away")
            time.sleep(1)
        self._note(None)
        return made

    def _delete(self, names: list[str], namespace: str = "default") -> None:
        if names:
            self.kubectl("delete", "--ignore-not-found", "--wait=false", f"--namespace={namespace}", *names)

    def _release(self, nodes: set[str], namespaces: set[str]) -> set[str]:
        """Do for pods and claims what kubelets would have done; returns the namespaces that are still there."""
        pods = json.loads(self.kubectl("get", "pods", "--all-namespaces", "--output=json"))["items"]
        for pod in pods:
            meta = pod["metadata"]
            if meta["namespace"] in namespaces or pod["spec"].get("nodeName") in nodes:
                force = ("--force", "--grace-period=0", "--wait=false", "--ignore-not-found")
                self.kubectl("delete", "pod", meta["name"], f"--namespace={meta['namespace']}", *force)
        claims = json.loads(self.kubectl("get", "resourceclaims", "--all-namespaces", "--output=json"))["items"]
        for claim in claims:
            meta = claim["metadata"]
            if meta["namespace"] in namespaces and meta.get("finalizers"):
                where = (f"resourceclaim/{meta['name']}", f"--namespace={meta['namespace']}")
                self._unless_gone("patch", *where, "--type=merge", '--patch={"metadata":{"finalizers":null}}')
        listed = self.kubectl("get", "namespaces", "--output=name").split()
        return namespaces & {name.removeprefix("namespace/") for name in listed}

    def _unless_gone(self, *arguments: str) -> None:
        try:
            self.kubectl(*arguments)
        except KubectlError as problem:
            if "NotFound" not in str(problem):
                raise


def _away_from(nodes: Iterable[str]) -> dict[str, Any]:
    """Arguments of the plugin NodeAffinity: all pods of the profile stay away from these nodes."""
    fields = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
    terms = {"nodeSelectorTerms": [{"matchFields": fields}]}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "NodeAffinityArgs",
        "addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms},
    }


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit status."""
    if len(arguments) != 1:
        print("python -m tests.e2e.existing KUBECONFIG", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as directory:
        cluster = ExistingCluster(Path(directory), Path(arguments[0]).resolve())
        try:
            print("\n".join(cluster.clean()))
        except RefusedError as refusal:
            print(refusal, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
