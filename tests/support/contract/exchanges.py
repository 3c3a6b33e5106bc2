"""HTTP exchanges with an API server as data: read them, run them, make two servers' answers comparable.

A scenario is a list of requests in a namespace of its own, read from ``scenarios/*.yaml``. Running one gives an answer
per request: status, a few headers, and the body with everything that differs between two runs of the same server
(uids, resource versions, times, random names) replaced by a placeholder. Placeholders are numbered by first appearance,
so "the same as before" and "another one" still show. Nothing in here knows which server it talks to.

A file of scenarios::

    objects:                      # named bodies
      claim: {apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: c}, spec: {...}}
    scenarios:
    - name: A claim can be read back
      steps:
      - {do: POST $claims, body: claim, keep: {uid: metadata.uid}}
      - {do: GET $claims/c}

``$3 results`` stands for three entries of what the file's `series` has under ``results``, with ``$i`` counting.

Of a step: `do` method and path; `body` an object, text, or the name of one of `objects`; `with` a merge patch on that
object; `type` the content type (merge, json, strategic, apply or written out); `accept` likewise (table, json, or
written out); `headers`; `keep` paths of the answer remembered as variables; `only` keeps just the named entries of a
list in the answer ({list, key, values}); `ignore` paths of the answer that are not compared; `managed_fields` compares
those too (dropped otherwise); `words` compares the sentences of a refusal, too; `until` asks again until the answer has
that status, for what takes effect some moments later; `events` how many events of a watch to read; `unordered` lists
whose order means nothing;
`as: limited` makes it a request of a user who has only the `rights` (rules as in a role) of the scenario.

Releases differ. The recordings are of `RELEASE`; a folder of `recordings` with the name of an older release has those
scenarios that it answers differently. Of releases that were not recorded, a step's `varies` are paths of the answer
(``headers.Warning``, ``body.resources``) that may differ; a scenario's `varies` says why all of it may:
`lasting` leaves them out. A scenario's `since` is the first release that can be asked: the API server of 1.36 ends on
a step of zero.
"""

from __future__ import annotations

import asyncio
import copy
import json
import re
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import aiohttp
from yarl import URL

from tests.support import yamlfiles
from tests.support.contract.answers import Json, Normalizer, at, drop, drop_managed_fields, drop_words, plain_table
from tests.support.contract.releases import RELEASE
from tests.support.patience import LONGEST

FOLDER = Path(__file__).parents[2] / "contract"
SCENARIOS = FOLDER / "scenarios"
RECORDINGS = FOLDER / "recordings"
COMPARED_HEADERS = ("Content-Type", "Warning", "Retry-After", "Allow")
RBAC = "rbac.authorization.k8s.io"

Answer = dict[str, Json]
Rule = Mapping[str, Sequence[str]]

_RESOURCE = "/apis/resource.k8s.io/v1"
PATHS: Mapping[str, str] = {
    "core": "/api/v1",
    "resource": _RESOURCE,
    "here": "/api/v1/namespaces/${ns}",
    "pods": "/api/v1/namespaces/${ns}/pods",
    "configmaps": "/api/v1/namespaces/${ns}/configmaps",
    "nodes": "/api/v1/nodes",
    "namespaces": "/api/v1/namespaces",
    "deployments": "/apis/apps/v1/namespaces/${ns}/deployments",
    "replicasets": "/apis/apps/v1/namespaces/${ns}/replicasets",
    "daemonsets": "/apis/apps/v1/namespaces/${ns}/daemonsets",
    "claims": f"{_RESOURCE}/namespaces/${{ns}}/resourceclaims",
    "templates": f"{_RESOURCE}/namespaces/${{ns}}/resourceclaimtemplates",
    "slices": f"{_RESOURCE}/resourceslices",
    "classes": f"{_RESOURCE}/deviceclasses",
    "rules": "/apis/resource.k8s.io/v1beta2/devicetaintrules",
    "rules_v1": f"{_RESOURCE}/devicetaintrules",
}
CONTENT_TYPES: Mapping[str, str] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
ACCEPTS: Mapping[str, str] = {
    "json": "application/json",
    "table": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
}


@dataclass(frozen=True)
class Step:
    """One request, and what of its answer counts."""

    method: str
    path: str
    body: Json = None
    content_type: str = "application/json"
    accept: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    keep: Mapping[str, str] = field(default_factory=dict)
    only: Mapping[str, Json] = field(default_factory=dict)
    ignore: Sequence[str] = ()
    unordered: Sequence[str] = ()
    managed_fields: bool = False
    words: bool = False
    until: int = 0
    events: int = 0
    limited: bool = False
    varies: Sequence[str] = ()


@dataclass(frozen=True)
class Scenario:
    """Requests that build on each other, in a namespace of their own."""

    file: str
    name: str
    steps: tuple[Step, ...]
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    rights: Sequence[Rule] = ()
    varies: str = ""
    since: str = ""


