"""GPUs that can be cut into partitions, as a driver publishes them: every profile at every place where it may begin.

The counters are eight slices of memory and the multiprocessors, as on NVIDIA's GPUs with seven compute slices.
"""

from __future__ import annotations

from typing import Any, Final

_SLICES: Final = 8
_PLACES: Final = {"1g": (0, 1, 2, 3, 4, 5, 6), "2g": (0, 2, 4), "3g": (0, 4), "4g": (0,), "7g": (0,)}
_MEMORY: Final = {"1g": 1, "2g": 2, "3g": 4, "4g": 4, "7g": 8}


def counters(gpu: int) -> dict[str, Any]:
    """The counter set of a GPU."""
    slices = {f"memory-slice-{number}": {"value": "1"} for number in range(_SLICES)}
    return {"name": f"gpu-{gpu}", "counters": {**slices, "multiprocessors": {"value": "98"}}}


def devices(gpu: int) -> list[dict[str, Any]]:
    """All partitions of a GPU, small ones first."""
    return [_device(gpu, profile, place) for profile, places in _PLACES.items() for place in places]


def _device(gpu: int, profile: str, place: int) -> dict[str, Any]:
    slices = {f"memory-slice-{place + number}": {"value": "1"} for number in range(_MEMORY[profile])}
    used = {**slices, "multiprocessors": {"value": str(14 * int(profile[0]))}}
    return {
        "name": f"gpu-{gpu}-{profile}-{place}",
        "attributes": {"profile": {"string": profile}},
        "consumesCounters": [{"counterSet": f"gpu-{gpu}", "counters": used}],
    }
