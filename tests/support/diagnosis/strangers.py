"""Misfits whose devices pods of another namespace use."""

from __future__ import annotations

from typing import Final

import msgspec

from tests.support.diagnosis.misfits import CLUSTERS, Misfit
from tests.support.diagnosis.scene import Scene

SECRET: Final = "secret"
"""The other namespace, and a part of the name of everything in it."""


def among_strangers(misfit: Misfit) -> Scene:
    """The pods that run are of another namespace than the pod that waits."""
    holders = tuple(msgspec.structs.replace(each, name=f"{SECRET}-{each.name}") for each in misfit.holders)
    before = msgspec.structs.replace(misfit, holders=holders).before(SECRET)
    return Scene([*CLUSTERS[misfit.place](), *before]).settled().with_more(misfit.after("default"))
