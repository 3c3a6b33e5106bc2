"""How the service is configured: one flat list of settings, each documented where it is defined.

Promises: a flag wins over the environment (`DRA_EXTENDER_...`), the environment over the YAML file, the file over the
default; an unknown key, a value of the wrong type or a combination that cannot work is an error that names the
setting. An address that anybody can reach without protection, and replicas that cannot forward calls to each other, are
such combinations. Defaults that scheduling, allocation or the workers define are read from there.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

import yaml
from pydantic import AfterValidator, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, YamlConfigSettingsSource

from dra_extender.allocation.plan import STEP_BUDGET
from dra_extender.api.features import FeatureGates, release_of
from dra_extender.kube.credentials import ClientSettings
from dra_extender.kube.lease import LeaseSettings
from dra_extender.placement.policies import PlacementStrategy, PolicyName
from dra_extender.scheduling.config import EventNames, NominateMode, PreemptionMode, SchedulingConfig
from dra_extender.service.addresses import host_and_port, is_loopback, names_in, valid_address
from dra_extender.workers import WorkerLimits

PREFIX: Final = "DRA_EXTENDER_"
"""No setting may begin with PORT or SERVICE: Kubernetes sets DRA_EXTENDER_PORT... and DRA_EXTENDER_SERVICE_... in pods.
"""
CONFIG_VARIABLE: Final = PREFIX + "CONFIG"
_SCHEDULING: Final = SchedulingConfig()
_WORKERS: Final = WorkerLimits()


class SettingsError(Exception):
    """Settings that cannot be used; one line per problem, each naming the setting."""


def _scheduling(setting: str, description: str, **limits: Any) -> Any:
    """A setting of `SchedulingConfig`, which has its default."""
    return Field(getattr(_SCHEDULING, setting), description=description, **limits)


Seconds = Annotated[float, Field(gt=0)]
Address = Annotated[str, AfterValidator(valid_address)]


class Settings(BaseSettings):
    """Everything that can be set for `dra-extender serve`."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True, env_ignore_empty=True)

    listen: Address = Field("127.0.0.1:8888", description="address of the extender verbs; port 0 picks a free port")
    insight_listen: Address = Field(
        "",
        description="separate address for probes, metrics and insight: TLS with insight_authorization and tls_cert, "
        "otherwise plain HTTP; empty: the address of the verbs",
    )
    insight_authorization: bool = Field(
        False,
        description="metrics and insight need a bearer token of a user that the API server allows to get the path "
        "(nonResourceURLs); probes need no token",
    )
    tls_cert: Path | None = Field(None, description="server certificate (PEM); serves the verbs over TLS")
    tls_key: Path | None = Field(None, description="key of the server certificate")
    tls_client_ca: Path | None = Field(
        None, description="certificate authorities of clients; kube-scheduler must show a certificate (mTLS)"
    )
    allowed_clients: str = Field(
        "",
        description="names of the clients that may call the verbs, comma separated: exact common name, DNS name or URI "
        "of their certificate; empty: every client of tls_client_ca",
    )
    allow_plain_http: bool = Field(
        False, description="serve the verbs without TLS beyond loopback; any client that reaches bind can place pods"
    )
    allow_any_client: bool = Field(
        False,
        description="serve the verbs over TLS beyond loopback without tls_client_ca; any client that reaches the "
        "address can place pods, take devices and read which nodes have them",
    )
    expander_listen: Address = Field("", description="address of the gRPC expander, mutual TLS (docs/autoscaling.md)")
    expander_any_client: bool = Field(False, description="expander_listen also answers clients without a certificate")
    max_body: int = Field(8 * 2**20, ge=2**16, description="largest request body in bytes")
    max_connections: int = Field(
        1000,
        ge=10,
        description="connections to one address; further ones replace idle ones, and 16 more are reserved for probes",
    )
    shutdown_grace: Seconds = Field(30.0, description="seconds for shutting down: calls are answered, binds finish")
    shutdown_linger: float = Field(
        0.0,
        ge=0,
        description="part of shutdown_grace, in seconds, during which new calls are answered: until the Service stops "
        "sending calls here",
    )

    kubeconfig: str = Field(
        "", description="kubeconfig file; empty: $KUBECONFIG, then the pod's service account, then ~/.kube/config"
    )
    context: str = Field("", description="context of the kubeconfig; empty: its current context")
    server: str = Field("", description="URL of the API server; overrides the kubeconfig")
    api_timeout: Seconds = Field(10.0, description="seconds for one request to the API server")
    watch_gap: Seconds = Field(30.0, description="seconds without a working watch after which the service is not ready")

    namespace: str = Field("dra-system", description="namespace of the lease and the requeue claim")
    identity: str = Field("", description="name of this replica; empty: host name and process ID")
    leader_election: bool = Field(False, description="only the replica that holds the lease decides")
    advertise: str = Field(
        "",
        description="address at which other replicas reach the verbs of this one, for example the pod's IP; a replica "
        "that is not the leader then forwards calls to the leader and is ready",
    )
    peer_name: str = Field(
        "",
        description="name in the certificate of every replica, as server and as client: replicas call each other with "
        "tls_cert and trust tls_client_ca",
    )
    lease_name: str = Field("dra-extender", description="name of the lease")
    lease_duration: Seconds = Field(15.0, description="seconds after which another replica may take an unrenewed lease")
    renew_deadline: Seconds = Field(10.0, description="seconds without renewal after which the leader stops")
    retry_period: Seconds = Field(2.0, description="seconds between attempts to acquire or renew")
    requeue_claim: str = Field(
        "dra-extender-requeue",
        description="ResourceClaim that the service annotates to make kube-scheduler retry refused pods",
    )

    feature_gates: str = Field("", description="as kube-scheduler's --feature-gates: Name=true,Other=false")
    emulated_version: Literal["", "1.36", "1.37"] = Field(
        "",
        description="Kubernetes release to follow, as kube-scheduler's --emulated-version (default: the API server's)",
    )
    ignored_fields: str = Field("", description="unknown fields to ignore, as ResourceSlice.spec.devices.hint")
    step_budget: int = Field(
        STEP_BUDGET,
        ge=100,
        description="steps of the search for devices on one node, after which the result is unknown",
    )
    workers: int = Field(
        _WORKERS.count,
        ge=1,
        le=64,
        description="maximum number of worker processes, for selectors and searches that are too large for the event "
        "loop; they start on demand",
    )
    worker_seconds: Seconds = Field(
        _WORKERS.seconds,
        description="seconds of CPU time for one selector on one device, or one search on one node; exceeding it is an "
        "error of the claim",
    )
    worker_memory: int = Field(_WORKERS.memory // 2**20, ge=192, description="MiB of address space of one worker")
    worker_claim_seconds: Seconds = _scheduling(
        "worker_claim_seconds",
        "seconds of worker CPU time for claims with equal content; then these claims are refused for ten minutes. "
        "Three times as much for the long calls of one namespace; then its calls are short",
    )
    offered_percent: int = _scheduling(
        "offered_percent",
        "percentage of the nodes that filter offers at most, and at least 100 nodes; 0: as many as kube-scheduler "
        "looks for by default, which is faster on thousands of nodes",
        ge=0,
        le=100,
    )
    placement: PolicyName = Field(
        "first-fit",
        description="how to choose among nodes and devices that fit: first-fit, pack, spread or fragmentation "
        "(docs/placement.md); annotations of pods and device classes override it",
    )
    placement_only_chosen: bool = Field(
        False, description="filter offers only the node that the policy chose: other scores have no effect"
    )
    preemption: PreemptionMode = _scheduling(
        "preemption",
        "pods that lack only devices take those of pods with lower priority: off; advise: report what preemption would "
        "do; on (docs/preemption.md)",
    )
    nominate: NominateMode = _scheduling(
        "nominate",
        "nominate pods for a node that fits before kube-scheduler tries them, so it evaluates no other node: never, "
        "always, or auto: on large clusters (docs/nomination.md)",
    )
    nominate_from_nodes: int = _scheduling(
        "nominate_from_nodes", "number of nodes from which a cluster is large for nominate: auto", ge=1
    )
    scheduler_names: str = Field(
        "",
        description="schedulers that call this service, comma separated: pods of other schedulers are not bound, and "
        "their claims are not cleared; empty: unknown",
    )
    mode: Literal["serve", "advisor", "shadow"] = Field(
        "serve",
        description="serve: allocate and bind; advisor: score nodes for schedulers that allocate devices themselves; "
        "shadow: watch other schedulers and report what this service would do (docs/adopt.md). advisor and shadow need "
        "no write permission",
    )
    deallocate: bool = _scheduling(
        "deallocate",
        "clear unused allocations that keep a pod from being scheduled; needs percentageOfNodesToScore: 100",
    )
    diagnose: bool = Field(True, description="events on refused pods: why they wait, what would help (docs/insight.md)")
    provisioning_requests: bool = Field(
        False, description="ask cluster-autoscaler for the nodes that a waiting gang lacks (docs/autoscaling.md)"
    )
    event_names: EventNames = _scheduling(
        "event_names",
        "names of pods and claims in events, and in answers to users of one namespace: own, those of the namespace and "
        "numbers of others; or all",
    )
    bind_timeout: Seconds = _scheduling("bind_timeout", "seconds for a bind, less than the scheduler's httpTimeout")
    binding_conditions_timeout: Seconds = _scheduling(
        "binding_conditions_timeout", "seconds that devices may take to become ready for a pod"
    )
    requeue_interval: Seconds = _scheduling("requeue_interval", "minimum seconds between two requeues of refused pods")
    sweep_after: float = _scheduling("sweep_after", "seconds until an unused allocation is cleared; 0: never", ge=0)

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="debug shows every decision, info every bind"
    )
    log_format: Literal["console", "json"] = Field("console", description="lines for people or for programs")

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
    def _check(self) -> Self:
        """Raises ValueError for settings that cannot be used together."""
        open_to_all = self.expander_listen and not (self.tls_cert and (self.tls_client_ca or self.expander_any_client))
        asks_in_vain = self.provisioning_requests and not (self.diagnose and self.writes)
        for broken, problem in (
            (bool(self.tls_cert) != bool(self.tls_key), "tls_cert and tls_key belong together: set both or none"),
            (self.tls_client_ca and not self.tls_cert, "tls_client_ca needs tls_cert and tls_key"),
            (open_to_all, "expander_listen needs tls_cert, and tls_client_ca or expander_any_client"),
            (
                self.allowed_clients and not names_in(self.allowed_clients),
                "allowed_clients contains no name: leave it empty to allow every client of tls_client_ca",
            ),
            (
                names_in(self.allowed_clients) and not self.tls_client_ca,
                "allowed_clients needs tls_client_ca: without it clients show no certificate",
            ),
            (
                self.preemption == "on" and not self.writes,
                "preemption on needs a service that binds: in modes advisor and shadow it can be advise or off",
            ),
            (asks_in_vain, "provisioning_requests needs diagnose, and a service that binds"),
            (self.shutdown_linger >= self.shutdown_grace, "shutdown_grace must exceed shutdown_linger"),
            (
                not self.lease_duration > self.renew_deadline > self.retry_period,
                "lease_duration must exceed renew_deadline, which must exceed retry_period",
            ),
            (
                self.advertise and not self.leader_election,
                "advertise needs leader_election: without it there is no leader to forward calls to",
            ),
            (
                self.advertise and self.tls_cert and not (self.tls_client_ca and self.peer_name),
                "advertise with tls_cert needs tls_client_ca and peer_name: replicas check each other's certificates",
            ),
        ):
            if broken:
                raise ValueError(problem)
        self._check_exposure()
        FeatureGates.parse(self.feature_gates, self.emulated_version or None)
        return self

    def _check_exposure(self) -> None:
        """Raises ValueError when other machines could call the verbs or read tokens, and no setting allows that."""
        insight = self.insight_authorization and self.insight_listen
        if insight and not is_loopback(insight) and not self.tls_cert and not self.allow_plain_http:
            raise ValueError(
                f"insight_listen {insight} is reachable from outside and has no TLS for the tokens of "
                "insight_authorization: set tls_cert and tls_key, or allow_plain_http if something else protects it"
            )
        if is_loopback(self.listen):
            return
        if not self.tls_cert and not self.allow_plain_http:
            raise ValueError(
                f"listen {self.listen} is reachable from outside and has no TLS: set tls_cert, tls_key and "
                "tls_client_ca, or allow_plain_http if something else protects it"
            )
        if self.tls_cert and not self.tls_client_ca and not self.allow_any_client:
            raise ValueError(
                f"listen {self.listen} is reachable from outside and asks clients for no certificate: set "
                "tls_client_ca, or allow_any_client if something else protects it"
            )

    @property
    def writes(self) -> bool:
        """True when the service allocates and binds."""
        return self.mode == "serve"

    @property
    def replica(self) -> str:
        return self.identity or f"{socket.gethostname()}_{os.getpid()}"

    def features(self, version: str) -> FeatureGates:
        """`version`: of the API server. Raises ValueError for a gate that its release, or `emulated_version`, does not
        have. A gate that the API server's release has removed is accepted: kube-scheduler may be older.
        """
        release = self.emulated_version or release_of(version)
        return FeatureGates.parse(self.feature_gates, release, removed=not self.emulated_version)

    @property
    def client_names(self) -> frozenset[str]:
        """The clients that may call the verbs, including other replicas; empty: all."""
        allowed = names_in(self.allowed_clients)
        return allowed | names_in(self.peer_name) if allowed else allowed

    @property
    def client(self) -> ClientSettings:
        return ClientSettings(
            server=self.server, kubeconfig=self.kubeconfig, context=self.context, timeout=self.api_timeout
        )

    def lease(self, port: int) -> LeaseSettings:
        """`port`: of the verbs."""
        scheme = "https" if self.tls_cert else "http"
        return LeaseSettings(
            namespace=self.namespace,
            name=self.lease_name,
            identity=self.replica,
            address=f"{scheme}://{host_and_port(self.advertise, port)}" if self.advertise else "",
            lease_duration=self.lease_duration,
            renew_deadline=self.renew_deadline,
            retry_period=self.retry_period,
        )

    @property
    def strategy(self) -> PlacementStrategy:
        """How to choose nodes and devices."""
        return PlacementStrategy(policy=self.placement, only_chosen=self.placement_only_chosen)

    @property
    def config(self) -> SchedulingConfig:
        values = {
            name: getattr(self, name) for name in SchedulingConfig.__struct_fields__ if name in type(self).model_fields
        }
        return SchedulingConfig(**values | {"scheduler_names": names_in(self.scheduler_names)})

    @property
    def worker_limits(self) -> WorkerLimits:
        return WorkerLimits(
            count=self.workers,
            seconds=self.worker_seconds,
            memory=self.worker_memory * 2**20,
            step_budget=_WORKERS.step_budget * self.step_budget // STEP_BUDGET,
        )

    def yaml(self) -> str:
        """The effective settings as a file that gives the same settings."""
        text: str = yaml.safe_dump(self.model_dump(mode="json", exclude_none=True), sort_keys=False)
        return text


def load(flags: Mapping[str, Any] | None = None, *, config: Path | None = None) -> Settings:
    """The effective settings. `flags` with the value None count as not given. Raises SettingsError."""
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
        # The libraries expect a mapping of texts to plain values, and fail in these ways on anything else.
        raise SettingsError(f"config: {file}: {problem}") from None


def _sentence(error: Mapping[str, Any]) -> str:
    name = ".".join(str(part) for part in error["loc"])
    text = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        text = "no such setting"
    return f"{name}: {text}" if name else text
