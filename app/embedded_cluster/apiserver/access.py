"""Who may do what, and who did what: bearer tokens to users, a policy that decides, and a bounded audit log.

By default every user may do everything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from embedded_cluster.apiserver.statuses import StatusError, qualified
from embedded_cluster.apiserver.strategy import Caller

DEFAULT_USER = "embedded-admin"


ADMINISTRATORS = (DEFAULT_USER, "system:admin")
_ACCOUNT = "system:serviceaccount:"


def groups_of(user: str) -> list[str]:
    """The groups of a user; those of a service account follow from its name."""
    if user.startswith(_ACCOUNT):
        namespace = user.removeprefix(_ACCOUNT).partition(":")[0]
        return ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    return [*(["system:masters"] if user in ADMINISTRATORS else ()), "system:authenticated"]


@dataclass(frozen=True, slots=True)
class Attributes:
    """What an access decision is about: a resource, whose `subresource`, `namespace` and `name` may be empty, or the
    `path` of something else.
    """

    user: str
    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @property
    def target(self) -> str:
        """As roles name it: `resourceclaims`, `resourceclaims/binding`."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


Policy = Callable[[Attributes], bool]


def allow_all(attributes: Attributes) -> bool:
    """The policy of a cluster whose only user is its administrator."""
    return True


@dataclass
class Access:
    """Replace `policy` and `tokens` at any time; a request without a known token is made by the default user."""

    policy: Policy = allow_all
    tokens: Mapping[str, str] = field(default_factory=dict)

    def user(self, authorization: str) -> str:
        """The user behind an Authorization header."""
        return self.tokens.get(authorization.removeprefix("Bearer ").strip(), DEFAULT_USER)

    def caller(self, user: str) -> Caller:
        """What the rules of kinds may ask about the user."""

        def allowed(verb: str, group: str, resource: str, subresource: str, namespace: str, name: str) -> bool:
            return self.policy(Attributes(user, verb, group, resource, subresource, namespace, name))

        return Caller(user, allowed)

    def require(self, attributes: Attributes) -> None:
        """Raises 403 unless the policy allows it."""
        if self.policy is allow_all or self.policy(attributes):
            return
        where = f' in the namespace "{attributes.namespace}"' if attributes.namespace else " at the cluster scope"
        why = (
            f'User "{attributes.user}" cannot {attributes.verb} resource "{attributes.target}" '
            f'in API group "{attributes.group}"{where}'
        )
        named = f'{qualified(attributes.resource, attributes.group)} "{attributes.name}" is forbidden: {why}'
        if not attributes.name:
            named = f"{qualified(attributes.resource, attributes.group)} is forbidden: {why}"
        details = {"name": attributes.name, "group": attributes.group, "kind": attributes.resource}
        raise StatusError(403, "Forbidden", named, {key: value for key, value in details.items() if value})


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """One request; `resource` includes the subresource, `code` is 0 when the connection was broken without an
    answer."""

    verb: str
    resource: str
    namespace: str
    name: str
    user: str
    user_agent: str
    code: int


class AuditLog:
    """The last `limit` requests, oldest first; `total` counts all."""

    def __init__(self, limit: int = 10_000) -> None:
        self._served: deque[AuditEvent] = deque(maxlen=limit)
        self.total = 0

    def note(self, served: AuditEvent) -> None:
        self._served.append(served)
        self.total += 1

    def clear(self) -> None:
        self._served.clear()

    def __iter__(self) -> Iterator[AuditEvent]:
        return iter(self._served)

    def __len__(self) -> int:
        return len(self._served)

    def find(self, verb: str = "", resource: str = "", name: str = "") -> list[AuditEvent]:
        """The requests with this verb, resource and name; empty means any."""
        return [
            served
            for served in self._served
            if verb in ("", served.verb) and resource in ("", served.resource) and name in ("", served.name)
        ]
