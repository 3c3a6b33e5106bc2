"""The cluster that a command looks at: everything that decisions are made of, read once.

Promises: what `serve` would know at this moment, in the same `Cluster`, so that an answer given here is the one the
service would give. Nothing is written.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from app.allocation.decisions import Decisions
from app.api.features import FeatureGates
from app.api.policy import PodDisruptionBudget
from app.api.resource import ResourceSlice
from app.devices.cluster import Cluster
from app.kube.client import KubeClient
from app.kube.credentials import ClientSettings
from app.kube.discovery import Served, discover
from app.kube.mirror import Callbacks, Mirror
from app.kube.pages import list_pages
from app.kube.resources import BUDGETS, PODS, Resource, followed, resource_slices
from app.kube.snapshot import list_all
from app.kube.watches import UNFINISHED_PODS
from app.placement.placement import Placement
from app.placement.policies import PolicyName
from app.placement.strategy import Strategy
from app.scheduling.claims import Refusal, find
from app.scheduling.extender import SystemClock
from app.scheduling.limits import Limits
from app.scheduling.pods import Pods
from app.scheduling.resourcenames import ResourceNames
from app.scheduling.view import View
from app.version import VERSION

T = TypeVar("T")


class Snapshot(msgspec.Struct, frozen=True):
    """What a service knows that has just read the cluster. Objects that cannot be read are in `cluster.problems`."""

    cluster: Cluster
    pods: Pods
    budgets: tuple[PodDisruptionBudget, ...] = ()

    def view(self, policy: PolicyName = "first-fit", schedulers: frozenset[str] = frozenset()) -> View:
        """For questions, on the running event loop: nobody binds, nobody clears. `policy`: that of a service which has
        seen the pods that run, and no others. `schedulers`: those that call the service; none: not known.
        """
        clock, limits = SystemClock(), Limits(scheduler_names=schedulers)
        return View(
            cluster=self.cluster,
            decisions=Decisions(self.cluster, share_ids=lambda: str(uuid.uuid4())),
            pods=self.pods,
            clock=clock,
            limits=limits,
            resources=ResourceNames(self.cluster.classes, clock, limits),
            placement=self._placement(policy),
        )

    def _placement(self, policy: PolicyName) -> Placement:
        placement = Placement(self.cluster, Strategy(policy=policy))
        for pod in self.pods:
            placement.put(pod)
            claims = find(pod, self.cluster.ledger.get, self.cluster.features) if pod.spec.node_name else ()
            if claims and not isinstance(claims, Refusal):
                placement.learn(pod, claims)
        return placement


async def read_cluster(kubeconfig: str, context: str, features: FeatureGates, *, evictions: bool = False) -> Snapshot:
    """Read everything. `evictions`: also what says who may be evicted. Raises ApiError when the API
    server gives no answer, CredentialsError without its address.
    """

    async def read(client: KubeClient, served: Served) -> Snapshot:
        cluster, pods = Cluster(features), Pods()
        for kind in followed(served):
            await _read_kind(client, kind, cluster, pods)
        budgets, problems = await list_all(client, BUDGETS) if evictions else ([], [])
        if problems:
            raise problems[0]
        return Snapshot(cluster, pods, tuple(budgets))

    return await _ask(kubeconfig, context, read)


async def _read_kind(client: KubeClient, kind: Resource[Any], cluster: Cluster, pods: Pods) -> None:
    """All objects of the kind; those that cannot be read count for what the service makes of them."""
    are_pods = kind.plural == PODS.plural
    mirror = Mirror(
        kind,
        Callbacks(
            pods.apply if are_pods else cluster.apply,
            pods.remove if are_pods else cluster.remove,
            lambda name, problem: cluster.poison(kind.kind, name, problem),
            on_salvaged=lambda name, problem, salvaged: cluster.poison(kind.kind, name, problem, salvaged),
        ),
    )
    async for page in list_pages(client, kind, UNFINISHED_PODS if are_pods else {}):
        mirror.listed(page.items or [])
        mirror.report()


async def list_slices(kubeconfig: str, context: str) -> list[ResourceSlice]:
    """The published slices. Raises DecodeError for the first one that cannot be understood, and as `read_cluster`."""

    async def read(client: KubeClient, served: Served) -> list[ResourceSlice]:
        slices, problems = await list_all(client, resource_slices(served.version))
        if problems:
            raise problems[0]
        return slices

    return await _ask(kubeconfig, context, read)


async def _ask(kubeconfig: str, context: str, read: Callable[[KubeClient, Served], Awaitable[T]]) -> T:
    settings = ClientSettings(kubeconfig=kubeconfig, context=context, user_agent=f"kubectl-dra/{VERSION}")
    async with await KubeClient.connect(settings) as client:
        return await read(client, await discover(client))
