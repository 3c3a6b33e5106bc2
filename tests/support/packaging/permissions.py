"""Permissions as texts, `verb resource.group`: what roles allow, and what the service needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dra_extender.kube.resources import POD_GROUPS, Served
from dra_extender.service.settings import Settings
from dra_extender.service.supervision import needed


def allowed(roles: Iterable[Mapping[str, Any]]) -> set[str]:
    """What the rules of these roles allow; rules for paths do not count."""
    return {
        f"{verb} {resource}.{group}"
        for role in roles
        for rule in role.get("rules", ())
        for group in rule.get("apiGroups", ())
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def needed_by(settings: Settings) -> set[str]:
    """What the service checks at its start with these settings."""
    found = needed(settings, Served(taint_rules="v1beta2", pod_groups=POD_GROUPS))
    return {f"{each.verb} {each.resource}{each.subresource and '/' + each.subresource}.{each.group}" for each in found}
