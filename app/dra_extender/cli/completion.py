"""Completion of command lines, for shells and for kubectl, which calls a plugin's `kubectl_complete-…`.

Promises: typer alone finds the completions, from the declared commands. Completion never fails, writes nothing, and
waits at most `SECONDS`; it offers the first page of a list.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Final, Literal

import typer
from typer.completion import get_completion_inspect_parameters

from dra_extender.cli.source import Source

_NO_FILES: Final = ":4"
"""Cobra's directive at the end of an answer: do not complete file names."""
_FILES: Final = ":0"


def completion(
    ctx: typer.Context,
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="the shell that reads the script")],
) -> None:
    """Print a script that makes a shell complete commands, options and names.

    bash: `source <(dra-extender completion bash)`, zsh: the same with zsh, fish: `dra-extender completion fish |
    source`. If kubectl itself is completed, `kubectl dra` is
    completed too: kubectl runs `kubectl_complete-dra` from the folder of `kubectl-dra`.
    """
    name = (ctx.find_root().info_name or "").replace(" ", "-")
    os.environ[variable(name)] = f"source_{shell}"
    know_shells()
    ctx.find_root().command.main(args=[], prog_name=name, complete_var=variable(name))


def kubectl_words(main: Callable[..., object], words: Sequence[str]) -> str:
    """The answer that kubectl reads: a line for each word that completes the last one, and a directive."""
    name = "kubectl-dra"
    os.environ |= {
        variable(name): "complete_fish",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_TYPER_COMPLETE_ARGS": shlex.join([name, *words]),
    }
    know_shells()
    found = io.StringIO()
    with contextlib.redirect_stdout(found), contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(SystemExit):
        main(prog_name=name, complete_var=variable(name))
    offered = [line for line in found.getvalue().splitlines() if line.strip()]
    return "\n".join([*offered, _NO_FILES if offered else _FILES])


def know_shells() -> None:
    """Register the shells with typer, which otherwise does it with its own completion options. These commands lack
    those options, because kubectl would not call what they install.
    """
    get_completion_inspect_parameters()


def variable(name: str) -> str:
    """The environment variable in which a shell's script passes its request to the command of this name."""
    return f"_{name.replace('-', '_').replace(' ', '_').upper()}_COMPLETE"


# --- names of objects ------------------------------------------------------------------------------------------------

SECONDS: Final = 3.0
_KINDS_OF_POD: Final = ("pod/", "pods/", "po/")


def pods(ctx: typer.Context, incomplete: str) -> list[str]:
    """Pods as NAME, pod/NAME or NAMESPACE/NAME, in the form that the word begins with."""
    prefix = next((kind for kind in _KINDS_OF_POD if incomplete.startswith(kind)), "")
    first, slash, _ = incomplete.partition("/")
    elsewhere = first if slash and not prefix else ""
    namespace = elsewhere or str(ctx.params.get("namespace") or "") or _source(ctx).default_namespace()
    return _beginning(incomplete, (f"{prefix or elsewhere + slash}{name}" for name in _names(ctx, "pods", namespace)))


def _beginning(incomplete: str, found: Iterable[str]) -> list[str]:
    return sorted({name for name in found if name.startswith(incomplete) and name.isprintable()})


def _source(ctx: typer.Context) -> Source:
    return Source(**{name: str(ctx.params.get(name) or "") for name in ("kubeconfig", "context", "server")})


def _names(ctx: typer.Context, kind: str, namespace: str = "") -> list[str]:
    """No names when anything fails. The time to load the client does not count."""
    from dra_extender.api.errors import ApiError
    from dra_extender.cli.cluster import names
    from dra_extender.kube.credentials import CredentialsError

    try:
        return asyncio.run(asyncio.wait_for(names(_source(ctx), kind, namespace), SECONDS))
    except (ApiError, CredentialsError, OSError, TimeoutError, ValueError):
        return []


def _completing(kind: str, prefix: str = "") -> Callable[[typer.Context, str], list[str]]:
    return lambda ctx, incomplete: _beginning(incomplete, (prefix + name for name in _names(ctx, kind)))


nodes, classes, namespaces, drivers = map(_completing, ("nodes", "deviceclasses", "namespaces", "drivers"))
like_nodes: Final = _completing("nodes", "like=")
"""For `--add-node like=NODE`."""
