"""Field errors of changes to pods: which fields of a spec may become what.

Promises: a spec that stays is not judged again. What may change is images, a deadline that comes nearer, tolerations
that are added or get other seconds, scheduling gates that go, and where a pod with such gates may run.

Rules: Kubernetes 1.36, pkg/apis/core/validation/validation.go, without the comparison of both specs in its message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from embedded_cluster.apiserver.statuses import JSON, Problem, forbidden, invalid_value, required
from embedded_cluster.apiserver.validation import placement, pods
from embedded_cluster.apiserver.validation.containers import space_problems

_HIGHEST_INT32: Final = 2**31 - 1
_FIXED: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_TERMS: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PARTS: Final = ("containers", "initContainers")


def problems(new: JSON, old: JSON) -> list[Problem]:
    """Of `new` in the place of `old`, both whole pods with their defaults."""
    spec, before = new["spec"], old["spec"]
    if spec == before:
        return []
    found = pods.spec_problems(spec, "spec", of_pod=True) + pods.space_problems(spec, "spec")
    for part in _PARTS:
        mine, theirs = spec.get(part) or (), before.get(part) or ()
        if len(mine) != len(theirs):
            return [*found, forbidden(f"spec.{part}", "pod updates may not add or remove containers")]
        found += _image_problems(mine, f"spec.{part}")
    late, stop = _deadline_problems(spec, before)
    if stop:
        return found + late
    found += late + _toleration_problems(spec, before) + _gate_problems(spec, before)
    if before.get("schedulingGates"):
        found += _place_problems(spec, before)
    if _comparable(spec, before) != _comparable(before, before):
        found.append(forbidden("spec", _FIXED))
    return found


def _image_problems(containers: Sequence[JSON], at: str) -> list[Problem]:
    """What a real API server says of images a second time."""
    found: list[Problem] = []
    for index, container in enumerate(containers):
        if not container.get("image"):
            found.append(required(f"{at}[{index}].image"))
    return found + space_problems(containers, at)


def _deadline_problems(spec: JSON, before: JSON) -> tuple[list[Problem], bool]:
    """Of a deadline, and whether nothing else is looked at then."""
    at, name = "spec.activeDeadlineSeconds", "activeDeadlineSeconds"
    new, old = spec.get(name), before.get(name)
    if new is None:
        detail = "must not update from a positive integer to nil value"
        return ([] if old is None else [invalid_value(at, None, detail)]), False
    if not 0 <= new <= _HIGHEST_INT32:
        return [invalid_value(at, new, f"must be between 0 and {_HIGHEST_INT32}, inclusive")], True
    if old is not None and old < new:
        return [invalid_value(at, new, "must be less than or equal to previous value")], True
    return [], False


def _toleration_problems(spec: JSON, before: JSON) -> list[Problem]:
    """Those that were there stay; only their seconds may be others. A real API server looks at new ones twice."""
    kept = [_without(toleration, "tolerationSeconds") for toleration in spec.get("tolerations") or ()]
    if all(_without(toleration, "tolerationSeconds") in kept for toleration in before.get("tolerations") or ()):
        return placement.toleration_problems(spec.get("tolerations") or (), "spec.tolerations")
    detail = "existing toleration can not be modified except its tolerationSeconds"
    return [forbidden("spec.tolerations", detail)]


def _gate_problems(spec: JSON, before: JSON) -> list[Problem]:
    known = {gate["name"] for gate in before.get("schedulingGates") or ()}
    return [
        forbidden(
            f"spec.schedulingGates[{index}].name",
            f"only deletion is allowed, but found new scheduling gate '{gate.get('name', '')}'",
        )
        for index, gate in enumerate(spec.get("schedulingGates") or ())
        if gate.get("name", "") not in known
    ]


def _place_problems(spec: JSON, before: JSON) -> list[Problem]:
    """Of where a pod with gates may run: it can only become narrower."""
    found: list[Problem] = []
    wanted, was = spec.get("nodeSelector") or {}, before.get("nodeSelector") or {}
    if not was.items() <= wanted.items():
        detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        found.append(invalid_value("spec.nodeSelector", wanted or None, detail))
    terms, old_terms = _node_terms(spec), _node_terms(before)
    at = f"spec.affinity.nodeAffinity.{_TERMS}.nodeSelectorTerms"
    if not old_terms:
        return found
    if len(old_terms) != len(terms):
        detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        return [*found, invalid_value(at, terms or None, detail)]
    detail = "only additions are allowed (no mutations or deletions)"
    return found + [
        invalid_value(f"{at}[{index}]", terms[index], detail)
        for index, old_term in enumerate(old_terms)
        if not _narrower(terms[index], old_term)
    ]


def _node_terms(spec: JSON) -> list[JSON]:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    found: list[JSON] = (affinity.get(_TERMS) or {}).get("nodeSelectorTerms") or []
    return found


def _narrower(term: JSON, old: JSON) -> bool:
    """True when a term has all that an old one had, in front; an empty one selects nothing and stays."""
    if not old:
        return not term
    return all(
        (term.get(part) or [])[: len(old.get(part) or ())] == (old.get(part) or [])
        for part in ("matchExpressions", "matchFields")
    )


def _comparable(spec: JSON, before: JSON) -> JSON:
    """A spec without what may change."""
    fixed = {key: value for key, value in spec.items() if key not in ("activeDeadlineSeconds", "schedulingGates")}
    fixed.pop("tolerations", None)
    if before["terminationGracePeriodSeconds"] < 0 and spec["terminationGracePeriodSeconds"] == 1:
        fixed["terminationGracePeriodSeconds"] = before["terminationGracePeriodSeconds"]
    for part in _PARTS:
        if part in fixed:
            fixed[part] = [_without(container, "image") for container in fixed[part]]
    if before.get("schedulingGates"):
        fixed.pop("nodeSelector", None)
        affinity = _without(fixed.pop("affinity", None) or {}, "nodeAffinity")
        if affinity:
            fixed["affinity"] = affinity
    return fixed


def _without(part: JSON, field: str) -> JSON:
    return {key: value for key, value in part.items() if key != field}
