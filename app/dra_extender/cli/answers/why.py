"""The answer of `why`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec
import typer

from dra_extender.api.core import Pod
from dra_extender.api.errors import NotFoundError, RejectedError
from dra_extender.api.resource import ResourceClaimSpec
from dra_extender.cli.answers.answer import ForbiddenError, answered, printed, unanswerable
from dra_extender.cli.answers.service import by_state, diagnosis_by_service, service_state
from dra_extender.cli.cluster import client_of, read, view_of
from dra_extender.cli.output import NO, YES, terminal_width
from dra_extender.cli.questions import Source, WhyOptions
from dra_extender.devices.cluster import Cluster
from dra_extender.insight.manifests import TEMPLATE, Draft, Manifests, draft, manifests, objects, pods_of
from dra_extender.insight.requests import nodes_named, pod_named
from dra_extender.insight.why.diagnosis import diagnosing
from dra_extender.insight.why.report import Diagnosis
from dra_extender.insight.why.text import WIDTH, fully, shortly
from dra_extender.insight.why.waiting import waiting, waiting_text
from dra_extender.kube.resources import RESOURCE_CLAIMS
from dra_extender.scheduling.turns import run_at_once
from dra_extender.scheduling.view import View
from dra_extender.service.addresses import names_in

_KINDS: Final = ("pod", "pods", "po")


async def answer(given: WhyOptions) -> int:
    if given.pod and given.filename:
        raise typer.BadParameter("name a pod, or a file with -f", param_hint="POD")
    listing = not given.pod and not given.filename
    if given.all_namespaces and (given.namespace or not listing):
        raise typer.BadParameter("excludes a pod, -f and -n", param_hint="--all-namespaces")
    schedulers = names_in(given.scheduler_names)
    namespace = given.namespace or given.default_namespace()
    with unanswerable():
        written = await drafts(given, given.filename, namespace) if given.filename else []

    state = await service_state(given, datetime.now(UTC))
    schedulers = schedulers or state.schedulers

    try:
        with unanswerable():
            cluster = await read(given)
    except ForbiddenError as problem:
        if not given.pod or given.node:
            raise
        text, status = _answered(given, [await diagnosis_by_service(given, key_of(given.pod, namespace), problem)])
        typer.echo(text)
        return status
    view = view_of(cluster, schedulers)
    with unanswerable():
        names = nodes_named(cluster.nodes, given.node) if given.node else None
        if listing:
            text, status = _listed(given, view, namespace, names)
            status = NO if state.stopped else status
        else:
            pods = written or [Draft(known_pod(cluster, given.pod or "", namespace), ())]
            made = [(pod, run_at_once(diagnosing(view, pod, names, claims))) for pod, claims in pods]
            text, status = _answered(given, [by_state(view, pod, found, state) for pod, found in made])
    return printed(text, status, cluster, state.stopped)


def _listed(given: WhyOptions, view: View, namespace: str, names: Sequence[str] | None) -> tuple[str, int]:
    """Text and exit status."""
    within, width = "" if given.all_namespaces else namespace, terminal_width() or WIDTH
    groups = run_at_once(waiting(view, within, names))
    text = answered(groups, given.output, lambda: waiting_text(groups, within, width, everything=given.everything))
    return text, YES if all(group.state == "fits" for group in groups) else NO


def _answered(given: WhyOptions, found: Sequence[Diagnosis]) -> tuple[str, int]:
    """Text and exit status."""
    told, width = fully if given.everything else shortly, terminal_width() or WIDTH
    report = found[0] if len(found) == 1 else found
    text = answered(report, given.output, lambda: "\n".join(told(each, width) for each in found))
    return text, NO if any(each.state == "refused" for each in found) else YES


def known_pod(cluster: Cluster, given: str, namespace: str) -> Pod:
    """The pod that is named as NAME, pod/NAME or NAMESPACE/NAME. Raises NotFoundError."""
    remedy = "name it NAME with -n NAMESPACE, or NAMESPACE/NAME"
    return pod_named(cluster.pods, key_of(given, namespace), remedy=remedy)


def key_of(given: str, namespace: str) -> str:
    """NAMESPACE/NAME of the pod that is named as NAME, pod/NAME or NAMESPACE/NAME."""
    first, slash, rest = given.partition("/")
    where = first if slash and first not in _KINDS else namespace
    return f"{where}/{rest if slash else first}"


async def drafts(source: Source, file: str, namespace: str) -> list[Draft]:
    """The pods of a file, or of standard input for "-". Templates that the file lacks are read from the cluster. Raises
    OSError, DecodeError, ApiError, CredentialsError and ValueError.
    """
    found = pods_of(file, objects(file))
    stored = await _stored_templates(source, found, namespace)
    return [
        draft(pod, found.claims, {**stored.get(pod.metadata.namespace or namespace, {}), **found.templates}, namespace)
        for pod in found.pods
    ]


async def _stored_templates(
    source: Source, found: Manifests, namespace: str
) -> dict[str, dict[str, ResourceClaimSpec]]:
    """By namespace and name, the templates that pods name and the file lacks. Left out are templates that do not exist,
    and those that the user may not read; a snapshot file has no templates.
    """
    wanted = {
        (pod.metadata.namespace or namespace, entry.resource_claim_template_name)
        for pod in found.pods
        for entry in pod.spec.resource_claims
        if entry.resource_claim_template_name and entry.resource_claim_template_name not in found.templates
    }
    templates: dict[str, dict[str, ResourceClaimSpec]] = {}
    if source.from_file or not wanted:
        return templates
    async with client_of(source) as client:
        kind = msgspec.structs.replace(RESOURCE_CLAIMS, plural="resourceclaimtemplates")
        for where, name in sorted(wanted):
            try:
                document = msgspec.json.decode(await client.get(kind.path(where, name)))
            except (NotFoundError, RejectedError):
                continue
            templates.setdefault(where, {}).update(manifests([{**document, "kind": TEMPLATE}]).templates)
    return templates
