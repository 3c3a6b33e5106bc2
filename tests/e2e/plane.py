"""What the tests need of a control plane, wherever it comes from.

`Plane` is the part that is the same for all of them: kubectl, service accounts, and kube-schedulers as processes of
their own on this machine. `ControlPlane` (controlplane.py) starts everything else itself, `ExistingCluster`
(existing.py) finds it there.
"""

from __future__ import annotations

import copy
import json
import ssl
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from tests.e2e.components import BINARIES, Component, assets, features_that_are_on, free_port
from tests.e2e.credentials import Credentials


class KubectlError(RuntimeError):
    """kubectl refused, or was refused; the text is what it said."""


class Plane(ABC):
    """A control plane as a context manager. Everything it writes is under `directory`.

    `url`: the API server; `credentials` issue what is served and shown outside it (extender, proxies,
    schedulers). `components` are the processes that were started, by name. `others` are the names of nodes that are
    not the tests' own: nothing of the tests may land there.
    """

    NEEDED: Sequence[str] = BINARIES
    url: str
    credentials: Credentials
    authorities: Path
    """The certificate authorities that a client has to trust: the API server's and our own."""
    feature_gates: dict[str, bool]
    node_lifecycle: bool
    """Whether nodes are taken for dead without a kubelet's signs of life."""
    stock_scheduler = "default-scheduler"
    """What a scheduler calls itself here that is run as the cluster's own."""
    others: tuple[str, ...] = ()

    def __init__(self, directory: Path) -> None:
        self.directory = directory.resolve()
        self.binaries = assets(self.NEEDED)
        self.components: dict[str, Component] = {}

    @abstractmethod
    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def admin_kubeconfig(self) -> Path:
        """A kubeconfig that may do anything."""
        return self.directory / "admin.kubeconfig"

    @property
    @abstractmethod
    def audit_log(self) -> Path:
        """The file with every write, in order, if it is kept."""

    @abstractmethod
    def restart_apiserver(self) -> None:
        """Restart the API server at the same address: its caches forget what was before."""

    @abstractmethod
    def user_kubeconfig(self, user: str, group: str | None = None) -> Path:
        """A kubeconfig of a user who has no permissions but those of the group."""

    @abstractmethod
    def scheduler_kubeconfig(self) -> Path:
        """A kubeconfig with the permissions of the cluster's own kube-scheduler."""

    def fitted(self, configuration: Mapping[str, Any]) -> dict[str, Any]:
        """A KubeSchedulerConfiguration as it has to be for this cluster."""
        return copy.deepcopy(dict(configuration))

    @cached_property
    def version(self) -> str:
        """The release, as the API server says: v1.37.2."""
        return str(json.loads(self.kubectl("get", "--raw=/version"))["gitVersion"])

    @cached_property
    def features(self) -> frozenset[str]:
        """The feature gates that are on."""
        return features_that_are_on(self.kubectl("get", "--raw=/metrics"))

    def trust(self) -> ssl.SSLContext:
        """A context that believes what the API server shows."""
        context = ssl.create_default_context(cafile=str(self.authorities))
        # Certificates that Kubernetes makes for itself lack extensions which strict checking demands.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return context

    def stop(self) -> None:
        """Stop everything, the last started first."""
        for component in reversed(self.components.values()):
            component.stop()
        self.components.clear()

    def start_component(self, name: str, binary: str | Path, ready_url: str, *flags: str) -> Component:
        """Start a process; returns when the URL answers, at once without one. Raises ComponentError with its log."""
        if name in self.components:
            raise ValueError(f"{name} runs already")
        logs = self.directory / "logs"
        logs.mkdir(exist_ok=True)
        log = logs / f"{name}.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                [str(self.binaries / binary), *flags],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                start_new_session=True,  # Ctrl-C is for us: they are stopped in order
            )
        component = self.components[name] = Component(name, process, log, ready_url)
        if ready_url:
            component.wait_ready(self.credentials.trust())
        return component

    def stop_component(self, name: str) -> None:
        """Stop one component by name: a scheduler's, or ``kube-controller-manager``."""
        self.components.pop(name).stop()

    def metrics(self, scheduler: str) -> str:
        """The page of all metrics of a scheduler; `metric` of components reads it."""
        return self.components[scheduler].metrics(self.credentials.trust())

    def kubectl(self, *arguments: str, stdin: str | None = None, kubeconfig: Path | None = None) -> str:
        """What kubectl prints, run as the administrator unless a kubeconfig is given; raises KubectlError."""
        command = [str(self.binaries / "kubectl"), f"--kubeconfig={kubeconfig or self.admin_kubeconfig}", *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        if done.returncode:
            raise KubectlError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Create or change objects, in the order given."""
        self.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(objects))

    def start_scheduler(
        self,
        name: str = "default-scheduler",
        configuration: Mapping[str, Any] | Path | None = None,
        feature_gates: Mapping[str, bool] | None = None,
        kubeconfig: Path | None = None,
    ) -> Component:
        """Start one more kube-scheduler with a KubeSchedulerConfiguration (empty: the stock one).

        `name`: of the process and its logs; scheduler names are in the profiles. It talks as
        system:kube-scheduler unless a kubeconfig is given; leader election is off unless the configuration turns it on.
        """
        given = yaml.safe_load(configuration.read_text()) if isinstance(configuration, Path) else configuration
        config: dict[str, Any] = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            **(given or {}),
        }
        config = self.fitted(config)
        kubeconfig = kubeconfig or self.scheduler_kubeconfig()
        config["clientConnection"] = {**config.get("clientConnection", {}), "kubeconfig": str(kubeconfig)}
        file = self.directory / f"{name}.yaml"
        file.write_text(yaml.safe_dump(config))
        port = free_port()
        gates = self.feature_gates if feature_gates is None else feature_gates
        return self.start_component(
            name,
            "kube-scheduler",
            f"https://127.0.0.1:{port}/readyz",
            f"--config={file}",
            "--authorization-always-allow-paths=/healthz,/livez,/readyz,/metrics",
            *self._serving_flags("kube-scheduler", port),
            *gate_flags(gates),
        )

    def service_account_kubeconfig(self, namespace: str, name: str, hours: int = 24) -> Path:
        """A kubeconfig with a token of a service account that exists; it may do what its bindings allow."""
        answer = self.kubectl("create", "token", name, f"--namespace={namespace}", f"--duration={hours}h")
        file = self.directory / f"{namespace}.{name}.kubeconfig"
        return self._write_kubeconfig(file, {"token": answer.strip()})

    def _serving_flags(self, name: str, port: int) -> list[str]:
        certificate, key = self.credentials.serving(f"{name}-serving")
        return [
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}",
        ]

    def _write_kubeconfig(self, file: Path, user: Mapping[str, str]) -> Path:
        cluster = {"server": self.url, "certificate-authority": str(self.authorities)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": dict(user)}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "current-context": "test",
        }
        file.touch(mode=0o600)
        file.write_text(yaml.safe_dump(config))
        return file


def gate_flags(gates: Mapping[str, bool]) -> list[str]:
    """The command-line flags for feature gates."""
    if not gates:
        return []
    return ["--feature-gates=" + ",".join(f"{name}={str(on).lower()}" for name, on in sorted(gates.items()))]
