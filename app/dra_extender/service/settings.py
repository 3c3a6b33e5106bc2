"""How the service is configured: one flat list of settings, each documented where it is defined.

Promises: a flag wins over the environment (`DRA_EXTENDER_...`), the environment over the YAML file, the file over the
default; an unknown key, a value of the wrong kind or a combination that cannot work is an error that names the
setting. `dra_extender.service.reference` writes the reference in docs/settings.md.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    YamlConfigSettingsSource,
)

from dra_extender.allocation.plan import STEP_BUDGET
from dra_extender.api.features import FeatureGates
from dra_extender.kube.credentials import ClientSettings
from dra_extender.kube.lease import LeaseSettings
from dra_extender.kube.writer import RequeueClaim
from dra_extender.placement.expected import NOBODY, Expected
from dra_extender.placement.policies import PolicyName
from dra_extender.placement.strategy import Strategy
from dra_extender.scheduling.config import NominateMode, PreemptionMode, SchedulingConfig
from dra_extender.service import workloadfile
from dra_extender.service.addresses import checked_address, reachable, require_peers, require_protection
from dra_extender.service.scoring import ScoringStrategy, block, strategy
from dra_extender.workers.limits import WorkerLimits

WORKER_STEPS = 10
"""A search in a worker may take so many times the steps of one on the event loop."""

PREFIX = "DRA_EXTENDER_"
"""Kubernetes itself sets DRA_EXTENDER_PORT... and DRA_EXTENDER_SERVICE_... in pods: no setting may be called so."""
CONFIG_VARIABLE = PREFIX + "CONFIG"


class SettingsError(Exception):
    """Settings that cannot be used; one line per problem, each naming the setting."""


def _gates(value: str) -> str:
    FeatureGates.parse(value)
    return value


Seconds = Annotated[float, Field(gt=0)]
Address = Annotated[str, AfterValidator(checked_address)]
_DEFAULTS = SchedulingConfig()
_DEFAULT_WORKERS = WorkerLimits()


class Settings(BaseSettings):
    """Everything that can be set for `dra-extender serve`."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True, env_ignore_empty=True)

    _expected: Expected = PrivateAttr(NOBODY)

    listen: Address = Field("127.0.0.1:8888", description="address of the extender verbs; port 0 picks a free one")
    insight_listen: Address = Field(
        "",
        description="separate address for probes, metrics and insight: TLS with insight_authorization and tls_cert, "
        "else plain HTTP; empty: the address of the verbs",
    )
    insight_authorization: bool = Field(
        False,
        description="readers of metrics and insight show a bearer token of a user whom the API server knows and allows "
        "to get the path (nonResourceURLs); probes need none",
    )
    tls_cert: Path | None = Field(None, description="server certificate (PEM); with it the verbs are served over TLS")
    tls_key: Path | None = Field(None, description="key of the server certificate")
    tls_client_ca: Path | None = Field(
        None, description="authorities of client certificates; with it kube-scheduler must show one (mTLS)"
    )
    allowed_clients: str = Field(
        "",
        description="names of the clients that may call the verbs, comma separated: common name, DNS name or URI of "
        "their certificate, exactly; empty: every client of tls_client_ca",
    )
    allow_plain_http: bool = Field(
        False,
        description="serve the verbs without TLS beyond loopback; whoever can call bind can place pods",
    )
    allow_any_client: bool = Field(
        False,
        description="serve the verbs over TLS beyond loopback without tls_client_ca; whoever reaches the address can "
        "place pods, take devices and read which nodes have them",
    )
    max_body: int = Field(8 * 2**20, ge=2**16, description="largest request body in bytes")
    max_connections: int = Field(
        1000,
        ge=10,
        description="connections to one address; of more, idle ones are closed, and 16 beyond it are kept for probes",
    )
    request_timeout: Seconds = Field(10.0, description="seconds within which a client must have sent its whole request")
    keep_alive: int = Field(
        120, ge=1, description="seconds an idle connection is kept; kube-scheduler keeps its own for 90"
    )
    shutdown_grace: Seconds = Field(
        30.0, description="seconds that shutting down may take: calls are answered, running binds finish"
    )
    shutdown_linger: float = Field(
        0.0,
        ge=0,
        description="seconds of these in which new calls are still answered: until a Service sends none here",
    )

    kubeconfig: str = Field(
        "", description="kubeconfig file; empty: $KUBECONFIG, then the pod's service account, then ~/.kube/config"
    )
    context: str = Field("", description="context of the kubeconfig; empty: its current one")
    server: str = Field("", description="URL of the API server; overrides the kubeconfig's")
    api_timeout: Seconds = Field(10.0, description="seconds for one request to the API server")
    watch_gap: Seconds = Field(30.0, description="seconds without a working watch after which the service is not ready")

    namespace: str = Field("dra-system", description="namespace of the lease and the requeue claim")
    identity: str = Field("", description="name of this replica; empty: host name and process id")
    leader_election: bool = Field(False, description="only the replica that holds the lease decides")
    advertise: str = Field(
        "",
        description="address at which other replicas reach the verbs of this one, the pod's IP for example; with it "
        "calls that reach a replica which does not lead are forwarded, and it is ready all the same",
    )
    peer_name: str = Field(
        "",
        description="name in the certificate of every replica, as a server and as a client: they forward calls to each "
        "other with tls_cert, and believe tls_client_ca",
    )
    lease_name: str = Field("dra-extender", description="name of the lease")
    lease_duration: Seconds = Field(15.0, description="seconds after which another replica may take an unrenewed lease")
    renew_deadline: Seconds = Field(10.0, description="seconds without renewal after which the leader stops")
    retry_period: Seconds = Field(2.0, description="seconds between attempts to acquire or renew")
    requeue_claim: str = Field(
        "dra-extender-requeue",
        description="ResourceClaim that the service annotates to make kube-scheduler retry refused pods",
    )

    feature_gates: Annotated[str, AfterValidator(_gates)] = Field(
        "", description="as kube-scheduler's --feature-gates: Name=true,Other=false"
    )
    step_budget: int = Field(
        STEP_BUDGET, ge=100, description="allocation steps per node after which the answer is undecided"
    )
    workers: int = Field(
        _DEFAULT_WORKERS.count,
        ge=1,
        le=64,
        description="worker processes at most, for selectors and searches that are too large for the event loop; they "
        "are started when there is one",
    )
    worker_seconds: Seconds = Field(
        _DEFAULT_WORKERS.seconds,
        description="seconds of CPU time for one selector on one device, or one search on a node; what needs more "
        "is an error of the claim",
    )
    worker_memory: int = Field(
        _DEFAULT_WORKERS.memory // 2**20, ge=192, description="MiB of address space of a worker process"
    )
    worker_claim_seconds: Seconds = Field(
        _DEFAULTS.worker_claim_seconds,
        description="seconds of CPU time of workers for claims with the same content; then they are refused for ten "
        "minutes",
    )
    offered_percent: int = Field(
        _DEFAULTS.offered_percent,
        ge=0,
        le=100,
        description="per cent of the nodes offered to the scheduler when they fit, at least 100 nodes; 0: as many as "
        "kube-scheduler looks for by default, which is faster on thousands of nodes",
    )
    placement: PolicyName = Field(
        "first-fit",
        description="how nodes and devices are chosen where several fit: first-fit, pack, spread or fragmentation "
        "(docs/placement.md); pods and device classes may say otherwise by annotation",
    )
    scoring_strategy: Annotated[ScoringStrategy | None, NoDecode, BeforeValidator(block)] = Field(
        None,
        description="the same in the words of NodeResourcesFit, and what devices of a class count: "
        "{type: Fragmentation, resources: [{deviceClass: gpu, weight: 3}]}",
    )
    placement_workload: Path | None = Field(
        None,
        description="file that says which pods are to be expected (docs/placement.md), for the policy fragmentation: "
        "they count beside those that are seen, or instead of them",
    )
    placement_only_chosen: bool = Field(
        False,
        description="filter offers only the node that the policy chose: kube-scheduler's own scores have no say",
    )
    preemption: PreemptionMode = Field(
        "off",
        description="pods that lack nothing but devices take those of pods with lower priority: on; advise only says "
        "what would be done (docs/preemption.md)",
    )
    nominate: NominateMode = Field(
        "auto",
        description="nominate pods ahead of kube-scheduler's queue for the node they fit on, so that it looks at no "
        "other one: never, always, or auto: on large clusters (docs/nomination.md)",
    )
    nominate_from_nodes: int = Field(
        _DEFAULTS.nominate_from_nodes, ge=1, description="how many nodes make a cluster large for nominate: auto"
    )
    nominate_preferring: bool = Field(
        _DEFAULTS.nominate_preferring,
        description="nominate also pods with preferred affinity or soft topology spread, which have no say then",
    )
    scheduler_names: str = Field(
        "",
        description="schedulers that call this service, comma separated: pods of others are not bound, their claims "
        "not swept; empty: not known",
    )
    advise_only: bool = Field(
        False, description="give advice to schedulers that allocate by themselves, and need no permission to write"
    )
    deallocate: bool = Field(
        True, description="clear unused allocations that stand in a pod's way; needs percentageOfNodesToScore: 100"
    )
    diagnose: bool = Field(
        True, description="say why refused pods wait, and what would help, in an event on the pod (docs/insight.md)"
    )
    bind_timeout: Seconds = Field(
        _DEFAULTS.bind_seconds, description="seconds for a bind; keep below the scheduler's httpTimeout for bind"
    )
    binding_conditions_timeout: Seconds = Field(
        _DEFAULTS.binding_seconds, description="seconds that devices may take to become ready for a pod"
    )
    tentative_ttl: Seconds = Field(
        _DEFAULTS.tentative_seconds,
        description="seconds that filter's plan for a pod counts for other pods",
    )
    requeue_interval: Seconds = Field(
        _DEFAULTS.requeue_seconds, description="minimum seconds between two requeues of refused pods"
    )
    sweep_after: float = Field(
        _DEFAULTS.sweep_seconds, ge=0, description="seconds after which an unused allocation is cleared; 0: never"
    )

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="debug shows every decision, info every bind"
    )
    log_format: Literal["console", "json"] = Field("console", description="lines for people or for machines")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings, env_settings, YamlConfigSettingsSource(settings_cls))

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if bool(self.tls_cert) != bool(self.tls_key):
            raise ValueError("tls_cert and tls_key belong together: set both or none")
        if self.tls_client_ca and not self.tls_cert:
            raise ValueError("tls_client_ca needs tls_cert and tls_key")
        if self.allowed_clients and not self.client_names:
            raise ValueError("allowed_clients names nobody: leave it empty to allow every client of tls_client_ca")
        if self.client_names and not self.tls_client_ca:
            raise ValueError("allowed_clients needs tls_client_ca: without it clients show no certificate")
        if self.scoring_strategy is not None and self.placement not in ("first-fit", self.strategy.policy):
            raise ValueError(f"placement {self.placement} and scoring_strategy {self.scoring_strategy.type} differ")
        if self.preemption == "on" and self.advise_only:
            raise ValueError("preemption on needs a service that binds: with advise_only it can be advise or off")
        if self.placement_workload is not None:
            self._expected = workloadfile.read(self.placement_workload)
        require_protection(self)
        require_peers(self)
        if self.shutdown_linger >= self.shutdown_grace:
            raise ValueError("shutdown_grace must exceed shutdown_linger")
        if not self.lease_duration > self.renew_deadline > self.retry_period:
            raise ValueError("lease_duration must exceed renew_deadline, which must exceed retry_period")
        return self

    @property
    def replica(self) -> str:
        """The name of this replica."""
        return self.identity or f"{socket.gethostname()}_{os.getpid()}"

    @property
    def features(self) -> FeatureGates:
        return FeatureGates.parse(self.feature_gates)

    @property
    def client_names(self) -> frozenset[str]:
        """Of the clients that may call the verbs, other replicas included; empty = all."""
        allowed = _listed(self.allowed_clients)
        return allowed | _listed(self.peer_name) if allowed else allowed

    @property
    def client(self) -> ClientSettings:
        return ClientSettings(
            server=self.server, kubeconfig=self.kubeconfig, context=self.context, timeout=self.api_timeout
        )

    def lease(self, port: int) -> LeaseSettings:
        """`port`: at which the verbs are served."""
        scheme = "https" if self.tls_cert else "http"
        return LeaseSettings(
            namespace=self.namespace,
            name=self.lease_name,
            identity=self.replica,
            address=f"{scheme}://{reachable(self.advertise, port)}" if self.advertise else "",
            lease_duration=self.lease_duration,
            renew_deadline=self.renew_deadline,
            retry_period=self.retry_period,
        )

    @property
    def requeue_target(self) -> RequeueClaim:
        return RequeueClaim(self.namespace, self.requeue_claim)

    @property
    def strategy(self) -> Strategy:
        """How nodes and devices are chosen."""
        return strategy(self.placement, self.scoring_strategy, only_chosen=self.placement_only_chosen)

    @property
    def expected(self) -> Expected:
        """The pods that `placement_workload` says are to be expected."""
        return self._expected

    @property
    def config(self) -> SchedulingConfig:
        return SchedulingConfig(
            bind_seconds=self.bind_timeout,
            offered_percent=self.offered_percent,
            binding_seconds=self.binding_conditions_timeout,
            tentative_seconds=self.tentative_ttl,
            requeue_seconds=self.requeue_interval,
            sweep_seconds=self.sweep_after,
            deallocate=self.deallocate,
            scheduler_names=_listed(self.scheduler_names),
            preemption=self.preemption,
            nominate=self.nominate,
            nominate_from_nodes=self.nominate_from_nodes,
            nominate_preferring=self.nominate_preferring,
            worker_claim_seconds=self.worker_claim_seconds,
        )

    @property
    def worker_limits(self) -> WorkerLimits:
        return WorkerLimits(
            count=self.workers,
            seconds=self.worker_seconds,
            memory=self.worker_memory * 2**20,
            step_budget=WORKER_STEPS * self.step_budget,
        )

    def yaml(self) -> str:
        """The effective settings, as a file that would give the same ones."""
        text: str = yaml.safe_dump(self.model_dump(mode="json", exclude_none=True), sort_keys=False)
        return text


