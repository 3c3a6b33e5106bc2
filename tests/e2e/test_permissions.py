"""The service account has exactly the permissions of the manifest, and each of them is needed: acceptance test 43."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import yaml

from dra_extender.api.errors import ApiError
from dra_extender.kube.access import (
    BINDING,
    EXTENDED_RESOURCES,
    READERS,
    Permission,
    missing_permissions,
    permissions_for_lease,
    permissions_for_reading,
    permissions_for_waking,
)
from dra_extender.kube.client import STRATEGIC_PATCH, KubeClient
from dra_extender.kube.credentials import ClientSettings
from dra_extender.kube.resources import POD_GROUPS, Served, discover
from dra_extender.scheduling.nomination.lifecycle import TARGET
from dra_extender.scheduling.nomination.nominations import PREEMPTING
from dra_extender.scheduling.release.clear import RELEASED
from tests.e2e.ground import Ground
from tests.e2e.plane import KubectlError

pytestmark = pytest.mark.e2e

FOLDER = Path(__file__).parents[2] / "manifests" / "rbac"
FILES = ("extender.yaml", "extended-resources.yaml", "insight.yaml")
NAMESPACE = "dra-system"
ACCOUNT = "dra-extender-less"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


class Grant(NamedTuple):
    """One verb on one resource."""

    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}"


def _roles() -> list[dict[str, Any]]:
    """The roles of the service account. Roles without a binding are for readers of insight."""
    found = [document for file in FILES for document in yaml.safe_load_all((FOLDER / file).read_text())]
    bound = {each["roleRef"]["name"] for each in found if "roleRef" in each}
    return [each for each in found if "rules" in each and each["metadata"]["name"] in bound]


KINDS = {"ClusterRole": {}, "Role": {"namespace": NAMESPACE}}
"""What a role of each kind adds to its metadata."""


def _rules(kind: str, missing: Grant | None) -> list[dict[str, Any]]:
    """The rules of all roles of this kind, split into single grants, without one, which two features may need."""
    return [
        rule | {"resources": [resource], "verbs": [verb]}
        for role in _roles()
        if role["kind"] == kind
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if Grant(resource, verb) != missing
    ]


def _grants() -> list[Grant]:
    return sorted({Grant(*rule["resources"], *rule["verbs"]) for kind in KINDS for rule in _rules(kind, None)})


def _used(served: Served) -> tuple[Permission, ...]:
    """What the service asks about on a server with these versions and all kinds of PodGroups."""
    served = msgspec.structs.replace(served, pod_groups=POD_GROUPS)
    used = permissions_for_reading(served) + BINDING + EXTENDED_RESOURCES + READERS
    return used + permissions_for_waking(NAMESPACE) + permissions_for_lease(NAMESPACE, "dra-extender")


class Lesser:
    """A service account whose permissions are those of the manifest, less one."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        ground.plane.kubectl("create", "serviceaccount", ACCOUNT, f"--namespace={NAMESPACE}")
        self.grant(None)
        subjects = [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}]
        for kind, where in KINDS.items():
            reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": ACCOUNT}
            version = "rbac.authorization.k8s.io/v1"
            ground.plane.apply(
                {
                    "apiVersion": version,
                    "kind": kind + "Binding",
                    "metadata": {"name": ACCOUNT, **where},
                    "roleRef": reference,
                    "subjects": subjects,
                }
            )
        kubeconfig = ground.plane.service_account_kubeconfig(NAMESPACE, ACCOUNT)
        self._client = ground.run(KubeClient.connect(ClientSettings(kubeconfig=str(kubeconfig))))
        self._permissions = _used(ground.run(discover(ground.client)))

    def close(self) -> None:
        self._ground.run(self._client.close())
        names = [f"{kind}/{ACCOUNT}" for kind in ("role", "rolebinding", "serviceaccount")]
        self._ground.plane.kubectl("delete", *names, f"--namespace={NAMESPACE}")
        self._ground.plane.kubectl("delete", f"clusterrole/{ACCOUNT}", f"clusterrolebinding/{ACCOUNT}")

    def grant(self, missing: Grant | None) -> None:
        """All permissions but one, from now on."""
        for kind, where in KINDS.items():
            version, metadata = "rbac.authorization.k8s.io/v1", {"name": ACCOUNT, **where}
            body = {"apiVersion": version, "kind": kind, "metadata": metadata, "rules": _rules(kind, missing)}
            self._ground.plane.kubectl("replace", "--force", "-f", "-", stdin=yaml.safe_dump(body))

    def misses(self) -> list[str]:
        """What the self-test of the service says."""
        return list(map(str, self._ground.run(missing_permissions(self._client, self._permissions))))


