"""Which taints of nodes and devices a pod or request tolerates."""

from __future__ import annotations

from collections.abc import Iterable

from dra_extender.api.core import Taint, Toleration


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """core/v1 Toleration.ToleratesTaint, and resourceclaim/devicetoleration.go for devices, Kubernetes 1.36. An empty
    key with operator Equal matches any key; times play no role.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


class Tolerations:
    """Many tolerations together: a taint is looked up, however many there are."""

    __slots__ = ("_equal", "_existing")

    def __init__(self, tolerations: Iterable[Toleration]) -> None:
        self._existing: set[tuple[str, str]] = set()
        self._equal: set[tuple[str, str, str]] = set()
        for item in tolerations:
            if item.operator == "Exists":
                self._existing.add((item.key, item.effect))
            elif item.operator in ("", "Equal"):
                self._equal.add((item.key, item.value, item.effect))

    def tolerate(self, taint: Taint) -> bool:
        """Whether one of them does; an empty key or effect stands for any."""
        key, value, effect = taint.key, taint.value, taint.effect
        return any((k, e) in self._existing for k in (key, "") for e in (effect, "")) or any(
            (k, value, e) in self._equal for k in (key, "") for e in (effect, "")
        )
