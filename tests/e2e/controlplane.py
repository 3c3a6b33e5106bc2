"""A real Kubernetes control plane on loopback, for as long as a ``with`` block lasts.

etcd, kube-apiserver, kube-controller-manager and any number of kube-schedulers run as processes of their own, on free
ports, with TLS, RBAC and service account tokens as in a cluster. Everything they write (data, certificates, kubeconfig
files, logs) is under one folder. The binaries come from ``KUBEBUILDER_ASSETS`` when that is set (the convention of
envtest), otherwise from ``make -C tests/controlplane``.

As a command it is a place to try things: ``python -m tests.e2e.controlplane up`` prints a kubeconfig and stays up
until Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn, Self

import yaml

from tests.e2e.components import (
    BUILT,
    Component,
    ComponentError,
    NotBuiltError,
    free_port,
    offered,
    release,
)
from tests.e2e.credentials import Credentials
from tests.e2e.plane import Plane, gate_flags

LOOPBACK = "127.0.0.1"
SERVICE = "10.96.0.1"
"""The address of the Service `kubernetes`: the first of those for Services."""
KWOK = BUILT.parent / "kwok"
KWOK_STAGES = BUILT.parents[1] / "kwok" / "stages.yaml"

# Everything of dynamic resource allocation that is beta or newly GA in 1.36, whether it is on by default or not.
DRA_FEATURES: Mapping[str, bool] = {
    "DRAAdminAccess": True,
    "DRAConsumableCapacity": True,
    "DRADeviceBindingConditions": True,
    "DRADeviceTaintRules": True,
    "DRADeviceTaints": True,
    "DRAExtendedResource": True,
    "DRAPartitionableDevices": True,
    "DRAPrioritizedList": True,
    "DRAResourceClaimDeviceStatus": True,
}
# DeviceTaintRule is not in v1 before 1.37.
DRA_RUNTIME_CONFIG = ("resource.k8s.io/v1beta2=true",)
DRA_RUNTIME_CONFIG_135 = (*DRA_RUNTIME_CONFIG, "resource.k8s.io/v1alpha3=true")


class ControlPlane(Plane):
    """The control plane as a context manager.

    `feature_gates` go to every component, `runtime_config` to the API server: by default all of device allocation that
    the release has. Without `node_lifecycle` nodes are schedulable as soon as they are created and stay so without
    heartbeats; with it they need a kubelet's. `audit` writes every write request, in order, to `audit_log`.
    `controllers=False` leaves kube-controller-manager out. With an `address` that pods reach, the API server is there,
    and the Service `kubernetes` leads to it. `egress`: the Unix socket of an HTTP proxy, through which the API server
    connects to pods.
    """

    def __init__(
        self,
        directory: Path,
        *,
        feature_gates: Mapping[str, bool] | None = None,
        runtime_config: Sequence[str] | None = None,
        controllers: bool = True,
        node_lifecycle: bool = False,
        audit: bool = False,
        address: str = LOOPBACK,
        egress: Path | None = None,
    ) -> None:
        super().__init__(directory)
        self.feature_gates = offered(DRA_FEATURES) if feature_gates is None else dict(feature_gates)
        if runtime_config is None:
            runtime_config = DRA_RUNTIME_CONFIG if release() > (1, 35) else DRA_RUNTIME_CONFIG_135
        self.runtime_config = tuple(runtime_config)
        self.controllers = controllers
        self.node_lifecycle = node_lifecycle
        self.audit = audit
        self.address = address
        self.egress = egress
        self.url = f"https://{address}:{free_port()}"

    def __enter__(self) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.credentials = Credentials(self.directory / "pki")
        self.authorities = self.credentials.ca_file
        self._token_key = self.credentials.signing_key()
        certificate, key = self.credentials.client("admin", "admin", "system:masters")
        self._write_kubeconfig(self.admin_kubeconfig, {"client-certificate": str(certificate), "client-key": str(key)})
        try:
            self._start_etcd()
            self._start_apiserver()
            if self.controllers:
                self._start_controllers()
        except BaseException:
            self.stop()
            raise
        return self

    @property
    def audit_log(self) -> Path:
        return self.directory / "logs" / "audit.json"

    def restart_apiserver(self) -> None:
        """Restart the API server at the same address: its caches forget what was before."""
        self.stop_component("kube-apiserver")
        self._start_apiserver()

    def upgrade_apiserver(self, binaries: Path, feature_gates: Mapping[str, bool]) -> None:
        """Go on with the API server of another release, at once; the other components stay."""
        self.components.pop("kube-apiserver").kill()
        self.binaries, self.feature_gates = binaries, dict(feature_gates)
        self._start_apiserver()

    def back_up(self) -> Path:
        """A copy of what etcd stores now. The API server restarts."""
        copy = self.directory / f"backup-{time.monotonic_ns()}"
        self._exchange(self.directory / "etcd", copy)
        return copy

    def restore(self, backup: Path) -> None:
        """Set etcd back to the copy. The API server restarts."""
        self._exchange(backup, self.directory / "etcd")

    def _exchange(self, source: Path, target: Path) -> None:
        for name in ("kube-apiserver", "etcd"):
            self.stop_component(name)
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)
        self._start_etcd()
        self._start_apiserver()

    def start_kwok(self) -> Component:
        """Start KWOK (``make -C tests/controlplane kwok``): all nodes are ready and all pods bound to them run."""
        port = free_port()
        return self.start_component(
            "kwok",
            KWOK,
            f"http://127.0.0.1:{port}/healthz",
            f"--config={KWOK_STAGES}",
            f"--kubeconfig={self.admin_kubeconfig}",
            "--manage-all-nodes=true",
            "--node-lease-duration-seconds=40",
            f"--server-address=127.0.0.1:{port}",
        )

    def user_kubeconfig(self, user: str, group: str | None = None) -> Path:
        """A kubeconfig of a user by certificate: what a person, or a component, logs in with."""
        certificate, key = self.credentials.client(user.replace(":", "-"), user, group)
        file = self.directory / f"{user.replace(':', '-')}.kubeconfig"
        return self._write_kubeconfig(file, {"client-certificate": str(certificate), "client-key": str(key)})

    def scheduler_kubeconfig(self) -> Path:
        return self._component_kubeconfig("kube-scheduler", "system:kube-scheduler")

    def _start_etcd(self) -> None:
        client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        self.etcd_url = client
        self.start_component(
            "etcd",
            "etcd",
            f"{client}/readyz",
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",  # the data does not outlive the tests
            "--log-level=warn",
        )

    def _start_apiserver(self) -> None:
        names = () if self.address == LOOPBACK else (self.address, SERVICE, "kubernetes.default.svc")
        serving, serving_key = self.credentials.serving("kube-apiserver", *names)
        calling, calling_key = self.credentials.client("kubelet-client", "kube-apiserver", "system:masters")
        flags = [
            f"--etcd-servers={self.etcd_url}",
            f"--bind-address={self.address}",
            f"--secure-port={self.url.rpartition(':')[2]}",
            f"--tls-cert-file={serving}",
            f"--tls-private-key-file={serving_key}",
            f"--client-ca-file={self.credentials.ca_file}",
            f"--kubelet-client-certificate={calling}",
            f"--kubelet-client-key={calling_key}",
            "--kubelet-preferred-address-types=InternalIP",  # nothing here resolves names of nodes
            "--authorization-mode=Node,RBAC",
            f"--service-account-issuer={self.url}",
            f"--service-account-key-file={self._token_key}",
            f"--service-account-signing-key-file={self._token_key}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--allow-privileged=true",
            "--profiling=false",
            *gate_flags(self.feature_gates),
        ]
        if self.runtime_config:
            flags.append(f"--runtime-config={','.join(self.runtime_config)}")
        if self.address == LOOPBACK:
            flags.append("--endpoint-reconciler-type=none")  # a loopback address cannot be an endpoint
        if not self.node_lifecycle:
            # Nobody would take the not-ready taint away from a new node again.
            flags.append("--disable-admission-plugins=TaintNodesByCondition")
        if self.audit:
            flags += self._audit_flags()
        if self.egress:
            flags.append(f"--egress-selector-config-file={self._egress_file()}")
        self.start_component("kube-apiserver", "kube-apiserver", f"{self.url}/readyz", *flags)

    def _audit_flags(self) -> list[str]:
        rules = [{"level": "RequestResponse", "verbs": ["create", "update", "patch", "delete"]}, {"level": "None"}]
        policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": rules}
        file = self.directory / "audit-policy.yaml"
        file.write_text(yaml.safe_dump(policy))
        return [f"--audit-policy-file={file}", f"--audit-log-path={self.audit_log}", "--audit-log-mode=blocking-strict"]

    def _egress_file(self) -> Path:
        transport = {"uds": {"udsName": str(self.egress)}}
        connection = {"proxyProtocol": "HTTPConnect", "transport": transport}
        selections = [{"name": "cluster", "connection": connection}]
        kind = {"apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration"}
        file = self.directory / "egress.yaml"
        file.write_text(yaml.safe_dump({**kind, "egressSelections": selections}))
        return file

    def _start_controllers(self) -> None:
        port = free_port()
        # With credentials per controller they act under the roles that the API server ships for each.
        kubeconfig = self._component_kubeconfig("kube-controller-manager", "system:kube-controller-manager")
        without = "" if self.node_lifecycle else ",-node-lifecycle-controller"
        self.start_component(
            "kube-controller-manager",
            "kube-controller-manager",
            f"https://127.0.0.1:{port}/healthz",
            f"--kubeconfig={kubeconfig}",
            f"--controllers=*{without}",
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={self._token_key}",
            f"--root-ca-file={self.credentials.ca_file}",
            "--leader-elect=false",
            # The default (20 requests a second) is for clusters where claims end one by one, not hundreds a minute.
            "--kube-api-qps=200",
            "--kube-api-burst=400",
            *self._serving_flags("kube-controller-manager", port),
            *gate_flags(self.feature_gates),
        )
        # Before its namespace has an account, a pod is refused.
        self.kubectl("wait", "--for=create", "--timeout=90s", "--namespace=default", "serviceaccount/default")

    def _component_kubeconfig(self, name: str, user: str) -> Path:
        file = self.directory / f"{name}.kubeconfig"
        if not file.exists():
            certificate, key = self.credentials.client(name, user, user)
            self._write_kubeconfig(file, {"client-certificate": str(certificate), "client-key": str(key)})
        return file


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.e2e.controlplane", description="A control plane on loopback."
    )
    up = parser.add_subparsers(required=True).add_parser("up", help="start it, print the kubeconfig, stay up")
    up.add_argument("--dir", type=Path, help="where everything goes (a temporary folder, removed at the end)")
    up.add_argument("--scheduler", type=Path, action="append", default=[], help="start one with this configuration")
    up.add_argument("--stock-scheduler", action="store_true", help="start kube-scheduler as it is shipped")
    up.add_argument("--no-controllers", action="store_true", help="without kube-controller-manager")
    up.add_argument("--node-lifecycle", action="store_true", help="nodes need heartbeats")
    up.add_argument("--feature-gates", default="", help="Name=true,... on top of all gates of DRA but alpha ones")
    up.add_argument("--runtime-config", help="of the API server (default: all beta versions of resource.k8s.io)")
    up.add_argument("--audit", action="store_true", help="log every write to logs/audit.json")
    return parser.parse_args(arguments)


def _up(options: argparse.Namespace, directory: Path) -> NoReturn:
    changed = dict(pair.split("=") for pair in options.feature_gates.split(",") if pair)
    plane = ControlPlane(
        directory,
        feature_gates=offered(DRA_FEATURES) | {name: value.lower() == "true" for name, value in changed.items()},
        runtime_config=None if options.runtime_config is None else options.runtime_config.split(","),
        controllers=not options.no_controllers,
        node_lifecycle=options.node_lifecycle,
        audit=options.audit,
    )
    started = time.monotonic()
    with plane:
        if options.stock_scheduler:
            plane.start_scheduler()
        for file in options.scheduler:
            plane.start_scheduler(file.stem, file)
        print(f"up in {time.monotonic() - started:.1f} s: {json.dumps(sorted(plane.components))}")
        print(f"export KUBECONFIG={plane.admin_kubeconfig}")
        print(f"kubectl: {plane.binaries / 'kubectl'}", flush=True)
        while True:
            signal.pause()


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status."""
    options = _parse(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # both end the same way, cleanly
    try:
        if options.dir:
            _up(options, options.dir)
        else:
            with tempfile.TemporaryDirectory(prefix="controlplane-") as directory:
                _up(options, Path(directory))
    except KeyboardInterrupt:
        return 0
    except (NotBuiltError, ComponentError) as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
