"""All interleavings of small worlds: two replicas with the real code, the API server of the simulation, and others.

`tools/exploration/world.py` says what a step is and what is bounded, `scenes.py` which worlds there are. What
the walk found at any time is told as a story in `test_interleavings.py`. `make explore` walks through larger worlds.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dra_extender.api.events import Applied
from dra_extender.api.resource import ResourceClaim
from dra_extender.devices.cluster import Continuity
from dra_extender.devices.ledger import Ledger
from dra_extender.scheduling.bind.attempt import Attempt
from dra_extender.scheduling.bind.claimwrite import ClaimWrite
from dra_extender.scheduling.bind.rollback import ClaimRollback
from dra_extender.scheduling.handle import EventHandler
from dra_extender.scheduling.release.clear import Clearer
from dra_extender.scheduling.waiting import Signals
from tools.exploration.scene import Scene
from tools.exploration.scenes import LARGE, QUICK, SLOW
from tools.exploration.search import Explored, ViolationError, explore
from tools.exploration.summary import record

SCENES = {scene.name: scene for scene in (*QUICK, *SLOW, *LARGE)}


def walk(scene: Scene, record_property: Callable[[str, object], None]) -> Explored:
    """Explore, and leave in the report how much that was."""
    explored = explore(scene)
    record(explored, record_property)
    print(f"{scene.name}: {explored}")
    return explored


@pytest.mark.parametrize("scene", QUICK, ids=lambda scene: scene.name)
def test_no_order_of_steps_doubles_loses_or_leaves_behind(
    scene: Scene, record_property: Callable[[str, object], None]
) -> None:
    assert walk(scene, record_property).states >= scene.least


@pytest.mark.slow
@pytest.mark.parametrize("scene", SLOW, ids=lambda scene: scene.name)
def test_no_order_of_steps_in_larger_worlds_doubles_loses_or_leaves_behind(
    scene: Scene, record_property: Callable[[str, object], None]
) -> None:
    assert walk(scene, record_property).states >= scene.least


def test_states_that_are_taken_for_one_go_on_alike() -> None:
    """States of a replica are merged by a look into its coroutines. Without that nothing else is reached."""
    scene = SCENES["idle, swept, joined"]
    assert explore(scene, merge=False).outcomes == explore(scene).outcomes


@pytest.mark.slow
def test_the_tool_explores_the_worlds_of_a_word() -> None:
    command = [sys.executable, "-m", "tools.exploration.explore", "--only", "bound long ago"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)
    (world, found) = done.stdout.splitlines()
    assert world.startswith("bound long ago, swept: 9 states, ")
    assert found == "violations: 0"


# --- what the walk would find -----------------------------------------------------------------------------------------


def returns(value: Any) -> Callable[..., Any]:
    return lambda *args, **named: value


async def _async_false(*args: Any, **named: Any) -> bool:
    return False


async def _async_true(*args: Any, **named: Any) -> bool:
    return True


async def _not_fenced(self: Any) -> None:
    if self.write.claim.allocation is not None:
        await _undo(self)


async def _not_marked(self: Any, go_on: Any) -> None:
    if self._is_complete():
        self._adopted = True
    else:
        await _write_once(self, go_on)


async def _not_marked_again(self: Any) -> None:
    self._version = self._newest


def _late_events_ignored(record: Any, claim: ResourceClaim, uses: Any, after_gap: bool) -> None:
    if record.claim is not None and claim.metadata.version < record.claim.metadata.version:
        record.seen = claim.metadata.version
    else:
        _show(record, claim, uses, after_gap)


def _gaps_unnoticed(self: Any, event: Any) -> Any:
    watched = Applied(event.object) if isinstance(event, Applied) and event.source == "list" else event
    return _apply(self, watched)


_undo, _write_once = ClaimRollback._write, ClaimWrite._write_once
_apply, _show = EventHandler.apply, Ledger._show

PAUSED = "left, taken over by a replica that is paused"

SAFEGUARDS: list[tuple[str, type, str, Any, str]] = [
    (
        "notice in a list that the server was set back",
        Continuity,
        "listed",
        returns(None),
        "one bind, set back, versions bumped",
    ),
    ("notice it in the version of a write", ClaimWrite, "_check_newer", returns(None), "one bind, set back"),
    ("look for rivals after the write", Ledger, "rivals", returns(()), "two claims, one device, two replicas"),
    ("wait until the own write is seen", Signals, "until", _async_true, "two claims, one device, two replicas"),
    ("count what the watch shows late", Ledger, "_show", staticmethod(_late_events_ignored), "allocated anew"),
    ("know a gap for what it is", EventHandler, "apply", _gaps_unnoticed, "allocated anew, a gap"),
    ("mark what is taken over", ClaimWrite, "_write_once", _not_marked, "twins, a limit"),
    ("make a write that may still arrive fail", ClaimRollback, "_write", _not_fenced, "a pod goes, a lost reply"),
    ("ask whether a pod runs before clearing", Clearer, "fence", _async_false, "bound long ago, swept"),
    ("change the pod before clearing", Clearer, "fence", _async_false, PAUSED),
    ("mark the claims of a pod that has changed", Attempt, "_mark_again", _not_marked_again, PAUSED),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "name", "without", "scene"), [row[1:] for row in SAFEGUARDS], ids=[row[0] for row in SAFEGUARDS]
)
def test_without_a_safeguard_the_walk_finds_what_it_is_for(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, without: Any, scene: str
) -> None:
    """The shortest way to it is looked for in small worlds: that visits all states again, breadth first."""
    monkeypatch.setattr(owner, name, without)
    with pytest.raises(ViolationError) as found:
        explore(SCENES[scene], shortest=SCENES[scene].least < 1_000)
    print(found.value)
