"""Exit statuses of the commands: 0 yes, 1 no, 2 a question that cannot be answered; asked of a file, as processes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from dra_extender.cli.main import app
from dra_extender.cli.output import FAILED, NO, YES
from dra_extender.cli.questions import Source
from dra_extender.cli.snapshot import take
from dra_extender.version import VERSION
from embedded_cluster.hardware import GPU_DRIVER
from tests.support.service.world import World


@pytest.fixture
async def file(world: World, source: Source, tmp_path: Path) -> str:
    """Pods `small` and `big` wait for one GPU and for three; `alone` has none; `held` has one of the second node."""
    for name, count in (("small", 1), ("big", 3), ("held", 1)):
        world.claim(name, count)
        world.pod(name, name, node=world.nodes[1] if name == "held" else "")
    world.pod("alone")
    world.allocate("held", "held", world.nodes[1])
    file = tmp_path / "cluster.json.gz"
    assert await take(file, source) == YES
    return str(file)


def run(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


ASKED = [
    ("why small", YES),
    ("why pod/small", YES),
    ("why default/small", YES),
    ("why big", NO),
    ("why nobody", FAILED),
    ("why", NO),
    ("why -n elsewhere", YES),
    ("why -A -n default", FAILED),
    ("why small -f pod.yaml", FAILED),
    ("devices", YES),
    ("devices --state tainted", NO),
    ("devices --node nowhere", FAILED),
    ("top namespaces", YES),
    ("top namespaces -n elsewhere", NO),
    ("top pods", FAILED),
    (f"headroom {GPU_DRIVER} --count 2", YES),
    (f"headroom {GPU_DRIVER} --count 3", NO),
    ("headroom gqu", FAILED),
    ("whatif small", YES),
    ("whatif big", NO),
    ("whatif --drain nowhere", FAILED),
    ("simulate -f nowhere.yaml", FAILED),
    ("compact small", YES),
    ("compact pod/small", YES),
    ("compact big", NO),
    ("compact held", FAILED),
    ("compact big -f claim.yaml", FAILED),
    ("audit", YES),
    ("selector true", YES),
    ("selector false", NO),
    ("selector device.nonsense", FAILED),
    ("selector device.attributes['gpu.example.com'].modle=='x'", FAILED),
    ("selector", FAILED),
    ("unheard-of", FAILED),
    ("devices --feature-gates Nonsense=true", FAILED),
]


@pytest.mark.parametrize(("words", "status"), ASKED)
def test_the_status_is_the_answer(file: str, words: str, status: int) -> None:
    command, *more = words.split()
    found = run(command, *more, "--from", file)
    assert found.exit_code == status, found.output
    assert not re.search(r"Traceback|None\b|NoneType|\bdict\b|\bstr\b|\bint\b", found.output), found.output


@pytest.mark.parametrize("output", ["json", "yaml"])
@pytest.mark.parametrize(
    "words",
    [
        "why big", "devices", "top", "top namespaces -n elsewhere", f"headroom {GPU_DRIVER}", "whatif", "compact big",
        "compact small", "audit", "selector true",
    ],
)  # fmt: skip
def test_every_answer_can_be_had_for_programs(file: str, words: str, output: str) -> None:
    told = run(*words.split(), "-o", output, "--from", file)
    assert told.exit_code == run(*words.split(), "--from", file).exit_code
    loaded = json.loads(told.stdout) if output == "json" else yaml.safe_load(told.stdout)
    assert isinstance(loaded, dict)


@pytest.mark.parametrize(
    "words", ["why p", "devices", "top", "headroom gpu", "whatif", "compact p", "audit", "selector true"]
)
@pytest.mark.parametrize("where", [("--kubeconfig", "nowhere"), ("--from", "nowhere")])
def test_a_command_without_a_cluster_fails_with_the_reason_on_standard_error(
    words: str, where: tuple[str, str]
) -> None:
    found = run(*words.split(), *where)
    assert (found.exit_code, found.stdout) == (FAILED, "")
    assert found.stderr.startswith("dra-extender: ")


def test_the_version_is_printed() -> None:
    found = run("--version")
    assert (found.exit_code, found.stdout) == (YES, f"{VERSION}\n")


def test_what_the_pod_of_helm_test_runs_exists() -> None:
    """Only a cluster shows the mistake otherwise: a command that was removed ended this pod with an error."""
    template = Path(__file__).parents[2] / "charts" / "dra-extender" / "templates" / "tests" / "scheduling.yaml"
    (given,) = re.findall(r"args: \[(.+)\]", template.read_text())
    assert CliRunner().invoke(app, given.split(", ")).exit_code == YES
