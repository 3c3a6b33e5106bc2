"""`make explore`: every scene, the deep ones too. Ends with exit status 1 when something was found.

Each processor explores one scene at a time.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from dra_extender.limits import FRAMES
from tools.exploration import gangs, gangscenes, scenes
from tools.exploration.search import ViolationError, explore

BINDS = {scene.name: scene for scene in (*scenes.QUICK, *scenes.SLOW, *scenes.LARGE, *scenes.DEEP)}
GANGS = {f"gangs: {scene.name}": scene for scene in (*gangscenes.QUICK, *gangscenes.SLOW, *gangscenes.LARGE)}


def binds(name: str, most: int) -> str:
    """What a world of binds has. Raises ViolationError."""
    explored = explore(BINDS[name], most=most)
    assert explored.states >= BINDS[name].least, explored
    return str(explored)


def orders(name: str) -> str:
    """How many orders a world of gangs has. Raises Broken."""
    return f"{gangs.explore(GANGS[name]):,} orders"


def told(name: str, explored: Callable[[], str]) -> tuple[bool, str]:
    """Whether nothing was found, and what to print."""
    sys.setrecursionlimit(FRAMES)  # as the entry points do
    begun = time.process_time()
    try:
        return True, f"{name}: {explored()}, {time.process_time() - begun:.0f} s"
    except (ViolationError, gangs.Broken) as violation:
        return False, f"{name}: {violation}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Walk through all interleavings of small worlds.")
    parser.add_argument("--only", metavar="WORD", default="", help="scenes with this word in their names")
    parser.add_argument(
        "--large", action="store_true", help="the scenes that `make test` leaves out, less the deep ones"
    )
    parser.add_argument(
        "--most", metavar="N", type=int, default=20_000_000, help="give a scene up after so many states"
    )
    options = parser.parse_args()
    large = {scene.name for scene in scenes.LARGE} | {f"gangs: {scene.name}" for scene in gangscenes.LARGE}
    jobs = [partial(told, name, partial(binds, name, options.most)) for name in BINDS]
    jobs += [partial(told, name, partial(orders, name)) for name in GANGS]
    wanted = [job for job in jobs if options.only in job.args[0] and (not options.large or job.args[0] in large)]
    found = 0
    with ProcessPoolExecutor() as pool:
        for is_well, text in (future.result() for future in [pool.submit(job) for job in wanted]):
            found += not is_well
            print(text, flush=True)
    print(f"violations: {found}")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
