"""Protobuf bodies, as kubectl and programs in Go write them."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedded_cluster.apiserver import protobuf
from embedded_cluster.apiserver.statuses import StatusError
from tests.support.embedded.client import Client
from tests.support.patience import LONGEST

TABLE: dict[str, dict[str, str]] = orjson.loads(protobuf.TABLE.read_bytes())


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def delimited(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def field(number: int, kind: str, value: Any) -> bytes:
    """One field of a type of the table."""
    if kind.startswith("[]"):
        return b"".join(field(number, kind[2:], item) for item in value)
    if kind.startswith("{}"):
        entries = (field(1, "string", key) + field(2, kind[2:], item) for key, item in value.items())
        return b"".join(delimited(number, entry) for entry in entries)
    if kind in ("bool", "int32", "int64"):
        return varint(number << 3) + varint(int(value))
    if kind == "string":
        return delimited(number, value.encode())
    if kind == "bytes":
        return delimited(number, base64.b64decode(value))
    if kind == "api.resource.Quantity":
        return delimited(number, delimited(1, value.encode()))
    if kind == "util.intstr.IntOrString":
        text = isinstance(value, str)
        inner = (
            varint(1 << 3)
            + varint(int(text))
            + (delimited(3, value.encode()) if text else varint(2 << 3) + varint(value))
        )
        return delimited(number, inner)
    return delimited(number, message(kind, value))


def message(name: str, obj: dict[str, Any]) -> bytes:
    """`obj` as the protobuf message `name`."""
    numbers = {spec.split(" ")[0]: (int(number), spec.split(" ")[1]) for number, spec in TABLE[name].items()}
    parts = [field(*numbers[key], value) for key, value in obj.items() if key in numbers]
    rest = {key: value for key, value in obj.items() if key not in numbers}
    embedded = next(((number, kind[1:]) for number, kind in numbers.values() if kind.startswith("=")), None)
    if rest and embedded is not None:
        parts.append(delimited(embedded[0], message(embedded[1], rest)))
    return b"".join(parts)


def body(api_version: str, kind: str, obj: dict[str, Any]) -> bytes:
    meta = delimited(1, delimited(1, api_version.encode()) + delimited(2, kind.encode()))
    return b"k8s\x00" + meta + delimited(2, message(protobuf.message_of(api_version, kind), obj))


POD: dict[str, Any] = {
    "metadata": {"name": "p", "labels": {"a": "b"}, "finalizers": ["x/y"]},
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "busybox",
                "ports": [{"containerPort": 80}],
                "resources": {"limits": {"cpu": "500m"}, "claims": [{"name": "gpu"}]},
                "livenessProbe": {"httpGet": {"port": "web", "path": "/"}},
                "readinessProbe": {"httpGet": {"port": 8080}},
            }
        ],
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "priority": -5,
        "volumes": [{"name": "v", "configMap": {"name": "c", "optional": False}}],
        "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}],
    },
}


def test_a_pod_comes_out_as_it_went_in() -> None:
    assert protobuf.decode(body("v1", "Pod", POD)) == {"apiVersion": "v1", "kind": "Pod", **POD}


@given(
    st.dictionaries(st.text(min_size=1), st.text(min_size=1)), st.dictionaries(st.text("ab", min_size=1), st.binary())
)
def test_every_config_map_comes_out_as_it_went_in(data: dict[str, str], binary: dict[str, bytes]) -> None:
    texts = {key: base64.b64encode(value).decode() for key, value in binary.items()}
    obj = {**({"data": data} if data else {}), **({"binaryData": texts} if texts else {})}
    assert protobuf.decode(body("v1", "ConfigMap", obj)) == {"apiVersion": "v1", "kind": "ConfigMap", **obj}


def test_times_are_written_as_in_json() -> None:
    moment = delimited(2, varint(1 << 3) + varint(1_700_000_000) + varint(2 << 3) + varint(5000))
    data = body("coordination.k8s.io/v1", "Lease", {})
    lease = data[:-2] + delimited(2, delimited(2, delimited(1, b"me") + moment.replace(b"\x12", b"\x22", 1)))
    assert protobuf.decode(lease)["spec"] == {"holderIdentity": "me", "renewTime": "2023-11-14T22:13:20.000005Z"}


@pytest.mark.parametrize(
    ("api_version", "kind", "message_name"),
    [
        ("v1", "Pod", "core.v1.Pod"),
        ("apps/v1", "Deployment", "apps.v1.Deployment"),
        ("rbac.authorization.k8s.io/v1", "Role", "rbac.v1.Role"),
        ("resource.k8s.io/v1beta1", "ResourceSlice", "resource.v1beta1.ResourceSlice"),
        ("apps/v1", "DeleteOptions", "meta.v1.DeleteOptions"),
    ],
)
def test_a_kind_names_its_message(api_version: str, kind: str, message_name: str) -> None:
    assert protobuf.message_of(api_version, kind) == message_name
    assert message_name in TABLE


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"k8s\x00\xff",
        b"k8s\x00\x12\x05a",
        b"k8s\x00\x0f",
        b"k8s\x00\x08\x00",
        body("v1", "Pod", {})[:-1] + b"\x03\x0a\xff\x01",
        b"k8s\x00" + delimited(1, delimited(1, b"v1") + delimited(2, b"Nonsense")),
    ],
)
def test_what_is_no_object_is_refused(data: bytes) -> None:
    with pytest.raises(StatusError) as refused:
        protobuf.decode(data)
    assert refused.value.code == 400


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        assert protobuf.decode(b"k8s\x00" + data)["kind"]
    except StatusError as error:
        assert error.code == 400


async def test_the_server_takes_protobuf_and_answers_json(client: Client) -> None:
    data = body("v1", "Namespace", {"metadata": {"name": "team"}})
    code, answer = await client.request("POST", "/api/v1/namespaces", data, content_type=protobuf.MEDIA_TYPE)
    assert (code, answer["metadata"]["name"], answer["status"]) == (201, "team", {"phase": "Active"})


async def test_a_binding_in_protobuf_binds(client: Client) -> None:
    spec = {key: value for key, value in POD["spec"].items() if key != "priority"}  # nobody may write the number
    client.server.store.create({"apiVersion": "v1", "kind": "Pod", **POD, "spec": spec})
    data = body("v1", "Binding", {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}})
    path = "/api/v1/namespaces/default/pods/p/binding"
    async with asyncio.timeout(LONGEST):
        code, _ = await client.request("POST", path, data, content_type=protobuf.MEDIA_TYPE)
    bound = client.server.store.get("pods", "p", "default")
    assert bound is not None
    assert (code, bound["spec"]["nodeName"]) == (201, "n1")
