"""The answer of `why`: read the cluster, diagnose, print. Loads the client and the compiler: import it when needed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

import msgspec
import typer
import yaml

from app.api.core import Pod
from app.api.decoding import DecodeError
from app.api.errors import ApiError
from app.api.resource import ResourceClaim
from app.cli.cluster import Snapshot
from app.cli.complaint import complain, note
from app.cli.drafts import drafts
from app.cli.output import written
from app.cli.source import Source
from app.kube.credentials import CredentialsError
from app.placement.policies import POLICIES
from app.scheduling.diagnosis.diagnose import diagnose
from app.scheduling.diagnosis.draft import Draft
from app.scheduling.diagnosis.report import Diagnosis
from app.scheduling.diagnosis.text import fully, shortly
from app.scheduling.verbs.explain import explain_pod
from app.scheduling.view import View

PLACEABLE, REFUSED, FAILED = 0, 1, 2

_KINDS: Final = ("pod", "pods", "po")


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked, as the flags of the command say it: about `pod`, or those of a file."""

    pod: str = ""
    filename: str = ""
    namespace: str = ""
    everything: bool = False
    output: Literal["text", "json", "yaml"] = "text"
    nodes: tuple[str, ...] = ()
    placement: str = ""
    scheduler_names: str = ""
    gates: str = ""
    kubeconfig: str = ""
    context: str = ""
    file: str = ""
    """What `snapshot` wrote; then there is no cluster."""

    @property
    def source(self) -> Source:
        return Source(gates=self.gates, kubeconfig=self.kubeconfig, context=self.context, file=self.file)


async def answer(question: Question) -> int:
    """Print the answer. The exit status."""
    policy = next((name for name in POLICIES if name == (question.placement or POLICIES[0])), None)
    if policy is None:
        return _fail(f"--placement {question.placement} is none of {', '.join(POLICIES)}")
    namespace = question.namespace or question.source.namespace()
    try:
        asked = drafts(question.filename, namespace) if question.filename else []
        snapshot = await question.source.read()
        asked = asked or [known(snapshot, question.pod, namespace)]
        for name in question.nodes:
            if name not in snapshot.cluster.nodes:
                return _fail(f"node {name} is not known")
    except (ApiError, CredentialsError, DecodeError, OSError, ValueError, yaml.YAMLError) as problem:
        return _fail(problem)
    schedulers = frozenset(filter(None, question.scheduler_names.split(",")))
    view = snapshot.view(policy, schedulers)
    status = max([_told(question, view, pod, claims) for pod, claims in asked])
    note(snapshot.cluster.problems)
    return status


def known(snapshot: Snapshot, given: str, namespace: str) -> Draft:
    """The pod that is named. Raises ValueError."""
    first, slash, rest = given.partition("/")
    name = rest if slash else first
    where = first if slash and first not in _KINDS else namespace
    pod = snapshot.pods.named(where, name)
    if pod is None:
        raise ValueError(
            f"pod {where}/{name} is not known: it does not exist, or has finished; the argument is NAME with "
            "-n NAMESPACE, or NAMESPACE/NAME"
        )
    return Draft(pod, ())


def _told(question: Question, view: View, pod: Pod, claims: Iterable[ResourceClaim]) -> int:
    """Print what is found about one pod. The exit status."""
    names = sorted(set(question.nodes)) if question.nodes else None
    found = diagnose(view, pod, names, claims)
    if question.placement and found.state == "fits":
        account = explain_pod(view, pod, names or sorted(view.cluster.nodes)).placement
        found = msgspec.structs.replace(found, placement=account)
    typer.echo(_written(question, found))
    return REFUSED if found.state == "refused" else PLACEABLE


def _written(question: Question, found: Diagnosis) -> str:
    if question.output != "text":
        return written(found, question.output)
    return fully(found) if question.everything or found.placement is not None else shortly(found)


def _fail(problem: object) -> int:
    complain(problem)
    return FAILED
