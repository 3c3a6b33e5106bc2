"""What makes Services work on the nodes: kube-proxy, and CoreDNS for their names."""

from __future__ import annotations

import json
from typing import Any, Self

from tests.e2e.components import free_port
from tests.e2e.plane import Plane
from tests.support.node.machine import POD_NETWORK, RUNTIME, remove_service_rules

DNS = "10.96.0.10"
"""The address that containers ask for names."""


class Services:
    """Enter it before pods use Services. `node`: any one; `address`: one of this machine that pods reach."""

    def __init__(self, plane: Plane, node: str, address: str) -> None:
        self._node = node
        self._plane = plane
        self._address = address

    def __enter__(self) -> Self:
        try:
            self._start_proxy()
            self._start_dns()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in ("coredns", "kube-proxy"):
            if name in self._plane.components:
                self._plane.stop_component(name)
        remove_service_rules()

    def _start_proxy(self) -> None:
        health = f"127.0.0.1:{free_port()}"
        config: dict[str, Any] = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "hostnameOverride": self._node,
            "bindAddress": "127.0.0.1",
            "healthzBindAddress": health,
            "metricsBindAddress": f"127.0.0.1:{free_port()}",
            "clientConnection": {"kubeconfig": str(self._plane.admin_kubeconfig)},
            "clusterCIDR": POD_NETWORK,
            "detectLocalMode": "ClusterCIDR",
            "conntrack": {"maxPerCore": 0},
        }
        file = self._plane.directory / "kube-proxy.yaml"
        file.write_text(json.dumps(config))
        self._plane.start_component("kube-proxy", "kube-proxy", f"http://{health}/healthz", f"--config={file}", "--v=2")

    def _start_dns(self) -> None:
        ready = f"127.0.0.1:{free_port()}"
        file = self._plane.directory / "Corefile"
        resolved = f"kubernetes cluster.local {{\n kubeconfig {self._plane.admin_kubeconfig}\n }}"
        file.write_text(f".:53 {{\n bind {self._address}\n errors\n ready {ready}\n {resolved}\n}}\n")
        meta = {"name": "kube-dns", "namespace": "kube-system"}
        ports = [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]
        labels = {"kubernetes.io/service-name": "kube-dns"}
        self._plane.apply(
            {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"clusterIP": DNS, "ports": ports}},
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {**meta, "labels": labels},
                "addressType": "IPv4",
                "ports": ports,
                "endpoints": [{"addresses": [self._address]}],
            },
        )
        self._plane.start_component("coredns", RUNTIME / "coredns", f"http://{ready}/ready", f"-conf={file}")
