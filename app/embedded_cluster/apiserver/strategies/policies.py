"""Admission: policies that are enforced, and what would change or ask about objects elsewhere, which is refused."""

from __future__ import annotations

from embedded_cluster.apiserver.statuses import JSON, Problem, forbidden
from embedded_cluster.apiserver.strategies.core import Plain
from embedded_cluster.apiserver.strategy import Context, Strategy
from embedded_cluster.apiserver.validation.policies import binding_problems, policy_problems


def default_match(resources: JSON) -> None:
    """What stands in MatchResources where nothing is said."""
    resources.setdefault("matchPolicy", "Equivalent")
    resources.setdefault("namespaceSelector", {})
    resources.setdefault("objectSelector", {})
    for rule in (*resources.get("resourceRules", ()), *resources.get("excludeResourceRules", ())):
        rule.setdefault("scope", "*")


class Policies(Plain):
    """Validating admission policies."""

    def __init__(self) -> None:
        super().__init__(status=True, generation=True)

    def default(self, new: JSON, context: Context) -> None:
        spec = new.setdefault("spec", {})
        spec.setdefault("failurePolicy", "Fail")
        if spec.get("matchConstraints") is not None:
            default_match(spec["matchConstraints"])

    def prepare_create(self, new: JSON, context: Context) -> None:
        new["status"] = {}

    def validate_create(self, new: JSON, context: Context) -> list[Problem]:
        return policy_problems(new["spec"], context)

    def validate_update(self, new: JSON, old: JSON, context: Context) -> list[Problem]:
        return self.validate_create(new, context)


class PolicyBindings(Plain):
    """Where and how policies count."""

    def __init__(self) -> None:
        super().__init__(generation=True)

    def default(self, new: JSON, context: Context) -> None:
        if new.setdefault("spec", {}).get("matchResources") is not None:
            default_match(new["spec"]["matchResources"])

    def validate_create(self, new: JSON, context: Context) -> list[Problem]:
        return binding_problems(new["spec"])

    def validate_update(self, new: JSON, old: JSON, context: Context) -> list[Problem]:
        return self.validate_create(new, context)


class Refused(Strategy):
    """A kind that this server knows, and does not do; `field` is where it would say what to do."""

    def __init__(self, field: str, why: str) -> None:
        self._field = field
        self._why = why

    def validate_create(self, new: JSON, context: Context) -> list[Problem]:
        return [forbidden(self._field, self._why)]


WEBHOOKS = (
    "the embedded API server calls no webhooks: use a ValidatingAdmissionPolicy, which it enforces, or a real cluster"
)
MUTATIONS = (
    "the embedded API server changes no objects by policy: write the fields into the objects, or use a real cluster"
)
