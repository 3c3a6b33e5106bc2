"""The answer of `why`: diagnose, and say it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from dra_extender.api.core import Pod
from dra_extender.api.resource import ResourceClaim
from dra_extender.cli.answers.answer import Answer, UnanswerableError, answered, judging
from dra_extender.cli.answers.asking import ask, complaining
from dra_extender.cli.answers.drafts import drafts
from dra_extender.cli.cluster import Snapshot
from dra_extender.cli.columns import terminal_width
from dra_extender.cli.options import Form
from dra_extender.cli.source import Source
from dra_extender.cli.statuses import NO, YES
from dra_extender.insight.why.diagnose import diagnose
from dra_extender.insight.why.draft import Draft
from dra_extender.insight.why.report import Diagnosis
from dra_extender.insight.why.text import WIDTH, fully, shortly
from dra_extender.placement.policies import POLICIES
from dra_extender.scheduling.verbs.explain import explain_pod
from dra_extender.scheduling.view import View

_KINDS: Final = ("pod", "pods", "po")


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked, as the flags of the command say it: about `pod`, or those of a file."""

    pod: str = ""
    filename: str = ""
    namespace: str = ""
    everything: bool = False
    output: Form = "text"
    watch: bool = False
    nodes: tuple[str, ...] = ()
    placement: str = ""
    scheduler_names: str = ""
    source: Source = Source()


@complaining
async def answer(question: Question) -> int:
    """Print the answer. The exit status."""
    policy = next((name for name in POLICIES if name == (question.placement or POLICIES[0])), None)
    schedulers = frozenset(filter(None, question.scheduler_names.split(",")))
    namespace = question.namespace or question.source.namespace()
    if policy is None:
        raise UnanswerableError(f"--placement {question.placement} is none of {', '.join(POLICIES)}")
    with judging():
        written = await drafts(question.source, question.filename, namespace) if question.filename else []

    def answering(snapshot: Snapshot) -> Answer:
        for name in question.nodes:
            if name not in snapshot.cluster.nodes:
                raise UnanswerableError(f"node {name} is not known")
        asked = written or [known(snapshot, question.pod, namespace)]
        view = snapshot.view(policy, schedulers)
        return _told(question, [_diagnosed(question, view, pod, claims) for pod, claims in asked])

    return await ask(question.source, answering, watch=question.watch)


def known(snapshot: Snapshot, given: str, namespace: str) -> Draft:
    """The pod that is named. Raises UnanswerableError."""
    first, slash, rest = given.partition("/")
    name = rest if slash else first
    where = first if slash and first not in _KINDS else namespace
    pod = snapshot.pods.named(where, name)
    if pod is None:
        raise UnanswerableError(
            f"pod {where}/{name} is not known: it does not exist, or has finished; name it NAME with -n NAMESPACE, "
            "or NAMESPACE/NAME"
        )
    return Draft(pod, ())


def _diagnosed(question: Question, view: View, pod: Pod, claims: Iterable[ResourceClaim]) -> Diagnosis:
    names = sorted(set(question.nodes)) if question.nodes else None
    found = diagnose(view, pod, names, claims)
    if question.placement and found.state == "fits":
        account = explain_pod(view, pod, names or sorted(view.cluster.nodes)).placement
        found = msgspec.structs.replace(found, placement=account)
    return found


def _told(question: Question, found: Sequence[Diagnosis]) -> Answer:
    """Of several pods the answers are a list."""
    status = NO if any(each.state == "refused" for each in found) else YES
    return answered(
        found[0] if len(found) == 1 else found,
        question.output,
        lambda: "\n".join(_text(question, each) for each in found),
        status,
    )


def _text(question: Question, found: Diagnosis) -> str:
    say = fully if question.everything or found.placement is not None else shortly
    return say(found, terminal_width() or WIDTH)
