"""What a shell may offer for a word that is not complete: names of objects, from the cluster or the file that the
command line names so far.

Promises: never an error and nothing on any stream, and at most `SECONDS` of waiting. Only the first page of a list is
offered: nobody picks one of a thousand names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

import typer

from dra_extender.cli.source import Source

SECONDS: Final = 3.0
_KINDS_OF_POD: Final = ("pod/", "pods/", "po/")


def pods(ctx: typer.Context, incomplete: str) -> list[str]:
    """NAME of the namespace that is meant, or pod/NAME, or NAMESPACE/NAME, as it was begun."""
    prefix = next((kind for kind in _KINDS_OF_POD if incomplete.startswith(kind)), "")
    first, slash, _ = incomplete.partition("/")
    elsewhere = first if slash and not prefix else ""
    namespace = elsewhere or str(ctx.params.get("namespace") or "") or _source(ctx).namespace()
    return _beginning(incomplete, (f"{prefix or elsewhere + slash}{name}" for name in _names(ctx, "pods", namespace)))


def nodes(ctx: typer.Context, incomplete: str) -> list[str]:
    return _beginning(incomplete, _names(ctx, "nodes"))


def like_nodes(ctx: typer.Context, incomplete: str) -> list[str]:
    """For `--add-node like=NODE`."""
    return _beginning(incomplete, (f"like={name}" for name in _names(ctx, "nodes")))


def classes(ctx: typer.Context, incomplete: str) -> list[str]:
    return _beginning(incomplete, _names(ctx, "deviceclasses"))


def namespaces(ctx: typer.Context, incomplete: str) -> list[str]:
    return _beginning(incomplete, _names(ctx, "namespaces"))


def drivers(ctx: typer.Context, incomplete: str) -> list[str]:
    return _beginning(incomplete, _names(ctx, "drivers"))


def _beginning(incomplete: str, found: Iterable[str]) -> list[str]:
    return sorted({name for name in found if name.startswith(incomplete)})


def _source(ctx: typer.Context) -> Source:
    given: Callable[[str], str] = lambda name: str(ctx.params.get(name) or "")  # noqa: E731  # four times below
    return Source(
        kubeconfig=given("kubeconfig"), context=given("context"), server=given("server"), file=given("from_file")
    )


def _names(ctx: typer.Context, kind: str, namespace: str = "") -> list[str]:
    """Whatever goes wrong, there are no names. What takes a moment to load does not count."""
    from dra_extender.api.errors import ApiError
    from dra_extender.cli.listing import listed
    from dra_extender.kube.credentials import CredentialsError

    try:
        return asyncio.run(asyncio.wait_for(listed(_source(ctx), kind, namespace), SECONDS))
    except (ApiError, CredentialsError, OSError, TimeoutError, ValueError):
        return []
