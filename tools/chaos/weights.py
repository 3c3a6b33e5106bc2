"""How often what happens in a chaotic world."""

from __future__ import annotations

from typing import Final

WEIGHTS: Final = {
    "schedule": 42,
    "add pod": 20,
    "delete pod": 6,
    "finish pod": 2,
    "replace pod": 2,
    "replace claim": 3,
    "fault": 10,
    "stranger": 4,
    "hardware": 4,
    "node": 1.5,
    "driver": 4,
    "kill": 4,
    "watch gap": 3,
    "outage": 1,
    "permission": 2,
    "spoil claim": 3,
    "touch claim": 2,
    "depose": 1,
    "clock jump": 1,
    "pause": 2,
    "set back": 1,
    "tenant": 6,
    "time passes": 3,
}
