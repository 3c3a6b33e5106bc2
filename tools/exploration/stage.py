"""What the scenes are made of: objects, and what others do. One node with one device, a, unless said otherwise.

Claims: c is shared by all pods that name it, d is another that wants the same device, f is a stranger's. The stranger
acts as kube-scheduler's own plugin may with caches that are behind: it takes the device regardless of its holder, and
binds its pod.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dra_extender.api.core import Pod
from dra_extender.api.resource import FINALIZER, ResourceClaim
from tests.support.simulation.api import Api
from tests.support.simulation.objects import (
    KubernetesObject,
    make_allocated,
    make_claim,
    make_class,
    make_node,
    make_pod,
    make_slice,
)
from tools.exploration.scene import Act, Bind

NODE: tuple[KubernetesObject, ...] = (make_class(), make_node("n1"), make_slice("n1", ["a"]))


# --- what others do ---------------------------------------------------------------------------------------------------


def _takes(api: Api) -> bool:
    claim = api.objects.get((ResourceClaim, "default/f"))
    if claim is None or claim.allocation is not None:
        return False
    wanted = make_allocated("f", "s")
    api.put(msgspec.structs.replace(wanted, metadata=msgspec.structs.replace(wanted.metadata, uid="uid-f")), "foreign")
    return True


def _runs(api: Api) -> bool:
    pod = api.pod("s")
    api.put(msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name="n1")), "foreign")
    return True


def leaves(name: str) -> Act:
    def step(api: Api) -> bool:
        if (Pod, f"default/{name}") not in api.objects:
            return False
        api.drop(api.pod(name))
        return True

    return Act(f"pod {name} goes", step, Pod)


def _releases(api: Api) -> bool:
    before = api.version
    api.clean_up()
    return api.version > before


def _clears(api: Api) -> bool:
    """A person, or a replica of an older release, takes the allocation of c back while no pod runs with it."""
    claim = api.claim("c")
    if claim.allocation is None or api.running(claim):
        return False
    api.set_status("c", allocation=None, reserved_for=())
    return True


def _is_bound(api: Api) -> bool:
    pod = api.pod("p")
    api.put(msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name="n1")))
    return True


def _released(api: Api) -> bool:
    """As the claim controller, but the finalizer stays, which spares a write."""
    api.set_status("c", allocation=None, reserved_for=())
    return True


STRANGER = (Act("the stranger takes a for f", _takes), Act("the stranger binds s", _runs, Pod))
CONTROLLER = Act("the claim controller releases what nobody uses", _releases)
CLEARS = Act("somebody clears c", _clears)
BOUND = Act("p has been bound", _is_bound, Pod)


# --- what is there ----------------------------------------------------------------------------------------------------


def stranger() -> Sequence[KubernetesObject]:
    return make_claim("f"), make_pod("s", "f", schedulerName="default-scheduler")


def protected(claim: ResourceClaim) -> ResourceClaim:
    """With the finalizer, which one of the first scenes lets binds write themselves."""
    return msgspec.structs.replace(claim, metadata=msgspec.structs.replace(claim.metadata, finalizers=(FINALIZER,)))


FRESH = (*NODE, make_claim("c"), make_claim("d"), make_pod("p", "c"), make_pod("q", "d"))
RIVALS = (*NODE, protected(make_claim("c")), protected(make_claim("d")), make_pod("p", "c"), make_pod("q", "d"))
SHARED = (*NODE, protected(make_claim("c")), make_pod("p", "c"), make_pod("q", "c"))
AGED = 100.0
"""Seconds for which what is there in the beginning has been there: longer than any bind takes."""

TAKEN = (*NODE, make_allocated("c", "o"), make_pod("o", "c", node="n1"), make_pod("p", "c"))
ANEW = (*TAKEN, make_pod("r", "c"), *stranger())
MADE_ANEW = (leaves("o"), Act("c is released", _released), STRANGER[0])
"""o goes and c is released; a stranger takes the device; a replica that has not seen this may allocate c again."""

RELEASED = (*TAKEN, protected(make_claim("d")), make_pod("q", "d"))
GOES = (leaves("o"), Act("c is released", _released))
"""In the first state o has the device with c; then o goes and c is released."""

IDLE = (*NODE, make_allocated("c"), make_pod("p", "c"))
LEFT = (*NODE, make_allocated("c", "p"), make_pod("p", "c"))
JOINED = (*TAKEN, make_pod("q", "c"))
OPPOSITE = (
    make_class(),
    make_node("n1"),
    make_slice("n1", ["a", "b"]),
    protected(make_claim("c")),
    protected(make_claim("d")),
    make_pod("p", "c", "d"),
    make_pod("q", "d", "c"),
)
ONE_EACH = (Bind("p", 0), Bind("q", 1))
TWINS = (Bind("p", 0), Bind("p", 1))