@pytest.fixture(scope="module")
def lesser(ground: Ground) -> Iterator[Lesser]:
    made = Lesser(ground)
    yield made
    made.close()


def test_43_with_all_permissions_nothing_is_missing(ground: Ground, lesser: Lesser) -> None:
    lesser.grant(None)
    ground.eventually(lambda: lesser.misses() == [], "all permissions")
    assert ground.extender.leading


RULES = "devicetaintrules"
ALL = [
    pytest.param(each, marks=pytest.mark.needs("DRADeviceTaintRules") if each.resource == RULES else (), id=str(each))
    for each in _grants()
]


@pytest.mark.parametrize("grant", ALL)
def test_43_each_permission_is_missed_when_it_is_not_there(ground: Ground, lesser: Lesser, grant: Grant) -> None:
    lesser.grant(grant)
    wanted = f"{grant.verb} {grant.resource}"
    missed = ground.eventually(
        lambda: [text for text in lesser.misses() if text.replace(".", " ").startswith(wanted + " ")], f"{grant}"
    )
    assert len(missed) >= 1


def test_43_the_account_may_do_nothing_else(ground: Ground) -> None:
    """What kubectl says about the account of the manifest, against the manifest."""
    account = f"system:serviceaccount:{NAMESPACE}:dra-extender"
    told = ground.plane.kubectl("auth", "can-i", "--list", f"--as={account}", f"--namespace={NAMESPACE}")
    granted: set[tuple[str, str]] = set()
    for line in told.splitlines()[1:]:
        if line.startswith(" "):
            continue  # paths, which everybody may read
        resource, _, subresource = line.split()[0].partition("/")
        name = resource.partition(".")[0] + ("/" + subresource if subresource else "")
        granted |= {(name, verb) for verb in line.rpartition("[")[2].rstrip("]").split()}
    # Everybody may ask who they are and what they may do, and since Kubernetes 1.37 read whom the cluster trusts.
    everybody = {"selfsubjectreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews", "clustertrustbundles"}
    told_as_shipped = {(_plain(grant.resource), grant.verb) for grant in _grants()}
    assert {(_plain(name), verb) for name, verb in granted if name not in everybody} == told_as_shipped


def _plain(resource: str) -> str:
    """Without the group that kubectl writes behind a subresource."""
    name, _, subresource = resource.partition("/")
    return name + ("/" + subresource.partition(".")[0] if subresource else "")


def test_43_the_service_is_not_ready_without_permission_to_allocate_and_says_so(ground: Ground, lesser: Lesser) -> None:
    (grant,) = (found for found in _grants() if found.resource == "resourceclaims/binding")
    lesser.grant(grant)
    replica = ground.new_extender("dra-extender-less", leader_election="false")
    kubeconfig = ground.plane.service_account_kubeconfig(NAMESPACE, ACCOUNT)
    replica.environment["DRA_EXTENDER_KUBECONFIG"] = str(kubeconfig)
    replica.start(wait=False)
    ground.eventually(lambda: replica.status("/readyz") == 503 and "binding" in str(replica.report()), "the complaint")
    assert "patch resourceclaims/binding.resource.k8s.io" in str(replica.report())
    lesser.grant(None)
    replica.until_ready()
    replica.stop()


OURS = f"system:serviceaccount:{NAMESPACE}:dra-extender"


def test_the_account_creates_and_deletes_only_claims_that_stand_for_extended_resources(ground: Ground) -> None:
    """RBAC allows both verbs on all claims; the policy in manifests/rbac refuses the rest."""
    kubectl = ground.plane.kubectl
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "asking", "namespace": "default"}}
    gated = {"schedulingGates": [{"name": "closed"}], "containers": [{"name": "main", "image": "none"}]}
    ground.plane.apply({**pod, "spec": gated})
    uid = kubectl("get", "pod/asking", "--namespace=default", "--output=jsonpath={.metadata.uid}")
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "asking", "uid": uid, "controller": True}
    mark = {"resource.kubernetes.io/extended-resource-claim": "true"}
    claims: dict[str, dict[str, Any]] = {"own": {"annotations": mark, "ownerReferences": [owner]}, "of-a-user": {}}

    def manifest(name: str, metadata: dict[str, Any]) -> str:
        kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
        return yaml.safe_dump({**kind, "metadata": {"name": name, **metadata}, "spec": {}})

    def refused(*command: str, stdin: str | None = None) -> bool:
        try:
            kubectl(*command, "--dry-run=server", "--namespace=default", f"--as={OURS}", stdin=stdin)
        except KubectlError as problem:
            assert "dra-extender creates and deletes only" in str(problem) or "dra-extender does not" in str(problem)
            return True
        return False

    for name, metadata in claims.items():
        kubectl("create", "--namespace=default", "-f", "-", stdin=manifest(name, metadata))
    ground.eventually(lambda: refused("delete", "--wait=false", "resourceclaim/of-a-user"), "the policy")
    assert not refused("delete", "--wait=false", "resourceclaim/own")
    created = {name: refused("create", "-f", "-", stdin=manifest(f"{name}-2", each)) for name, each in claims.items()}
    assert created == {"own": False, "of-a-user": True}
    stolen = yaml.safe_dump({"metadata": {"annotations": mark, "ownerReferences": [owner]}})
    assert refused("patch", "resourceclaim/of-a-user", "--type=merge", f"--patch={stolen}")
    assert not refused("annotate", "resourceclaim/of-a-user", "dra-extender.dev/adopted=1")
    kubectl("delete", "--namespace=default", "pod/asking", "resourceclaim/of-a-user")


