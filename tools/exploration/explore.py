"""`make explore`: every scene, the deep ones too. Ends with exit status 1 when something was found."""

from __future__ import annotations

import argparse
import sys
import time

from tools.exploration import gangs, gangscenes
from tools.exploration.scenes import DEEP, QUICK, SLOW
from tools.exploration.search import ViolationError, explore


def main() -> None:
    parser = argparse.ArgumentParser(description="Walk through all interleavings of small worlds.")
    parser.add_argument("--only", metavar="WORD", default="", help="scenes with this word in their names")
    parser.add_argument(
        "--most", metavar="N", type=int, default=20_000_000, help="give a scene up after so many states"
    )
    options = parser.parse_args()
    states = transitions = found = 0
    for scene in (*QUICK, *SLOW, *DEEP):
        if options.only not in scene.name:
            continue
        begun = time.process_time()
        try:
            explored = explore(scene, most=options.most)
        except ViolationError as violation:
            found += 1
            print(f"{scene.name}: {violation}", flush=True)
            continue
        states, transitions = states + explored.states, transitions + explored.transitions
        print(f"{scene.name}: {explored}, {time.process_time() - begun:.0f} s", flush=True)
    for world in (*gangscenes.QUICK, *gangscenes.SLOW):
        if options.only not in world.name:
            continue
        try:
            print(f"{world.name}: {gangs.explore(world):,} orders", flush=True)
        except gangs.Broken as broken:
            found += 1
            print(broken, flush=True)
    print(f"{states:,} states, {transitions:,} transitions, violations: {found}")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
