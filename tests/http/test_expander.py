"""The gRPC expander: which node groups cluster-autoscaler may choose from."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import trustme

from dra_extender.api.core import Node
from dra_extender.api.decoding import convert
from dra_extender.http import expander
from dra_extender.http.expander import CALLS_OF_CONNECTION, ExpanderServer, best, decoded, node_of
from dra_extender.http.metrics import Metrics
from dra_extender.limits import FIELDS_OF_MESSAGE
from dra_extender.scheduling.turns import Turns, run_at_once
from dra_extender.scheduling.view import View
from tests.http.test_whatif import Known
from tests.insight.whatif.test_properties import state
from tests.support.diagnosis.gpupods import pod, running, waiting
from tests.support.diagnosis.hardware import DEDICATED, device_class, divided, gpus, node
from tests.support.diagnosis.heldcluster import GATES, GPU
from tests.support.diagnosis.scene import Scene
from tests.support.http.certificates import write_certificate
from tests.support.http.expanding import NODE, RECORDED, field, groups_in, option, request, template

Json = dict[str, Any]


def machine(group: str, devices: int = 0, model: str = "A", **spec: Any) -> list[Json]:
    """A node of the group, with GPUs."""
    name = f"{group}-1"
    return [
        node(name, labels={"group": group}, **spec),
        *([gpus(name, model, devices, "1Gi", "1.0.0")] if devices else []),
    ]


def new(group: str, labels: Json | None = None, cpu: str = "8", **spec: Any) -> bytes:
    """The template of the group."""
    document = node(f"template-{group}", labels=labels or {"group": group}, **spec)
    document["status"]["allocatable"] = document["status"]["allocatable"] | {"cpu": cpu}
    return template(document)


CLASSES = [device_class("gpu", f'device.driver == "{GPU}"')]
A2, B1 = machine("a", 2), machine("b", 1)


def view_of(*documents: Json) -> View:
    return Scene([*CLASSES, *documents], gates=GATES).view()


def choose(view: View, data: bytes) -> list[str]:
    options, templates = run_at_once(decoded(data))
    return [each.group for each in run_at_once(best(view, options, templates))]


def of_class(name: str, documents: list[Json]) -> list[Json]:
    documents[1]["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = name
    return documents


@pytest.mark.parametrize(
    ("documents", "pods", "nodes", "kept"),
    [
        # what does not fit is left out
        ([*A2, *B1, *waiting("w", 2)], "w", 1, "a"),
        ([*A2, *B1, *waiting("w", 3)], "w", 1, ""),
        ([*A2, *machine("b", 2), *waiting("w", 2)], "w", 1, "ab"),
        ([*A2, *B1, *running("p", "a-1", "gpu-0", "gpu-1"), *waiting("w", 2)], "w", 1, "a"),
        # most pods, then fewest nodes
        ([*A2, *B1, *waiting("v"), *waiting("w")], "vw", 1, "a"),
        ([*A2, *B1, *waiting("v"), *waiting("w")], "vw", 2, "a"),
        ([*A2, *B1, *waiting("v"), *waiting("w"), *waiting("x", 2)], "vwx", 9, "a"),
        ([*A2, *machine("b", 2), *waiting("v"), *waiting("w")], "vw", 2, "ab"),
        # least parts of devices left free, then fewest whole devices
        ([*A2, *machine("b", 3), *waiting("v"), *waiting("w")], "vw", 2, "a"),
        ([*A2, *B1, *waiting("v")], "v", 1, "b"),
        ([*machine("a"), *divided("a-1", 4), *machine("b"), *divided("b-1", 2), *waiting("w")], "w", 1, "b"),
        ([*machine("a"), *divided("a-1", 2), *machine("b", 4), *waiting("w")], "w", 1, "b"),
        ([*machine("a"), *divided("a-1", 2, 3), *machine("b"), *divided("b-1", 2, 2), *waiting("w")], "w", 1, "b"),
        ([*machine("a"), *divided("a-1", 2), *machine("b"), *divided("b-1", 2), *waiting("w")], "w", 1, "ab"),
        # no node of the group, or none with devices
        ([*A2, *waiting("w")], "w", 1, "ab"),
        ([*A2, *waiting("w", 3)], "w", 1, "b"),
        ([*A2, *machine("b"), *waiting("w")], "w", 1, "a"),
        ([*machine("a"), *machine("b"), *waiting("w")], "w", 1, "ab"),
        ([*A2, *machine("b"), *waiting("w", 3)], "w", 1, "b"),
        (waiting("w"), "w", 1, "ab"),
        # pods that use no devices, run, or are unknown
        ([*A2, *B1], "w", 1, "ab"),
        ([*A2, *B1, pod("w") | {"spec": {"containers": []}}], "w", 1, "ab"),
        ([*A2, *B1, *running("w", "a-1", "gpu-0")], "w", 1, "ab"),
        ([*A2, *B1, *waiting("w", 2)], "wz", 2, "a"),
    ],
)
def test_the_options_that_suit_the_pods_best_are_kept(documents: list[Json], pods: str, nodes: int, kept: str) -> None:
    view = view_of(*documents)
    before = state(view)
    for number in (0, 1):  # as older and newer versions send pods and nodes
        options = [option(group, [*pods], nodes, 4 + number) for group in "ab"]
        assert choose(view, request(options, {group: new(group) for group in "ab"}, 2 + number)) == [*kept]
    assert state(view) == before


@pytest.mark.parametrize(
    ("template", "kept"),
    [
        (new("b"), "ab"),
        (new("b", taints=[DEDICATED]), "a"),
        (new("b", cpu="500m"), "a"),
        (new("b", cpu="much"), "ab"),  # it contradicts itself, so nothing is known
        (new("b", cpu="-1"), "ab"),
        (new("b", taints=[{"key": "", "effect": ""}]), "ab"),
        (new("b", {"group": "b", "karpenter.sh/nodepool": "none"}), "ab"),  # no node is like it
        (new("b", {"kubernetes.io/os": "linux", "topology.kubernetes.io/zone": "z"}), "ab"),
        (NODE, "ab"),
        (b"", "ab"),
    ],
)
def test_a_new_node_has_labels_taints_and_resources_of_its_template(template: bytes, kept: str) -> None:
    view = view_of(*A2, *machine("b", 2), *waiting("w"))
    assert choose(view, request([option(group, "w") for group in "ab"], {"a": new("a"), "b": template})) == [*kept]


def test_groups_for_different_pods_are_both_kept() -> None:
    """Each fits one pod of two: without either of them cluster-autoscaler could add no node."""
    models = [device_class(name, f'device.attributes["{GPU}"].model == "{name.upper()}"') for name in "ab"]
    pods = [item for name in "ab" for item in of_class(name, waiting(name))]
    view = view_of(*models, *machine("a", 1, "A"), *machine("b", 1, "B"), *pods)
    assert choose(view, request([option(group, "ab", 2) for group in "ab"], {g: new(g) for g in "ab"})) == ["a", "b"]


def test_a_gang_may_use_existing_nodes_beside_new_ones() -> None:
    members = [item for name in "vw" for item in waiting(name, 2)]
    for member in members[::2]:
        member["metadata"]["annotations"] = {"dra-extender.dev/gang": "g", "dra-extender.dev/gang-size": "2"}
    view = view_of(*A2, *B1, *members)
    assert choose(view, request([option(group, "w") for group in "ab"], {g: new(g) for g in "ab"})) == ["a"]


def only_one_fits(chance: random.Random) -> tuple[View, bytes, str]:
    """The cluster, the request, and the only group that suits the pods. The other groups lack devices, resources
    or a toleration, or have devices of another model.
    """
    groups = [f"group-{number}" for number in range(chance.randint(2, 5))]
    right, wanted = chance.choice(groups), chance.randint(1, 4)
    pods = [f"p{number}" for number in range(chance.randint(1, 4))]
    documents, templates = list[Json](), dict[str, bytes]()
    for group in groups:
        fault = "" if group == right else chance.choice(("few", "none", "other", "small", "taint"))
        devices = {"few": wanted - 1, "none": 0}.get(fault, wanted + chance.randint(0, 3))
        documents += machine(group, devices, "B" if fault == "other" else "A")
        if chance.random() < 0.5 and devices:
            documents += running(f"r-{group}", f"{group}-1", "gpu-0")
        taints = [DEDICATED] if fault == "taint" else []
        templates[group] = new(group, cpu="100m" if fault == "small" else "8", taints=taints)
    documents += [item for name in pods for item in of_class("model-a", waiting(name, wanted))]
    chance.shuffle(groups)
    options = [option(group, pods, chance.randint(1, 5)) for group in groups]
    models = device_class("model-a", f'device.attributes["{GPU}"].model == "A"')
    return view_of(models, *documents), request(options, templates, chance.choice((2, 3))), right


# --- messages


def test_a_recorded_node_is_read_as_its_json() -> None:
    expected = convert(Node, RECORDED["nodeJSON"])
    found = convert(Node, node_of(NODE))
    assert (found.name, found.metadata.labels) == (expected.name, expected.metadata.labels)
    assert found.spec.taints == expected.spec.taints
    assert found.status == expected.status


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a",
        b"\x0a\x05a",
        b"\x0b",
        b"\x0f\x01",
        b"\x80" * 11,
        b"\x0a\x02\x08",
        b"\x0a\x02\x12\x00",
        b"\x0a\x03\x12\x01\x80",
        NODE[:-9],
    ],
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"invalid protobuf|more than ten bytes"):
        run_at_once(decoded(data))


def test_whatever_bytes_come_are_read_or_refused() -> None:
    chance = random.Random(7)
    whole = request([option("a", "w")], {"a": NODE})
    view = view_of(*A2, *waiting("w"))
    read = 0
    for _ in range(400):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 6)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            choose(view, bytes(data))
            read += 1
        except ValueError:
            pass
    assert 0 < read < 400


def test_a_message_has_so_many_fields_and_no_more() -> None:
    few = [option("a", ()) for _ in range(FIELDS_OF_MESSAGE)]
    assert len(run_at_once(decoded(request(few, {})))[0]) == len(few)
    with pytest.raises(ValueError, match="more than 1,000 fields"):
        run_at_once(decoded(request([*few, *few], {})))


def test_of_an_option_with_more_pods_the_first_count() -> None:
    data = option("a", ()) + b"".join(field(5, str(number)) for number in range(2 * FIELDS_OF_MESSAGE))
    pods = run_at_once(decoded(field(1, data)))[0][0].pods
    assert pods == [str(number).encode() for number in range(FIELDS_OF_MESSAGE - 3)]


@pytest.mark.parametrize(
    "data",
    [
        field(1, field(11, field(3, "") * 3)),
        field(2, field(5, field(1, "") * 5)),
        field(3, field(2, field(1, "cpu") + field(2, field(1, "") * 2))),
    ],
)
def test_a_label_a_taint_and_an_amount_have_no_further_fields(data: bytes) -> None:
    """Else one of them could take as much work as a whole node."""
    with pytest.raises(ValueError, match=r"more than \d fields"):
        node_of(data)


def test_options_and_templates_are_decoded_in_steps() -> None:
    whole = request([option("a", "w")] * 20, {str(number): NODE for number in range(30)})
    assert sum(1 for _ in decoded(whole)) == 50


# --- calls

Call = Callable[..., Any]


class Stage:
    """An expander, and its clients."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca, self.clients = trustme.CA(), trustme.CA()
        self.metrics = Metrics()
        self.known = Known(view_of(*A2, *B1, *waiting("w", 2)))
        self.files = write_certificate(folder, self.ca, clients=self.clients)

    async def call(self, data: bytes, *, mutual: bool = True, certificate: trustme.CA | None = None) -> bytes:
        """One call."""
        async with self.client(mutual=mutual, certificate=certificate) as ask:
            found: bytes = await ask(data)
            return found

    @asynccontextmanager
    async def client(self, *, mutual: bool = True, certificate: trustme.CA | None = None) -> AsyncIterator[Call]:
        """Calls a server that demands certificates if `mutual`; by a client with one of this CA."""
        server = ExpanderServer(self.known, self.metrics, "127.0.0.1:0", self.files[: 3 if mutual else 2], 100_000)
        await server.start()
        own = certificate.issue_cert("ca") if certificate is not None else None
        key, chain = (own.private_key_pem.bytes(), own.cert_chain_pems[0].bytes()) if own is not None else (None, None)
        credentials = grpc.ssl_channel_credentials(self.ca.cert_pem.bytes(), key, chain)
        try:
            async with grpc.aio.secure_channel(f"localhost:{server.port}", credentials) as channel:
                yield channel.unary_unary("/grpcplugin.Expander/BestOptions")
        finally:
            await server.stop(1)

    def counted(self) -> dict[str, int]:
        lines = self.metrics.exposition().decode().splitlines()
        found = (line for line in lines if line.startswith("dra_extender_expansions_total{"))
        values = {line.split('"')[1]: int(float(line.split()[-1])) for line in found}
        return {result: number for result, number in values.items() if number}