MAPPING = {"containerName": "main", "resourceName": "example.com/gpu", "requestName": "request"}
READY = {"type": "Ready", "status": "False"}
CHANGES: dict[str, tuple[dict[str, Any], bool]] = {
    "the nominated node": ({"status": {"nominatedNodeName": "node"}}, True),
    "a nomination and its condition": (
        {"status": {"nominatedNodeName": "node", "conditions": [{"type": PREEMPTING, "status": "True"}]}},
        True,
    ),
    "a release": ({"status": {"conditions": [{"type": RELEASED, "status": "True"}]}}, True),
    "a victim": ({"status": {"conditions": [{"type": TARGET, "status": "True"}]}}, True),
    "the claim for extended resources": (
        {"status": {"extendedResourceClaimStatus": {"resourceClaimName": "claim", "requestMappings": [MAPPING]}}},
        True,
    ),
    "what devices take of the node": (
        {"status": {"nodeAllocatableResourceClaimStatuses": [{"resourceClaimName": "claim"}]}},
        True,
    ),
    "nothing": ({"status": {}}, True),
    "the phase": ({"status": {"phase": "Failed"}}, False),
    "the phase with a condition": (
        {"status": {"phase": "Failed", "conditions": [{"type": RELEASED, "status": "True"}]}},
        False,
    ),
    "a new field": ({"status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}}, False),
    "a field less": ({"status": {"message": None}}, False),
    "a condition of kubelet": ({"status": {"conditions": [READY]}}, False),
    "a condition less": ({"status": {"conditions": [{**READY, "$patch": "delete"}]}}, False),
    "a label": ({"metadata": {"labels": {"app": "other"}}}, False),
    "an annotation": ({"metadata": {"annotations": {"some": "thing"}}}, False),
    "a finalizer": ({"metadata": {"finalizers": ["example.com/keep"]}}, False),
}


def test_the_account_changes_of_a_pod_only_what_it_needs_to(ground: Ground) -> None:
    """RBAC allows the whole status; the policy in manifests/rbac refuses the rest, for the service account only."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "running", "namespace": "default"}}
    resources = {"limits": {"example.com/gpu": "1"}}
    gated = {
        "schedulingGates": [{"name": "closed"}],
        "containers": [{"name": "main", "image": "none", "resources": resources}],
    }
    ground.plane.apply({**pod, "spec": gated})

    where = "/api/v1/namespaces/default/pods/running/status"

    async def answers(kubeconfig: Path, changes: list[dict[str, Any]], **params: str) -> list[str]:
        """What the API server says against each change; empty when it allows it."""
        found: list[str] = []
        async with await KubeClient.connect(ClientSettings(kubeconfig=str(kubeconfig))) as client:
            for change in changes:
                try:
                    body = msgspec.json.encode(change)
                    await client.request("PATCH", where, params=params, body=body, content_type=STRATEGIC_PATCH)
                except ApiError as problem:
                    found.append(problem.message)
                else:
                    found.append("")
        return found

    admin, account = ground.plane.admin_kubeconfig, ground.plane.service_account_kubeconfig(NAMESPACE, "dra-extender")

    def asked() -> dict[str, str]:
        changes = [change for change, _ in CHANGES.values()]
        return dict(zip(CHANGES, ground.run(answers(account, changes, dryRun="All")), strict=True))

    known = {"message": "known", "conditions": [{**READY, "status": "True"}]}
    assert ground.run(answers(admin, [{"status": known}])) == [""]
    ground.eventually(lambda: asked()["the phase"] != "", "the policy")
    found = asked()
    assert {name: answer == "" for name, answer in found.items()} == {name: may for name, (_, may) in CHANGES.items()}
    assert all("ValidatingAdmissionPolicy 'dra-extender-pods'" in answer for answer in found.values() if answer), found
    assert ground.run(answers(admin, [CHANGES["the phase"][0]], dryRun="All")) == [""]
    ground.plane.kubectl("delete", "--namespace=default", "pod/running")
