"""What goes wrong with a pod or its claims before any node matters: missing, misspelt, unusable or unserved things."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from dra_extender.api.resource import MAX_CONSUMERS, MAX_RESULTS
from tests.support.diagnosis.scene import Scene

Json = dict[str, Any]

MISSPELT = 'device.attributes["gpu.example.com"].modle == "A"'
FAILING = "gpu-failing"
"""The name of a class whose selector fails for the devices that it is about."""
KINDS = (
    "admin access", "admin access", "capacity", "class", "class", "class that fails", "full", "gate", "leaving",
    "missing", "scheduler", "selector", "selector", "template", "too many",
)  # fmt: skip


@st.composite
def mishaps(draw: st.DrawFn, scene: Scene, claims: list[Json], pod: Json) -> Scene:
    """Changes the claims, the pod, or the scene that it returns."""
    kind = draw(st.sampled_from(KINDS))
    spec, claim = pod["spec"], draw(st.sampled_from(claims))
    request = draw(st.sampled_from(claim["spec"]["devices"]["requests"]))
    wanted = draw(st.sampled_from(request.get("firstAvailable") or [request.get("exactly")]))
    match kind:
        case "admin access" if "exactly" in request:
            wanted["adminAccess"] = True
        case "capacity":
            wanted["capacity"] = {"requests": {"bandwidth": "1Gi"}}
        case "class":
            wanted["deviceClassName"] = draw(st.sampled_from(("gpus", "other")))
        case "class that fails":
            wanted["deviceClassName"] = FAILING
        case "full" if running := [item for item in scene.documents if item["kind"] == "ResourceClaim"]:
            users = [{"resource": "pods", "name": f"u{i}", "uid": f"pod-u{i}"} for i in range(MAX_CONSUMERS - 1)]
            running[0]["status"]["reservedFor"] += users
            spec["resourceClaims"].append({"name": "full", "resourceClaimName": running[0]["metadata"]["name"]})
        case "gate":
            spec["schedulingGates"] = [{"name": f"example.com/{name}"} for name in ("quota", "hold")]
        case "leaving":
            claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        case "missing":
            spec["resourceClaims"].append({"name": "more", "resourceClaimName": draw(st.sampled_from(("c00", "none")))})
        case "scheduler":
            spec["schedulerName"] = "dra"
            return scene.served_by("dra-scheduler", "other-scheduler")
        case "selector" if wanted["deviceClassName"] == "gpu":
            clauses = [MISSPELT, *draw(st.sampled_from(((), ('device.driver == "nic.example.com"',))))]
            wanted["selectors"] = [{"cel": {"expression": " && ".join(clauses)}}]
        case "template":
            spec["resourceClaims"].append({"name": "made", "resourceClaimTemplateName": "none"})
        case "too many" if wanted.get("allocationMode") != "All":
            wanted["count"] = MAX_RESULTS + 1
    return scene
