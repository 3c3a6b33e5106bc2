"""The workload file: which pods to expect, as YAML or JSON, in the terms of Kubernetes.

    learn: true                          # also count pods that were seen (default)
    pods:
    - count: 120                         # number of pods of this kind
      requests: {cpu: "8", memory: 32Gi}
      claims:                            # the spec of each of its ResourceClaims
      - devices:
          requests:
          - {name: gpu, exactly: {deviceClassName: gpu, count: 1}}

Promises: an error names the file, the field, the problem and what to do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import msgspec
import yaml

from dra_extender.api.decoding import DecodeError, convert
from dra_extender.api.meta import ObjectMeta
from dra_extender.api.quantity import Quantity
from dra_extender.api.resource import ResourceClaim, ResourceClaimSpec
from dra_extender.placement.learner import Expected, ExpectedPod
from dra_extender.placement.podshape import load_from
from dra_extender.placement.workload import MOST_PODS, MOST_SHAPES

_COUNTED: Final = ("cpu", "memory")
_REMEDIES: Final = {
    "count": f"give whole numbers from 1, in all no more than {MOST_PODS}",
    "requests": "give cpu and memory as in resources.requests of a container, such as {cpu: 500m, memory: 2Gi}",
    "claims": "give a list of specs as in a ResourceClaim: {devices: {requests: [...]}}",
    "learn": "give true or false",
    "pods": f"give 1 to {MOST_SHAPES} kinds of pods, each with count, requests and claims",
}
_ELSEWHERE: Final = "see the workload file in docs/placement.md"


class _Pods(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Pods of one kind."""

    claims: Annotated[tuple[ResourceClaimSpec, ...], msgspec.Meta(min_length=1)]
    count: Annotated[int, msgspec.Meta(ge=1)] = 1
    requests: dict[str, Quantity] = {}


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pods: Annotated[tuple[_Pods, ...], msgspec.Meta(min_length=1, max_length=MOST_SHAPES)]
    learn: bool = True


def read(file: Path) -> Expected:
    """The expected pods. Raises ValueError."""
    try:
        found = convert(_File, yaml.safe_load(file.read_text()))
    except OSError as problem:
        raise ValueError(f"{file}: {problem.strerror}: name a file that can be read") from None
    except UnicodeDecodeError:
        raise ValueError(f"{file}: is not text: {_ELSEWHERE}") from None
    except yaml.YAMLError as problem:
        raise ValueError(f"{file}: is not YAML: {problem}") from None
    except DecodeError as problem:
        what, _, path = problem.problem.partition(" - at `$")
        raise ValueError(_sentence(file, path.rstrip("`").lstrip("."), what)) from None
    except (TypeError, RecursionError) as problem:
        raise ValueError(f"{file}: {problem}: {_ELSEWHERE}") from None
    for path, problem_found in _problems(found):
        raise ValueError(_sentence(file, path, problem_found))
    return Expected(tuple(map(_expected, found.pods)), only=not found.learn)


def _sentence(file: Path, path: str, problem: str) -> str:
    """The remedy belongs to the last field that the path or the problem names."""
    words = [word for word in re.findall(r"\w+", f"{path} {problem}") if word in _REMEDIES]
    remedy = _REMEDIES[words[-1]] if words else _ELSEWHERE
    return f"{file}: {path}: {problem}: {remedy}" if path else f"{file}: {problem}: {remedy}"


def _problems(found: _File) -> Iterator[tuple[str, str]]:
    """Field and problem, as far as types do not check it."""
    if sum(pods.count for pods in found.pods) > MOST_PODS:
        yield "pods", "each count is too large"
    for number, pods in enumerate(found.pods):
        for name, amount in pods.requests.items():
            if name not in _COUNTED:
                yield f"pods[{number}].requests.{name}", "only cpu and memory are compared"
            elif amount.nano < 0:
                yield f"pods[{number}].requests.{name}", "is negative"
        for claim, spec in enumerate(pods.claims):
            if not spec.devices.requests:
                yield f"pods[{number}].claims[{claim}].devices.requests", "asks for no devices"
            for place, request in enumerate(spec.devices.requests):
                asked = (request.exactly,) if request.exactly is not None else request.first_available
                where = f"pods[{number}].claims[{claim}].devices.requests[{place}]"
                if not asked:
                    yield where, "has neither exactly nor firstAvailable"
                if not all(item.device_class_name for item in asked):
                    yield where, "names no deviceClassName"


def _expected(pods: _Pods) -> ExpectedPod:
    claims = tuple(
        ResourceClaim(ObjectMeta(name=f"expected-{number}"), spec) for number, spec in enumerate(pods.claims)
    )
    return ExpectedPod(pods.count, load_from(pods.requests), claims)
