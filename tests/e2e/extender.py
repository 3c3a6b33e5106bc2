"""The service as a process, with the settings of the shipped Deployment: only addresses and paths are rewritten."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from dra_extender.service.logs import UNEXPECTED
from tests.e2e.components import free_port
from tests.e2e.credentials import Credentials
from tests.e2e.plane import Plane
from tests.support.patience import LONGEST

ROOT = Path(__file__).parents[2]
DEPLOYMENT = ROOT / "manifests" / "extender" / "deployment.yaml"
SCHEDULER_GATES = {"SchedulerPopFromBackoffQ": False}
"""What the shipped configurations of kube-scheduler have to be run with."""


def shipped_environment() -> dict[str, str]:
    """The variables that the Deployment sets, except values that come from the pod."""
    containers = yaml.safe_load(DEPLOYMENT.read_text())["spec"]["template"]["spec"]["containers"]
    return {entry["name"]: entry["value"] for entry in containers[0]["env"] if "value" in entry}


class Extender:
    """One replica. `identity` is what the pod's name would be; it keeps its addresses over restarts."""

    def __init__(
        self,
        directory: Path,
        identity: str,
        credentials: Credentials,
        kubeconfig: Path,
        settings: Mapping[str, str] | None = None,
        *,
        reader: str,
    ) -> None:
        """`reader` is the token that is shown to the insight address."""
        self.identity = identity
        self.log = directory / f"{identity}.log"
        port, insight = free_port(), free_port()
        self.url = f"https://127.0.0.1:{port}"
        self.insight = f"https://127.0.0.1:{insight}"
        self._reader = reader
        self._trust = credentials.trust()
        certificate, key = credentials.serving(identity)
        self.environment = shipped_environment() | {
            "DRA_EXTENDER_LISTEN": f"127.0.0.1:{port}",
            "DRA_EXTENDER_INSIGHT_LISTEN": f"127.0.0.1:{insight}",
            "DRA_EXTENDER_TLS_CERT": str(certificate),
            "DRA_EXTENDER_TLS_KEY": str(key),
            "DRA_EXTENDER_TLS_CLIENT_CA": str(credentials.ca_file),
            "DRA_EXTENDER_KUBECONFIG": str(kubeconfig),
            "DRA_EXTENDER_NAMESPACE": "dra-system",
            "DRA_EXTENDER_IDENTITY": identity,
            "DRA_EXTENDER_SHUTDOWN_LINGER": "0",  # no endpoints lead here
            **(settings or {}),
        }
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *, wait: bool = True) -> None:
        """Start the process; with `wait` it returns when the verbs are served."""
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "dra_extender.cli", "serve"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env={name: value for name, value in os.environ.items() if name != "KUBECONFIG"} | self.environment,
                start_new_session=True,
            )
        if wait:
            self.until_ready()

    def until_ready(self) -> None:
        """Until it serves the verbs. Raises TimeoutError with the end of the log."""
        deadline = time.monotonic() + LONGEST
        while self.status("/readyz") != 200:
            if time.monotonic() > deadline or self.process is None or self.process.poll() is not None:
                raise TimeoutError(f"{self.identity} is not ready:\n{self.tail()}")
            time.sleep(0.05)

    def stop(self) -> None:
        """As kubelet ends it."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            self.process.wait(LONGEST)
        except subprocess.TimeoutExpired:
            self.kill()
        self.process = None
        if UNEXPECTED in self.log.read_text(errors="replace"):
            raise AssertionError(f"{self.identity} has logged an unexpected error:\n{self.tail(60)}")

    def kill(self) -> None:
        """As a crash ends it."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def pause(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    @property
    def leading(self) -> bool:
        return self.status("/readyz") == 200

    @property
    def is_standby(self) -> bool:
        """Another replica leads."""
        return self.status("/readyz") == 503 and "standby" in str(self.report())

    def status(self, path: str) -> int:
        """The status code of a page of the insight address; 0 when no process listens."""
        try:
            with self.open(path) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def report(self) -> dict[str, Any]:
        """What /readyz says."""
        try:
            with self.open("/readyz") as answer:
                return dict(json.load(answer))
        except urllib.error.HTTPError as error:
            return dict(json.load(error))

    def ask(self, path: str) -> Any:
        """The JSON of a page of the insight address."""
        with self.open(path) as answer:
            return json.load(answer)

    def metrics(self) -> str:
        """The page of all metrics; `metric` of components reads it."""
        with self.open("/metrics") as answer:
            return str(answer.read().decode())

    def open(self, path: str, token: str | None = None) -> Any:
        """The answer to a request for a page of the insight address; a token of "" is not shown. Raises OSError."""
        shown = self._reader if token is None else token
        headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {shown}"} if shown else {})
        request = urllib.request.Request(self.insight + path, headers=headers)
        return urllib.request.urlopen(request, timeout=LONGEST, context=self._trust)

    def tail(self, lines: int = 20) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def insight_reader(plane: Plane) -> str:
    """The token of an account that may read the insight address by the role in the manifests."""
    plane.kubectl("apply", f"--filename={ROOT / 'manifests' / 'rbac' / 'insight.yaml'}")
    group, name = "rbac.authorization.k8s.io", {"name": "insight-reader"}
    account = {"kind": "ServiceAccount", "name": "insight-reader", "namespace": "dra-system"}
    plane.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": name | {"namespace": "dra-system"}},
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": name,
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "dra-extender-insight-reader"},
            "subjects": [account],
        },
    )
    return plane.kubectl("create", "token", "insight-reader", "--namespace=dra-system", "--duration=24h").strip()


def scheduler_configuration(file: str, url: str, credentials: Credentials) -> dict[str, Any]:
    """A shipped KubeSchedulerConfiguration, for an extender at this URL: paths are rewritten, leases longer."""
    config: dict[str, Any] = yaml.safe_load((ROOT / "scheduler_config" / file).read_text())
    certificate, key = credentials.client("dra-scheduler-client", "dra-scheduler")
    files = {"caFile": str(credentials.ca_file), "certFile": str(certificate), "keyFile": str(key)}
    for extender in config["extenders"]:
        extender["urlPrefix"] = url + "/" + extender["urlPrefix"].rpartition("/")[2]
        extender["tlsConfig"] |= files | {"serverName": "127.0.0.1"}
    # A scheduler that cannot renew its lease in time ends itself, and nothing here would restart it.
    config["leaderElection"] |= {"leaseDuration": "120s", "renewDeadline": "100s"}
    return config


def scheduler_trust(credentials: Credentials) -> ssl.SSLContext:
    """What kube-scheduler shows and believes when it calls the extender."""
    context = credentials.trust()
    certificate, key = credentials.client("dra-scheduler-client", "dra-scheduler")
    context.load_cert_chain(certificate, key)
    return context
