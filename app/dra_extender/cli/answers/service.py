"""The service: whether it decides, and its answer for users who may not list the cluster.

Promises: what cannot be read is not guessed. The request for an answer goes through the API server to the Service of
dra-extender, which answers users who may get the pod. An error says which permission is missing, and what to ask an
administrator for.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final, TypeVar
from urllib.parse import quote

import msgspec
import typer
import yaml
from msgspec.structs import replace

from dra_extender.api.core import Pod
from dra_extender.api.errors import FORBIDDEN, ApiError, NotFoundError, NotServedError, RejectedError
from dra_extender.cli.answers.answer import answered, unanswerable
from dra_extender.cli.cluster import client_of
from dra_extender.cli.output import NO, YES, UnanswerableError, table, terminal_width
from dra_extender.cli.questions import ShadowOptions, WhyOptions
from dra_extender.insight.shadow import ShadowReport
from dra_extender.insight.why.report import Diagnosis
from dra_extender.insight.why.statements import PodRefused
from dra_extender.insight.why.wording import text_of
from dra_extender.kube.client import KubeClient
from dra_extender.kube.lease import GROUP_VERSION, Lease
from dra_extender.plaintext import wrapped
from dra_extender.scheduling.view import View

T = TypeVar("T")
CONFIG: Final = "dra-scheduler-config"  # kustomize adds a hash
STALE_SECONDS: Final = 120.0
"""A lease that was renewed earlier has no replica. It leaves room for clocks that differ."""

_NO_TOKEN: Final = "your kubeconfig has no token, and the service does not see client certificates: use a token"
_BY_EVENT: Final = "`kubectl describe pod` shows the short answer"


class ServiceState(msgspec.Struct, frozen=True):
    """`schedulers`: they call the service by its shipped configuration; empty if unknown. `checked`: the lease
    was read. `stopped`: why no replica decides; empty if one does, or if that is unknown.
    """

    schedulers: frozenset[str] = frozenset()
    checked: bool = False
    stopped: str = ""


class _Profile(msgspec.Struct, frozen=True, rename="camel"):
    scheduler_name: str = "default-scheduler"


class _Configuration(msgspec.Struct, frozen=True):
    profiles: tuple[_Profile, ...] = ()
    extenders: tuple[Any, ...] = ()


async def service_state(given: WhyOptions, now: datetime) -> ServiceState:
    """What lease and ConfigMap say; nothing for a file. Raises UnanswerableError."""
    if given.from_file:
        return ServiceState()
    namespace, _, name = given.service.partition("/")
    with unanswerable():
        async with client_of(given) as client:
            lease = await _found(client, f"/apis/{GROUP_VERSION}/namespaces/{namespace}/leases/{name}", Lease)
            configs = await _found(client, f"/api/v1/namespaces/{namespace}/configmaps", dict[str, Any])
    named = [each for each in (configs or {}).get("items", ()) if each["metadata"]["name"].startswith(CONFIG)]
    schedulers = frozenset(name for each in named for name in _callers(each.get("data", {}).get("config.yaml", "")))
    renewed = lease.spec.renew_time if lease is not None else None
    if lease is None or not renewed:
        return ServiceState(schedulers)
    stale = (now - datetime.fromisoformat(renewed)).total_seconds() > STALE_SECONDS
    problem = f"last renewed at {renewed}" if stale else "not held by a replica" if not lease.holder else ""
    stopped = f"no replica of dra-extender decides: lease {given.service} is {problem}"
    return ServiceState(schedulers, checked=True, stopped=stopped if problem else "")


async def _found(client: KubeClient, path: str, kind: type[T]) -> T | None:
    """None for what does not exist or may not be read. Raises ApiError and ValueError."""
    try:
        return msgspec.json.decode(await client.get(path), type=kind)
    except (NotFoundError, NotServedError, RejectedError):
        return None


def _callers(text: str) -> Iterator[str]:
    """The schedulers of a KubeSchedulerConfiguration with extenders."""
    try:
        config = msgspec.convert(yaml.safe_load(text), _Configuration)
    except (yaml.YAMLError, msgspec.ValidationError):
        return
    if config.extenders:
        yield from (profile.scheduler_name for profile in config.profiles)


def by_state(view: View, pod: Pod, found: Diagnosis, state: ServiceState) -> Diagnosis:
    """The diagnosis, as the state of the service corrects it. Nothing fits with devices while no replica decides."""
    known = pod.spec.scheduler_name in view.config.scheduler_names
    if found.state not in ("fits", "refused") or not known or not view.uses_devices(pod):
        return found
    if not state.stopped:
        unknown = () if state.checked else ("whether dra-extender runs",)
        return replace(found, unchecked=(*found.unchecked, *unknown))
    told = (PodRefused("service", state.stopped), *found.statements)
    return replace(found, state="refused", rule="service", fits=0, examples=(), statements=told, summary=text_of(told))


def _path(service: str, question: str) -> str:
    """Through the API server. `service`: namespace/name."""
    namespace, _, name = service.partition("/")
    return f"/api/v1/namespaces/{quote(namespace)}/services/https:{quote(name)}:insight/proxy/insight/{question}"


async def answer_shadow(given: ShadowOptions) -> int:
    """Ask the service at this URL, or through the API server."""
    url = "://" in given.service
    with unanswerable():
        if given.from_file:
            raise ValueError("the record is in the service, not in a file: omit --from")
        async with client_of(replace(given, server=given.service) if url else given, forwards_token=not url) as client:
            if not url and await client.credentials.authorization() is None:
                raise ValueError(_NO_TOKEN)
            path = "/insight/shadow" if url else _path(given.service, "shadow")
            found = msgspec.json.decode(await client.get(path), type=ShadowReport)
    width = terminal_width()
    rows = table(("PODS", "RULE", "MEANING"), list(found.rows()), width=width, numbers=frozenset((0,)))
    typer.echo(answered(found, given.output, lambda: "\n".join((*rows, wrapped(found.lines(), width)))))
    return NO if any(each.pods for each in found.rules if each.rule != "same") else YES


async def diagnosis_by_service(given: WhyOptions, pod: str, forbidden: object) -> Diagnosis:
    """`pod`: namespace/name. `forbidden`: why the command cannot answer itself. Raises UnanswerableError."""
    namespace, _, name = given.service.partition("/")
    path = _path(given.service, "diagnosis")
    with unanswerable():
        async with client_of(given, forwards_token=True) as client:
            problem = _NO_TOKEN
            if await client.credentials.authorization() is not None:
                try:
                    return msgspec.json.decode(await client.get(path, {"pod": pod}), type=Diagnosis)
                except ApiError as refusal:
                    problem = str(refusal)
                    if refusal.status == FORBIDDEN and refusal.reason:  # the service gives no reason
                        role = f"a RoleBinding to role {name}-why in namespace {namespace}"
                        problem = f"{refusal}; ask an administrator for {role}"
    raise UnanswerableError(f"{forbidden}; the service {given.service} does not answer instead: {problem}. {_BY_EVENT}")