ASKED = request([option(group, "w") for group in "ab"], {group: new(group) for group in "ab"})


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


async def test_a_client_with_a_certificate_gets_the_options_without_their_pods(stage: Stage) -> None:
    assert groups_in(await stage.call(ASKED, certificate=stage.clients)) == ["a"]
    assert stage.counted() == {"some": 1}


async def test_the_group_that_does_not_suit_is_never_chosen(stage: Stage) -> None:
    async with stage.client(certificate=stage.clients) as ask:
        for seed in range(200):
            view, asked, right = only_one_fits(random.Random(seed))
            stage.known.view, before = view, state(view)
            assert groups_in(await ask(asked)) == [right], seed
            assert state(view) == before, seed
    assert stage.counted() == {"some": 200}


async def test_a_client_without_a_certificate_is_refused_unless_any_client_may_call(stage: Stage) -> None:
    for certificate in (None, trustme.CA()):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stage.call(ASKED, certificate=certificate)
        assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
    assert stage.counted() == {}
    assert groups_in(await stage.call(ASKED, mutual=False)) == ["a"]


async def test_calls_of_a_connection_wait_for_each_other_before_their_messages_are_received(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten calls at once took a GiB of messages, although all but two were refused. A call that comes while the server
    ends an earlier one is refused before its message; clients repeat it.
    """
    answer, running, most = ExpanderServer._best_options, 0, 0

    async def counting(*args: Any) -> bytes:
        nonlocal running, most
        running, most = running + 1, max(most, running + 1)
        try:
            return await answer(*args)
        finally:
            running -= 1

    monkeypatch.setattr(ExpanderServer, "_best_options", counting)
    async with stage.client(certificate=stage.clients) as ask:
        await ask(ASKED)  # from then on the client knows what the server allows
        found = await asyncio.gather(*(ask(ASKED) for _ in range(10)), return_exceptions=True)
    answers = [each for each in found if isinstance(each, bytes)]
    refused = [each.code() for each in found if isinstance(each, grpc.aio.AioRpcError)]
    assert [groups_in(each) for each in answers] == [["a"]] * (10 - len(refused))
    assert (set(refused) <= {grpc.StatusCode.UNAVAILABLE}, most <= CALLS_OF_CONNECTION) == (True, True)
    assert answers


@pytest.mark.parametrize(
    ("data", "code", "told"),
    [
        (b"\x0a", grpc.StatusCode.INVALID_ARGUMENT, "invalid protobuf"),
        (field(1, b"\xff"), grpc.StatusCode.INVALID_ARGUMENT, "invalid protobuf"),
        (field(1, field(1, b"\xff")), grpc.StatusCode.INVALID_ARGUMENT, "codec can't decode"),
        (b"\x0a" * 200_000, grpc.StatusCode.RESOURCE_EXHAUSTED, "larger"),
    ],
)
async def test_an_invalid_request_gets_a_status(stage: Stage, data: bytes, code: grpc.StatusCode, told: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match=told) as refused:
        await stage.call(data, certificate=stage.clients)
    assert refused.value.code() == code


async def test_while_the_cluster_is_not_known_a_call_gets_a_status(stage: Stage) -> None:
    stage.known.unknown = lambda: "not synced"  # type: ignore[method-assign]
    with pytest.raises(grpc.aio.AioRpcError, match="not synced") as refused:
        await stage.call(ASKED, certificate=stage.clients)
    assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
    assert stage.counted() == {"error": 1}


async def test_without_time_to_compare_them_all_options_are_kept(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(*_: object) -> Turns[list[expander.Option]]:
        while True:
            yield

    monkeypatch.setattr(expander, "best", endless)
    monkeypatch.setattr(expander, "SECONDS", 0.01)
    assert groups_in(await stage.call(ASKED, certificate=stage.clients)) == ["a", "b"]
    assert stage.counted() == {"late": 1}