def load(flags: Mapping[str, Any] | None = None, *, config: Path | None = None) -> Settings:
    """The effective settings. `flags` that are None count as not given. Raises SettingsError."""
    file = config or (Path(os.environ[CONFIG_VARIABLE]) if os.environ.get(CONFIG_VARIABLE) else None)
    if file is not None and not file.is_file():
        raise SettingsError(f"config: {file} does not exist")

    class FromFile(Settings):
        model_config = SettingsConfigDict(yaml_file=file)

    try:
        return FromFile(**{name: value for name, value in (flags or {}).items() if value is not None})
    except ValidationError as problem:
        raise SettingsError("\n".join(_sentence(dict(error)) for error in problem.errors())) from None
    except (yaml.YAMLError, OSError, ValueError, TypeError, AttributeError, RecursionError) as problem:
        # The libraries take the file for a mapping of texts with plain values, and stumble over anything else.
        raise SettingsError(f"config: {file}: {problem}") from None


def _listed(names: str) -> frozenset[str]:
    """What a setting lists, comma separated."""
    return frozenset(filter(None, (name.strip() for name in names.split(","))))


def _sentence(error: Mapping[str, Any]) -> str:
    name = ".".join(str(part) for part in error["loc"])
    text = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        text = "no such setting"
    return f"{name}: {text}" if name else text
