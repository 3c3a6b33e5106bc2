"""The preempt verb: on which of these nodes would evicting the victims help?

Promises: nodes are only ever left out, victims never changed. Evicting a pod frees its devices long after the
scheduler's decision, so a node stays only when the pod's claims could be allocated there now, or are.

Rules: Kubernetes 1.36, pkg/scheduler/extender.go (ProcessPreemption); victim lists may be empty, as newer schedulers
send them.
"""

from __future__ import annotations

from app.api.extender import ExtenderPreemptionArgs, ExtenderPreemptionResult, MetaPod, MetaVictims, Victims
from app.scheduling.judgement import judge, subject_of
from app.scheduling.view import View


def preempt(view: View, args: ExtenderPreemptionArgs) -> ExtenderPreemptionResult:
    """The answer to one call: UIDs of victims by node, in the order given."""
    victims = args.NodeNameToMetaVictims
    if victims is None:
        victims = {name: _meta(full) for name, full in (args.NodeNameToVictims or {}).items()}
    if not view.uses_devices(args.Pod):
        return ExtenderPreemptionResult(NodeNameToMetaVictims=victims)
    judgement = judge(view, subject_of(view, args.Pod), list(victims))
    kept = {} if judgement.error else {name: victims[name] for name in judgement.fits}
    return ExtenderPreemptionResult(NodeNameToMetaVictims=kept)


def _meta(victims: Victims) -> MetaVictims:
    pods = [MetaPod(UID=pod.metadata.uid) for pod in victims.Pods or ()]
    return MetaVictims(Pods=pods, NumPDBViolations=victims.NumPDBViolations)
