"""The answer of the service, for users who may not list the cluster.

Promises: the request goes through the API server to the Service of dra-extender, which answers users who may get the
pod. An error says which permission is missing, and what to ask an administrator for.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

import msgspec

from dra_extender.api.errors import FORBIDDEN, ApiError
from dra_extender.cli.answers.answer import UnanswerableError, unanswerable
from dra_extender.cli.cluster import client_of
from dra_extender.cli.questions import WhyOptions
from dra_extender.insight.why.report import Diagnosis

_NO_TOKEN: Final = "your kubeconfig has no token, and the service does not see client certificates: use a token"
_BY_EVENT: Final = "`kubectl describe pod` shows the short answer"


async def diagnosis_by_service(given: WhyOptions, pod: str, forbidden: object) -> Diagnosis:
    """`pod`: namespace/name. `forbidden`: why the command cannot answer itself. Raises UnanswerableError."""
    namespace, _, name = given.service.partition("/")
    path = f"/api/v1/namespaces/{quote(namespace)}/services/https:{quote(name)}:insight/proxy/insight/diagnosis"
    with unanswerable():
        async with client_of(given, forwards_token=True) as client:
            problem = _NO_TOKEN
            if await client.credentials.authorization() is not None:
                try:
                    return msgspec.json.decode(await client.get(path, {"pod": pod}), type=Diagnosis)
                except ApiError as refusal:
                    problem = f"{refusal}{_remedy(refusal, namespace, name)}"
    raise UnanswerableError(f"{forbidden}; the service {given.service} does not answer instead: {problem}. {_BY_EVENT}")


def _remedy(refusal: ApiError, namespace: str, name: str) -> str:
    """What to ask for, when the API server refuses the way to the Service."""
    if refusal.status != FORBIDDEN or not refusal.reason:
        return ""
    return f"; ask an administrator for a RoleBinding to role {name}-why in namespace {namespace}"
