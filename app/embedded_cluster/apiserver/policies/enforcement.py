"""What the policies that are stored make of a request: refused, warned of, noted, or nothing.

Rules: Kubernetes 1.36, apiserver/pkg/admission/plugin/policy/validating (dispatcher.go, validator.go, message.go).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import orjson

from embedded_cluster.apiserver.language import Bindings, FailedExpression, Language
from embedded_cluster.apiserver.policies.compiled import Compiled, Validation, compile_policy
from embedded_cluster.apiserver.policies.matching import Matcher
from embedded_cluster.apiserver.policies.operation import Operation
from embedded_cluster.apiserver.policies.parameters import Misconfigured, Parameters
from embedded_cluster.apiserver.registry import Registry, Resource
from embedded_cluster.apiserver.statuses import JSON, StatusError, denied
from embedded_cluster.apiserver.storage import Storage
from embedded_cluster.apiserver.strategy import Lookup

GROUP: Final = "admissionregistration.k8s.io"
AUDITED: Final = "validation.policy.admission.k8s.io/validation_failure"
"""The annotation that audit logs carry."""
_POLICY: Final = "ValidatingAdmissionPolicy"
_CODES: Final = {"Forbidden": 403, "Invalid": 422, "RequestEntityTooLarge": 413}
_LONGEST_MESSAGE: Final = 5 * 1024


@dataclass(frozen=True)
class Objection:
    """What a policy has against a request; `index` is that of the validation."""

    policy: str
    binding: str
    actions: tuple[str, ...]
    message: str
    reason: str = ""
    index: int = 0

    @property
    def who(self) -> str:
        by = f" with binding '{self.binding}'" if self.binding else ""
        return f"{_POLICY} '{self.policy}'{by}"


class Enforcement:
    """Asks every policy. Without a `language` none can be stored, and none objects."""

    def __init__(self, storage: Storage, registry: Registry, lookup: Lookup, language: Language | None) -> None:
        self._policies = storage.collection(registry.stored_form("validatingadmissionpolicies").kind)
        self._bindings = storage.collection(registry.stored_form("validatingadmissionpolicybindings").kind)
        self._matcher = Matcher(registry, lookup)
        self._parameters = Parameters(registry, storage)
        self._lookup = lookup
        self._language = language
        self._compiled: dict[tuple[str, int], Compiled] = {}

    def admit(self, operation: Operation) -> None:
        """Raises StatusError when a policy refuses the request; warnings and notes go to its options."""
        if self._language is None or not self._bindings.items or operation.resource.kind.group == GROUP:
            return
        refused: list[Objection] = []
        noted: list[JSON] = []
        for objection in self._objections(operation, self._language):
            if "Deny" in objection.actions:
                refused.append(objection)
            if "Audit" in objection.actions:
                noted.append(_note(objection))
            if "Warn" in objection.actions:
                operation.options.warnings.append(f"Validation failed for {objection.who}: {objection.message}")
        if noted:  # the first: a note is not written over
            operation.options.annotations[AUDITED] = orjson.dumps(noted[:1]).decode()
        if refused:
            raise _refusal(operation, refused[0])

    def _objections(self, operation: Operation, language: Language) -> Iterator[Objection]:
        for stored in self._policies.sorted():
            policy = stored.object
            bindings = [b.object for b in self._bindings.sorted() if b.object["spec"]["policyName"] == stored.key[1]]
            if not bindings:
                continue
            constraints = policy["spec"]["matchConstraints"]
            matched = self._matcher.matched(constraints, operation)
            if matched is None:
                continue
            for binding in bindings:
                narrowed = binding["spec"].get("matchResources")
                if narrowed is None or self._matcher.matched(narrowed, operation) is not None:
                    yield from self._by_binding(policy, binding, operation, matched, language)

    def _by_binding(
        self, policy: JSON, binding: JSON, operation: Operation, matched: Resource, language: Language
    ) -> Iterator[Objection]:
        name, bound = policy["metadata"]["name"], binding["metadata"]["name"]
        actions = tuple(binding["spec"]["validationActions"])
        try:
            kind = self._parameters.kind(policy)
        except Misconfigured as problem:
            if policy["spec"]["failurePolicy"] == "Fail":
                yield Objection(name, "", ("Deny",), f"failed to configure policy: {problem}")
            return
        try:
            found = self._parameters.found(kind, binding, operation.namespace)
        except Misconfigured as problem:
            if policy["spec"]["failurePolicy"] == "Fail":
                yield Objection(name, bound, ("Deny",), f"failed to configure binding: {problem}")
            return
        compiled = self._policy(policy, language)
        for params in found:
            bindings = language.bind(self._values(operation, matched, params), compiled.variables)
            for message, reason, index in _verdict(compiled, policy["spec"]["failurePolicy"] == "Fail", bindings):
                yield Objection(name, bound, actions, message, reason, index)

    def _policy(self, policy: JSON, language: Language) -> Compiled:
        key = policy["metadata"]["uid"], policy["metadata"]["generation"]
        if key not in self._compiled:
            self._compiled = {other: known for other, known in self._compiled.items() if other[0] != key[0]}
            self._compiled[key] = compile_policy(policy["spec"], language)[0]
        return self._compiled[key]

    def _values(self, operation: Operation, matched: Resource, params: JSON | None) -> dict[str, object]:
        namespaced = operation.resource.kind.namespaced
        return {
            "object": operation.seen_as(operation.new, matched),
            "oldObject": operation.seen_as(operation.old, matched),
            "request": operation.request(matched),
            "namespaceObject": self._lookup("namespaces", "", operation.namespace) if namespaced else None,
            "params": params,
        }


def _verdict(policy: Compiled, fails: bool, bindings: Bindings) -> Iterator[tuple[str, str, int]]:
    """What a policy says with one parameter: messages, reasons and indexes; `fails` says what becomes of errors."""
    met, errors = _conditions(policy, bindings)
    if not met:
        return
    if errors:
        if fails:
            yield errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]", "", 0
        return
    for index, validation in enumerate(policy.validations):
        try:
            holds = bindings.value(validation.holds)
        except FailedExpression as failed:
            if fails:
                yield f"expression '{validation.text}' resulted in error: {failed}", "", index
            continue
        if holds is not True:
            yield _message(validation, bindings), validation.reason, index


def _conditions(policy: Compiled, bindings: Bindings) -> tuple[bool, list[str]]:
    """False when a condition is false, whatever others say; and the errors of those that fail."""
    errors: list[str] = []
    for text, condition in policy.conditions:
        try:
            if bindings.value(condition) is False:
                return False, []
        except FailedExpression as failed:
            errors.append(f"expression '{text}' resulted in error: {failed}")
    return True, errors


def _message(validation: Validation, bindings: Bindings) -> str:
    """Of the expression when that gives a line of text, else the constant one."""
    if validation.message_expression is not None:
        try:
            said = str(bindings.value(validation.message_expression)).strip()
        except FailedExpression:
            said = ""
        if said and "\n" not in said and len(said) <= _LONGEST_MESSAGE:
            return said
    return validation.message or f"failed expression: {validation.text}"


def _note(objection: Objection) -> JSON:
    return {
        "message": objection.message,
        "policy": objection.policy,
        "binding": objection.binding,
        "expressionIndex": objection.index,
        "validationActions": list(objection.actions),
    }


def _refusal(operation: Operation, objection: Objection) -> StatusError:
    kind, message = operation.resource.kind, f"{objection.who} denied request: {objection.message}"
    error = denied(kind.group, kind.plural, operation.name or "Unknown", message, [{"message": message}])
    error.reason = objection.reason or "Invalid"
    error.code = _CODES[error.reason]
    return error