@dataclass(frozen=True)
class Server:
    """Where an API server is and who we are there: an administrator. `ssl` as aiohttp takes it."""

    url: str
    ssl: Any = True
    headers: Mapping[str, str] = field(default_factory=dict)
    login: Callable[[str, Sequence[Rule]], Mapping[str, str]] | None = None
    """Makes a user of that name with those rights, and gives the headers to be that user; None: by role and
    impersonation."""


@cache
def load() -> tuple[Scenario, ...]:
    """All scenarios, in the order of the files."""
    return tuple(_loaded())


def _loaded() -> Iterator[Scenario]:
    for file in sorted(SCENARIOS.glob("*.yaml")):
        content = yamlfiles.read(file)
        objects, series = content.get("objects", {}), content.get("series", {})
        for entry in _expanded(content["scenarios"], series):
            steps = tuple(_step(step, objects) for step in entry["steps"])
            labels, rights = entry.get("namespace_labels", {}), entry.get("rights", ())
            since = entry.get("since", "")
            yield Scenario(file.stem, entry["name"], steps, labels, rights, entry.get("varies", ""), since)


def _expanded(value: Json, series: Mapping[str, Json]) -> Json:
    """`value` with every ``$3 results`` written out."""
    if isinstance(value, dict):
        return {key: _expanded(item, series) for key, item in value.items()}
    if isinstance(value, list):
        return [_expanded(item, series) for item in value]
    found = re.fullmatch(r"\$(\d+) (\w+)", value) if isinstance(value, str) else None
    if not found:
        return value
    text = json.dumps(series[found.group(2)])
    entries = [json.loads(text.replace("$i", str(number))) for number in range(int(found.group(1)))]
    if all("$i" in key for key in series[found.group(2)]):
        return {key: item for entry in entries for key, item in entry.items()}
    return entries


def _step(entry: Mapping[str, Json], objects: Mapping[str, Json]) -> Step:
    method, path = entry["do"].split(" ", 1)
    body = entry.get("body")
    if isinstance(body, str) and body in objects:
        body = merged(objects[body], entry.get("with", {}))
    kind = entry.get("type", "application/json")
    accept = entry.get("accept", "json")
    return Step(
        method=method,
        path=path,
        body=body,
        content_type=CONTENT_TYPES.get(kind, kind),
        accept=ACCEPTS.get(accept, accept),
        headers=entry.get("headers", {}),
        keep=entry.get("keep", {}),
        only=entry.get("only", {}),
        ignore=entry.get("ignore", ()),
        unordered=entry.get("unordered", ()),
        managed_fields=entry.get("managed_fields", False),
        words=entry.get("words", False),
        until=entry.get("until", 0),
        events=entry.get("events", 0),
        limited=entry.get("as") == "limited",
        varies=entry.get("varies", ()),
    )


