"""How many examples a property gets: in `make test` as many as it says, in `make thorough` twenty times as many, in
`make truth` 150 times."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

USUAL = 100

# How long an example takes says more about the machine than about the code.
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("tests", max_examples=USUAL, deadline=None, suppress_health_check=SLOW)
settings.register_profile("thorough", settings.get_profile("tests"), max_examples=20 * USUAL)
settings.register_profile("exhaustive", settings.get_profile("tests"), max_examples=150 * USUAL)
settings.load_profile("tests")  # pytest loads another one after this module


def examples(usual: int) -> int:
    """For `max_examples`, where the default of the profile does not serve."""
    return usual * settings().max_examples // USUAL
