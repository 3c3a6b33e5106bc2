"""Every field that is decided on arrives from every served version: the objects are made from the v1 structs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dra_extender.api import resource as v1
from dra_extender.api.decoding import encode, to_builtins
from dra_extender.kube.resources import device_classes, device_taint_rules, resource_claims, resource_slices
from tests.support.specimens import specimen

Json = dict[str, Any]


def unfilled(value: Any, path: str = "") -> list[str]:
    """Fields at their defaults, in all structs of a struct."""
    found: list[str] = []
    if isinstance(value, msgspec.Struct):
        fresh = {field.name: field.default for field in msgspec.structs.fields(value)}
        for name in value.__struct_fields__:
            item = getattr(value, name)
            found += [f"{path}.{name}"] if item == fresh[name] or item in ((), {}) else unfilled(item, f"{path}.{name}")
    elif isinstance(value, tuple):
        found += [name for item in value for name in unfilled(item, path)]
    elif isinstance(value, dict):
        found += [name for item in value.values() for name in unfilled(item, path)]
    return found


@pytest.mark.parametrize("kind", [v1.ResourceSlice, v1.ResourceClaim, v1.DeviceClass, v1.DeviceTaintRule])
def test_the_objects_of_these_tests_have_every_field(kind: type[Any]) -> None:
    assert unfilled(specimen(kind)) == []


def in_v1beta1(item: Json) -> Json:
    """Devices carry all but their name under `basic`, requests those of an exact request directly."""
    spec = item["spec"]
    if "pool" in spec:
        devices = [{"name": device.pop("name"), "basic": device} for device in spec["devices"]]
        return item | {"spec": spec | {"devices": devices}}
    requests = [request.pop("exactly") | request for request in spec["devices"]["requests"]]
    return item | {"spec": spec | {"devices": spec["devices"] | {"requests": requests}}}


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
@pytest.mark.parametrize(
    ("kind", "resource"), [(v1.ResourceSlice, resource_slices), (v1.ResourceClaim, resource_claims)]
)
def test_slices_and_claims_keep_every_field(version: str, kind: type[Any], resource: Any) -> None:
    item = specimen(kind)
    served = to_builtins(item)
    if version == "v1beta1":
        served = in_v1beta1(served)
    assert resource(version).decode(encode(served)) == item


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
@pytest.mark.parametrize(
    ("kind", "resource"), [(v1.DeviceClass, device_classes), (v1.DeviceTaintRule, device_taint_rules)]
)
def test_classes_and_taint_rules_keep_every_field(version: str, kind: type[Any], resource: Any) -> None:
    item = specimen(kind)
    assert resource(version).decode(encode(item)) == item
