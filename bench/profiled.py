"""The service under cProfile, from a signal on: `python -m bench.profiled FILE serve ...`.

SIGUSR2 begins the profile, the end of the process writes it. Times are processor time of the thread that runs the event
loop, so what waits, or other load on the machine, does not count.
"""

from __future__ import annotations

import cProfile
import runpy
import signal
import sys
import time
from pathlib import Path


def main() -> None:
    file = Path(sys.argv[1])
    profile = cProfile.Profile(time.thread_time)
    signal.signal(signal.SIGUSR2, lambda *_: profile.enable())
    sys.argv = ["dra-extender", *sys.argv[2:]]
    try:
        runpy.run_module("dra_extender.cli", run_name="__main__", alter_sys=True)
    finally:
        profile.disable()
        profile.dump_stats(file)


if __name__ == "__main__":
    main()
