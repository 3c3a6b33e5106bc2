"""The ways a request can fail, as the metav1.Status objects that Kubernetes answers with.

`StatusError` is raised anywhere below the HTTP layer and carries the whole answer: code, reason, message, details. The
functions build the usual ones; `FieldError` is one field error and `invalid` gathers several into a 422.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

JSON = dict[str, Any]

MODIFIED: Final = "the object has been modified; please apply your changes to the latest version and try again"


class StatusError(Exception):
    """A request that failed; `body()` is the metav1.Status to send with `code`."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: JSON | None = None,
        *,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.headers = headers or {}

    def body(self) -> JSON:
        """The metav1.Status object."""
        status: JSON = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        status["code"] = self.code
        return status


@dataclass(frozen=True, slots=True)
class FieldError:
    """One field error: `reason` is the machine's word (FieldValueInvalid, ...), `text` what follows the field path."""

    field: str
    reason: str
    text: str

    @property
    def message(self) -> str:
        return f"{self.field}: {self.text}"


def _shown(value: object) -> str:
    """A value as Kubernetes prints it in field errors: strings quoted, everything else as JSON."""
    if value is None:
        return "null"
    return orjson.dumps(value).decode()


def internal(part: JSON, fields: Mapping[str, object]) -> JSON:
    """A struct as Kubernetes prints it in field errors: its `fields`, with these values where nothing is said."""
    return {_internal_name(name): part.get(name, nothing) for name, nothing in fields.items()}


def _internal_name(name: str) -> str:
    return "SELinuxOptions" if name == "seLinuxOptions" else f"{name[0].upper()}{name[1:]}"


def invalid_value(field: str, value: object, detail: str) -> FieldError:
    return FieldError(field, "FieldValueInvalid", f"Invalid value: {_shown(value)}: {detail}")


def required(field: str, detail: str = "") -> FieldError:
    return FieldError(field, "FieldValueRequired", f"Required value: {detail}" if detail else "Required value")


def forbidden(field: str, detail: str) -> FieldError:
    return FieldError(field, "FieldValueForbidden", f"Forbidden: {detail}")


def duplicate(field: str, value: object) -> FieldError:
    return FieldError(field, "FieldValueDuplicate", f"Duplicate value: {_shown(value)}")


def missing(field: str, name: str) -> FieldError:
    """A name that stands for nothing."""
    return FieldError(field, "FieldValueNotFound", f"Not found: {_shown(name)}")


def unsupported(field: str, value: object, choices: Iterable[str]) -> FieldError:
    listed = ", ".join(f'"{choice}"' for choice in choices)
    return FieldError(
        field, "FieldValueNotSupported", f"Unsupported value: {_shown(value)}: supported values: {listed}"
    )


def too_many(field: str, count: int, most: int) -> FieldError:
    return FieldError(field, "FieldValueTooMany", f"Too many: {count}: must have at most {most} items")


def too_long(field: str, most: int) -> FieldError:
    return FieldError(field, "FieldValueTooLong", f"Too long: may not be more than {most} bytes")


def immutable(field: str, value: object) -> FieldError:
    return invalid_value(field, value, "field is immutable")


def qualified(resource: str, group: str) -> str:
    """`pods`, `resourceclaims.resource.k8s.io`: how messages name a resource."""
    return f"{resource}.{group}" if group else resource


def _details(group: str, kind: str, name: str, **more: Any) -> JSON:
    details: JSON = {"name": name} if name else {}
    if group:
        details["group"] = group
    details["kind"] = kind
    details.update(more)
    return details


def invalid(group: str, kind: str, name: str, problems: Iterable[FieldError]) -> StatusError:
    """422 with one cause per field error; nothing is said twice."""
    found = list(dict.fromkeys(problems))
    texts = [problem.message for problem in found]
    summary = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    causes = [{"reason": p.reason, "message": p.text, "field": p.field} for p in found]
    message = f'{qualified(kind, group)} "{name}" is invalid: {summary}'
    return StatusError(422, "Invalid", message, _details(group, kind, name, causes=causes))


def not_found(group: str, resource: str, name: str) -> StatusError:
    message = f'{qualified(resource, group)} "{name}" not found'
    return StatusError(404, "NotFound", message, _details(group, resource, name))


def no_such_resource() -> StatusError:
    return StatusError(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(group: str, resource: str, name: str) -> StatusError:
    message = f'{qualified(resource, group)} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, _details(group, resource, name))


def conflict(group: str, resource: str, name: str, why: str = MODIFIED) -> StatusError:
    message = f'Operation cannot be fulfilled on {qualified(resource, group)} "{name}": {why}'
    return StatusError(409, "Conflict", message, _details(group, resource, name))


def denied(group: str, resource: str, name: str, why: str, causes: list[JSON] | None = None) -> StatusError:
    message = f'{qualified(resource, group)} "{name}" is forbidden: {why}'
    details = _details(group, resource, name)
    return StatusError(403, "Forbidden", message, {**details, "causes": causes} if causes else details)


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def method_not_allowed() -> StatusError:
    return StatusError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def expired(message: str) -> StatusError:
    return StatusError(410, "Expired", message)


def unsupported_media_type(accepted: Iterable[str], details: JSON | None = None) -> StatusError:
    listed = ", ".join(accepted)
    message = f"the body of the request was in an unknown format - accepted media types include: {listed}"
    return StatusError(415, "UnsupportedMediaType", message, details)
