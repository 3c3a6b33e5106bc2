"""The oldest served version decodes into the same objects as v1."""

from __future__ import annotations

import pytest

from dra_extender.api import resource as v1
from dra_extender.api import v1beta1
from dra_extender.api.decoding import DecodeError, convert, encode


def test_a_flat_request_becomes_an_exact_one() -> None:
    flat = {"name": "r", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2, "adminAccess": True}
    old = v1beta1.decode_claim(encode({"metadata": {"name": "c"}, "spec": {"devices": {"requests": [flat]}}}))
    exact = {key: value for key, value in flat.items() if key != "name"}
    new = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [{"name": "r", "exactly": exact}]}}}
    assert old == convert(v1.ResourceClaim, new)


def test_a_prioritized_list_stays_what_it_is() -> None:
    request = {"name": "r", "firstAvailable": [{"name": "big", "deviceClassName": "gpu"}]}
    body = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}}
    assert v1beta1.decode_claim(encode(body)) == convert(v1.ResourceClaim, body)


def test_devices_are_lifted_out_of_basic_and_zero_values_mean_absent() -> None:
    basic = {"attributes": {"index": {"int": 1}}, "capacity": {"memory": {"value": "1Gi"}}}
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    old = {
        "metadata": {"name": "s"},
        "spec": {
            "driver": "d",
            "pool": pool,
            "nodeName": "",
            "allNodes": False,
            "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "Exists"}]}]},
            "devices": [{"name": "a", "basic": basic}, {"name": "bare"}],
        },
    }
    new = {
        "metadata": {"name": "s"},
        "spec": {
            "driver": "d",
            "pool": pool,
            "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "Exists"}]}]},
            "devices": [{"name": "a", **basic}, {"name": "bare"}],
        },
    }
    assert v1beta1.decode_slice(encode(old)) == convert(v1.ResourceSlice, new)


def test_opaque_parameters_are_copied_as_they_are_written() -> None:
    parameters = b'{"big": 1e400, "nested": [ null ]}'
    config = b'{"config":[{"opaque":{"driver":"d","parameters":%s}}],"requests":[{"name":"r"}]}' % parameters
    claim = v1beta1.decode_claim(b'{"metadata":{"name":"c"},"spec":{"devices":%s}}' % config)
    (found,) = claim.spec.devices.config
    assert found.opaque is not None
    assert bytes(found.opaque.parameters) == parameters


def test_what_cannot_be_rewritten_is_an_error_that_names_the_object() -> None:
    with pytest.raises(DecodeError, match="ResourceSlice s: Expected `object`"):
        v1beta1.decode_slice(b'{"metadata":{"name":"s"},"spec":{"devices":[{"name":"a","basic":[]}]}}')