def merged(target: Json, patch: Json) -> Json:
    """A JSON merge patch (RFC 7386) on a copy."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = copy.deepcopy(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


class Run:
    """One scenario against one server."""

    def __init__(self, server: Server, session: aiohttp.ClientSession, scenario: Scenario, namespace: str) -> None:
        self.server, self.session, self.scenario, self.namespace = server, session, scenario, namespace
        self.variables: dict[str, str] = {
            "ns": namespace,
            **{name: string.Template(path).safe_substitute(ns=namespace) for name, path in PATHS.items()},
        }
        self.normalize = Normalizer(namespace)
        self._made: list[str] = []
        self._limited: Mapping[str, str] = {}

    async def answers(self) -> list[Answer]:
        """The answers, normalised. What was created outside the namespace is deleted again at the end."""
        labels = {**self.scenario.namespace_labels, "contract": "true"}
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace, "labels": labels}}
        await self._plain("POST", PATHS["namespaces"], space)
        # Pods want one; and with a token mounted every pod would carry a volume of a random name.
        account = {"metadata": {"name": "default"}, "automountServiceAccountToken": False}
        await self._plain("POST", f"/api/v1/namespaces/{self.namespace}/serviceaccounts", account)
        self._made.append(f"{PATHS['namespaces']}/{self.namespace}")
        try:
            if self.scenario.rights:
                await self._log_in()
            return [await self._answer(step) for step in self.scenario.steps]
        finally:
            for path in reversed(self._made):
                await self._plain("DELETE", path, {"gracePeriodSeconds": 0})

    async def _log_in(self) -> None:
        user = f"limited-{self.namespace}"
        if self.server.login is not None:
            self._limited = self.server.login(user, self.scenario.rights)
            return
        self._limited = {"Impersonate-User": user}
        meta = {"name": user}
        role = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": meta, "rules": self.scenario.rights}
        binding = {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": user},
            "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
        }
        for plural, body in (("clusterroles", role), ("clusterrolebindings", binding)):
            await self._plain("POST", f"/apis/{RBAC}/v1/{plural}", body)
            self._made.append(f"/apis/{RBAC}/v1/{plural}/{user}")
        await self._until_effective(self.scenario.rights[-1])

    async def _until_effective(self, rule: Rule) -> None:
        resource, _, subresource = rule["resources"][-1].partition("/")
        asked = {"verb": rule["verbs"][-1], "group": rule["apiGroups"][-1], "resource": resource}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {**asked, "subresource": subresource, "namespace": self.namespace}},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        async with asyncio.timeout(LONGEST):
            while not (await self._plain("POST", path, review, self._limited))["status"]["allowed"]:
                await asyncio.sleep(0.05)

    async def _plain(self, method: str, path: str, body: Json, headers: Mapping[str, str] | None = None) -> Json:
        headers = {**self.server.headers, **(headers or {})}
        url = self.server.url + path
        async with self.session.request(method, url, json=body, headers=headers, ssl=self.server.ssl) as answer:
            return await answer.json(content_type=None)

    async def _answer(self, step: Step) -> Answer:
        before = self.normalize
        async with asyncio.timeout(LONGEST):
            while True:
                self.normalize = copy.deepcopy(before)  # an answer that does not count is not remembered
                answer = await self._step(step)
                if step.until in (0, answer["status"]):
                    return answer
                await asyncio.sleep(0.05)

    async def _step(self, step: Step) -> Answer:
        headers = {"Accept": step.accept, **self.server.headers, **step.headers}
        if step.limited:
            headers |= self._limited
        data: str | None = None
        if step.body is not None:
            headers["Content-Type"] = step.content_type
            data = step.body if isinstance(step.body, str) else json.dumps(step.body)
            data = self._fill(data)
        path = self._fill(step.path)
        url = URL(self.server.url + path, encoded=True)
        async with self.session.request(step.method, url, data=data, headers=headers, ssl=self.server.ssl) as response:
            answer: Answer = {"status": response.status}
            shown = {name: response.headers[name] for name in COMPARED_HEADERS if name in response.headers}
            if step.events and response.status == 200:
                shown.pop("Content-Type")
                answer["events"] = [self._cleaned(event, step) for event in await _events(response, step.events)]
            else:
                answer |= self._body(await response.text(), step, path)
            answer["headers"] = {name: self.normalize.text(value) for name, value in shown.items()}
        return answer

    def _fill(self, text: str) -> str:
        # Twice: a path may hold ${ns}, and what was remembered may be named in either.
        return string.Template(text).safe_substitute(self.variables)

    def _body(self, text: str, step: Step, path: str) -> Answer:
        try:
            body = json.loads(text)
        except ValueError:
            return {"text": self.normalize.text(text)}
        for name, source in step.keep.items():
            self.variables[name] = str(at(body, source))
        if step.method == "POST" and isinstance(body, dict) and "/namespaces/" not in path:
            name = body.get("metadata", {}).get("name")
            if body.get("kind") != "Status" and name:
                self._made.append(f"{path.partition('?')[0]}/{name}")
        return {"body": self._cleaned(body, step)}

    def _cleaned(self, body: Json, step: Step) -> Json:
        body = copy.deepcopy(body)
        if not step.managed_fields:
            drop_managed_fields(body)
        for path in step.ignore:
            drop(body, path)
        if step.only:
            wanted, items = step.only["values"], at(body, step.only["list"])
            items[:] = [entry for entry in items if at(entry, step.only["key"]) in wanted]
        if not step.words:
            drop_words(body)
        body = plain_table(self.normalize(body))
        for path in step.unordered:
            at(body, path).sort(key=lambda entry: str(entry.get("name") or entry.get("resource")))
        return body


async def _events(response: aiohttp.ClientResponse, count: int) -> list[Json]:
    """The first `count` events of a watch, or as many as came before it ended or the time was over."""
    events: list[Json] = []
    try:
        async with asyncio.timeout(LONGEST):
            async for line in response.content:
                event = json.loads(line)
                events.append({**event, "object": plain_table(event["object"])})
                if len(events) == count:
                    break
    except TimeoutError:
        events.append({"type": "<nothing more came>"})
    return events


async def run(server: Server, scenario: Scenario, namespace: str) -> list[Answer]:
    """Run one scenario in a namespace that does not exist yet; returns one answer per step."""
    async with aiohttp.ClientSession() as session:
        return await Run(server, session, scenario, namespace).answers()


@cache
def recording(file: str, release: str = RELEASE) -> dict[str, list[Answer]]:
    """The recorded answers of one file of scenarios, by the name of the scenario, of a release that was recorded."""
    content: dict[str, list[Answer]] = json.loads((RECORDINGS / f"{file}.json").read_text())
    older = RECORDINGS / release / f"{file}.json"
    return content | json.loads(older.read_text()) if older.exists() else content


def lasting(scenario: Scenario, answers: Sequence[Answer]) -> list[Answer]:
    """The answers without what differs from release to release."""
    kept = copy.deepcopy(list(answers))
    for step, answer in zip(scenario.steps, kept, strict=True):
        for path in step.varies:
            drop(answer, path)
    return kept
