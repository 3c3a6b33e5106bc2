"""The PodDisruptionBudgets as the watch brought them; none while preemption is off and nobody follows them."""

from __future__ import annotations

from dra_extender.api.policy import PodDisruptionBudget


class DisruptionBudgets:
    """By `namespace/name`."""

    def __init__(self) -> None:
        self._known: dict[str, PodDisruptionBudget] = {}

    def apply(self, budget: PodDisruptionBudget) -> None:
        """A new or changed budget."""
        self._known[budget.metadata.key] = budget

    def remove(self, budget: PodDisruptionBudget) -> None:
        """A deleted budget."""
        self._known.pop(budget.metadata.key, None)

    def all(self) -> tuple[PodDisruptionBudget, ...]:
        return tuple(self._known.values())
