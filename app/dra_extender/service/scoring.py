"""The block `scoring_strategy` of the settings, in the words of NodeResourcesFit in a KubeSchedulerConfiguration."""

from __future__ import annotations

from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field

from dra_extender.placement.policies import PolicyName
from dra_extender.placement.strategy import ScoringType, Strategy, policy_of


class ScoredResource(BaseModel):
    """What a device of this class counts beside others."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    deviceClass: str
    weight: Annotated[float, Field(gt=0, le=100)] = 1.0


class ScoringStrategy(BaseModel):
    """A policy by the type that NodeResourcesFit calls it by, and what devices count."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: ScoringType
    resources: tuple[ScoredResource, ...] = ()


def block(value: object) -> object:
    """A flag and an environment variable hold the block as YAML. Raises ValueError."""
    if not isinstance(value, str):
        return value
    try:
        return yaml.safe_load(value)
    except yaml.YAMLError as problem:
        raise ValueError(f"is no YAML: {problem}") from None


def strategy(placement: PolicyName, block: ScoringStrategy | None, *, only_chosen: bool) -> Strategy:
    """What the settings mean together; the block wins."""
    if block is None:
        return Strategy(policy=placement, only_chosen=only_chosen)
    weights = {item.deviceClass: item.weight for item in block.resources}
    return Strategy(policy=policy_of(block.type), weights=weights, only_chosen=only_chosen)
