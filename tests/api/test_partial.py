"""The devices of claims that cannot be decoded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_extender.api.events import PartialAllocation, partial_allocation

DEEP = b"[" * 100_000 + b"]" * 100_000
X = b'{"request":"r","driver":"d","pool":"p","device":"x"}'
Y = b'{"device":"y","pool":"p","driver":"d","tolerations":7,"shareID":"s"}'


def claim(results: bytes, *, spec: bytes = DEEP, config: bytes = DEEP) -> bytes:
    return (
        b'{"metadata":{"name":"c","uid":"u"},"spec":%s,"status":{"reservedFor":7,"allocation":{"devices":{"config":%s,'
        b'"results":%s}}}}' % (spec, config, results)
    )


@pytest.mark.parametrize(
    ("data", "devices", "complete"),
    [
        (claim(b"[%s]" % X), ["x"], True),
        (claim(b"[%s,%s]" % (X, Y)), ["x", "y"], True),
        (claim(b"[%s,{}]" % X), ["x"], False),
        (claim(b'[{"driver":7,"pool":"p","device":"z"},%s]' % X), ["x"], False),
        (claim(b"[%s" % X)[:-4], ["x"], False),
        (claim(b"[]"), [], True),
        (claim(b"null"), [], True),
        (claim(b'"none"'), [], False),
        (claim(b"[%s]" % X, spec=b"[" + b"[]," * 100_000 + b"[]]"), [], False),
        (b'{"spec":%s,"metadata":{}}' % DEEP, [], True),
        (b'{"spec":%s,"status":null}' % DEEP, [], True),
        (b'{"spec":%s,"status":{"allocation":null}}' % DEEP, [], True),
        (b'{"spec":%s' % DEEP, [], False),
        (b"", [], False),
    ],
)
def test_what_can_be_read_of_an_allocation_is_told_and_what_cannot_is_said(
    data: bytes, devices: list[str], complete: bool
) -> None:
    found = partial_allocation(data)
    assert ([result.device for result in found.results], found.complete) == (devices, complete)


def test_a_result_of_which_only_the_device_can_be_read_is_the_whole_device() -> None:
    (result,) = partial_allocation(claim(b"[%s]" % Y)).results
    assert (result.id, result.share_id, result.admin_access) == (("d", "p", "y"), None, None)


NAMED = b'{"nodeSelectorTerms":[{"matchFields":[{"key":"metadata.name","operator":"In","values":["n1"]}]}]}'
LABELLED = b'{"nodeSelectorTerms":[{"matchExpressions":[{"key":"zone","operator":"In","values":["n1"]}]}]}'


@pytest.mark.parametrize(
    ("results", "selector", "pools", "nodes"),
    [
        (b"[%s]" % X, NAMED, [], []),
        (b'[{"driver":"d","pool":"p","device":7}]', NAMED, [("d", "p")], []),
        (b'[{"driver":"d","pool":"p"},{"driver":"d","pool":"p","device":[]}]', NAMED, [("d", "p")], []),
        (b'[{"driver":"d","pool":8,"device":"x"}]', NAMED, [], ["n1"]),
        (b'"none"', NAMED, [], ["n1"]),
        (b'"none"', LABELLED, [], []),
        (b'"none"', b"7", [], []),
        (b'[{"driver":"d","pool":"p"},7]', NAMED, [("d", "p")], ["n1"]),
    ],
)
def test_where_a_device_cannot_be_told_its_pool_is_or_the_node(
    results: bytes, selector: bytes, pools: list[tuple[str, str]], nodes: list[str]
) -> None:
    data = claim(results).replace(b'"allocation":{', b'"allocation":{"nodeSelector":%s,' % selector)
    found = partial_allocation(data)
    assert (list(found.pools), list(found.nodes)) == (pools, nodes)
    assert found.complete == (results == b"[%s]" % X)


@given(st.binary() | st.binary().map(lambda data: claim(data)[:-3]))
def test_whatever_the_bytes_are_there_is_an_answer(data: bytes) -> None:
    assert isinstance(partial_allocation(data), PartialAllocation)
