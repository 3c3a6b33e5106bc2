"""One run of the demo: an embedded cluster, the service as a child process, samples, and their pods.

The service is a child process on purpose: kill it, and see that nothing is lost and nothing is doubled. A second one in
mode shadow reports what another policy would have done with the same pods.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import aiohttp
import msgspec
from rich.console import Console
from rich.live import Live

from dra_extender.plaintext import counted
from embedded_cluster.cluster import SCHEDULER_NAMES, EmbeddedCluster
from embedded_cluster.demo import board
from embedded_cluster.demo.board import Header, PodRow
from embedded_cluster.demo.companion import Companion
from embedded_cluster.demo.places import api_port, claimed, service_port
from embedded_cluster.demo.tour import NODES, Tour
from embedded_cluster.manifests import FIRST_SAMPLES, samples

_FRAME = 0.25
"""Seconds between looks at the cluster."""
_PLAIN_WIDTH = 160
_MOMENT = 2.0
"""Seconds for which a sample may be unsettled though nothing is left to do, before the next one is applied."""
_CALM = 1.0
"""Seconds for which everything must stay settled before --once believes it."""


class DemoOptions(msgspec.Struct, frozen=True):
    """The flags."""

    nodes: int
    devices: int
    port: int
    service_port: int
    directory: Path
    with_samples: bool
    once: bool
    timeout: float
    tour: bool = False


class Show:
    """One run of the demo."""

    def __init__(self, options: DemoOptions, console: Console) -> None:
        self._options = msgspec.structs.replace(options, nodes=NODES) if options.tour else options
        self._console = console
        self._log: deque[str] = deque(maxlen=200)
        self._rows: dict[str, PodRow] = {}
        self._revision = 0
        self._shadow = ""
        self._plain = not console.is_terminal or options.once

    async def run_until_signalled(self) -> int:
        """As `run`; SIGTERM and a terminal that goes away end it in order, so that no service is left behind."""
        task = asyncio.ensure_future(self.run())
        loop = asyncio.get_running_loop()
        # Only the first signal counts: a second one must not interrupt the cleaning up.
        signals = (signal.SIGTERM, signal.SIGHUP)

        def stop() -> None:
            for number in signals:
                loop.add_signal_handler(number, lambda: None)
            task.cancel()

        for number in signals:
            loop.add_signal_handler(number, stop)
        try:
            return await task
        except asyncio.CancelledError:
            return 0

    async def run(self) -> int:
        """The exit status."""
        options = self._options
        started = time.monotonic()
        api = api_port(options.port)
        with (
            claimed(options.directory) as directory,
            service_port(options.service_port) as port,
            service_port(0) as other,
        ):
            self._shadow = f"http://127.0.0.1:{other}"
            async with EmbeddedCluster(
                options.nodes, options.devices, installed=options.devices > 0, port=api
            ) as cluster:
                return await self._run(cluster, directory, f"127.0.0.1:{port}", started)

    async def _run(self, cluster: EmbeddedCluster, directory: Path, listen: str, started: float) -> int:
        options = self._options
        kubeconfig = cluster.server.write_kubeconfig(directory / "kubeconfig")
        serving, shadowing = ("--preemption", "on"), ("--mode", "shadow", "--placement", "pack")
        companion = Companion(service_command(cluster.url, listen, *serving), directory / "service.log", self._note)
        command = service_command(cluster.url, self._shadow.removeprefix("http://"), *shadowing)
        shadow = Companion(command, directory / "shadow.log", lambda line: None)
        header = self._header(cluster, f"http://{listen}/", kubeconfig, companion)
        supervision = [asyncio.create_task(each.run()) for each in (companion, shadow)]
        applying = asyncio.create_task(self._apply(cluster, f"http://{listen}"))
        try:
            if options.tour:
                return await self._tour(cluster, applying, kubeconfig)
            if options.once:
                return await self._once(cluster, companion, applying, started)
            await self._stay(cluster, companion, applying, header)
            return 0
        finally:
            for task in (*supervision, applying):
                task.cancel()
            await asyncio.gather(companion.stop(), shadow.stop())

    async def _apply(self, cluster: EmbeddedCluster, service: str) -> None:
        """The samples one after another, in an order that counts however slow the machine is."""
        options = self._options
        size = f"{counted(options.nodes, 'node')} with {counted(options.devices, 'GPU')} each"
        self._note(f"embedded cluster of {size}: {cluster.url}")
        await asyncio.gather(_ready(service, options.timeout), _ready(self._shadow, options.timeout))
        self._note(f"the service is ready; its page, for a browser: {service}/")
        await cluster.schedule_with(service)
        for name in FIRST_SAMPLES if options.with_samples and not options.tour else ():
            self._note(f"applying {_short(samples() / name)}.yaml")
            await cluster.apply_samples(name)
            await self._settle(cluster)

    async def _settle(self, cluster: EmbeddedCluster) -> None:
        """Until all pods are settled, or some do not become so in a moment in which the cluster has nothing to do."""
        idle_since: float | None = None
        while idle_since is None or time.monotonic() - idle_since < _MOMENT:
            revision = cluster.store.revision
            await asyncio.sleep(_FRAME / 5)
            self._look(cluster)
            idle = cluster.store.revision == revision and cluster.settled()
            if idle and all(row.settled for row in self._rows.values()):
                return
            idle_since = (idle_since or time.monotonic()) if idle else None

    # --- a tour

    async def _tour(self, cluster: EmbeddedCluster, applying: asyncio.Task[None], kubeconfig: Path) -> int:
        """The stops, one after the other."""
        await applying
        say = partial(self._console.print, markup=False, highlight=False, soft_wrap=True)
        try:
            await Tour(cluster, kubeconfig, self._options.devices, say, self._go_on).run()
        except TimeoutError as problem:
            self._note(str(problem))
            return 1
        return 0

    async def _go_on(self) -> None:
        """Wait for Enter on a terminal; without one, go on."""
        if self._console.is_terminal and sys.stdin.isatty():
            await asyncio.to_thread(self._console.input, "\n[dim]Enter: the next stop[/dim] ")

    # --- once

    async def _once(
        self, cluster: EmbeddedCluster, companion: Companion, applying: asyncio.Task[None], started: float
    ) -> int:
        """Wait until everything is settled and stays so for a moment."""
        deadline = started + self._options.timeout
        settled_at: float | None = None
        while time.monotonic() < deadline:
            self._look(cluster)
            _check(applying)
            settled = applying.done() and all(row.settled for row in self._rows.values())
            settled_at = (settled_at or time.monotonic()) if settled else None
            if settled_at is not None and time.monotonic() - settled_at >= _CALM:
                return self._verdict(cluster, started)
            await asyncio.sleep(_FRAME)
        self._console.print(board.summary(list(self._rows.values()), width=self._console.width))
        waiting = [row.pod for row in self._rows.values() if not row.settled]
        self._note(f"not settled after {self._options.timeout:g} s: {', '.join(waiting) or 'no pods at all'}")
        for line in companion.tail():
            self._note(f"service: {line}")
        return 1

    def _verdict(self, cluster: EmbeddedCluster, started: float) -> int:
        self._console.print(board.summary(list(self._rows.values()), width=self._console.width))
        wrong = cluster.audit()
        for line in wrong:
            self._note(f"WRONG: {line}")
        unplaced = sum(1 for row in self._rows.values() if row.expected)
        placed = len(self._rows) - unplaced
        seconds = time.monotonic() - started
        waiting = f", {unplaced} {'waits and says' if unplaced == 1 else 'wait and say'} why" if unplaced else ""
        run = f"{counted(placed, 'pod')} {'runs' if placed == 1 else 'run'}"
        self._note(f"{run}{waiting}, after {seconds:.1f} s")
        return 1 if wrong else 0

    # --- staying up

    async def _stay(
        self, cluster: EmbeddedCluster, companion: Companion, applying: asyncio.Task[None], header: Header
    ) -> None:
        """Until Ctrl-C."""
        if self._plain:
            for line in (header.environment, *header.commands):
                self._note(f"try: {line}")
            while True:
                cluster.check()
                _check(applying)
                self._look(cluster)
                await asyncio.sleep(_FRAME)
        with Live(console=self._console, screen=True, auto_refresh=False) as live:
            while True:
                cluster.check()
                _check(applying)
                self._look(cluster)
                current = msgspec.structs.replace(
                    header,
                    service=self._service_line(cluster, companion),
                    commands=commands(companion.pid, self._options, self._shadow),
                )
                width, height = self._console.size
                shown = list(self._rows.values())
                live.update(board.screen(current, shown, list(self._log), width=width, height=height), refresh=True)
                await asyncio.sleep(_FRAME)

    def _header(self, cluster: EmbeddedCluster, page: str, kubeconfig: Path, companion: Companion) -> Header:
        size = f"{counted(self._options.nodes, 'node')} × {counted(self._options.devices, 'GPU')}"
        tried = commands(companion.pid, self._options, self._shadow)
        return Header(cluster.url, size, "", page, environment(kubeconfig), tried)

    def _service_line(self, cluster: EmbeddedCluster, companion: Companion) -> str:
        made = cluster.scheduler.extenders.made if cluster.scheduler is not None else {}
        calls = ", ".join(f"{made.get(verb, 0)} {verb}" for verb in ("filter", "prioritize", "bind"))
        process = f"process {companion.pid}" if companion.pid else "down"
        again = f", started {companion.starts} times" if companion.starts > 1 else ""
        return f"service: {process}{again}   calls of the scheduler: {calls}"

    # --- reporting

    def _look(self, cluster: EmbeddedCluster) -> None:
        """Take a look at all pods and note what is new. Nothing is new while nothing was written."""
        if cluster.store.revision == self._revision:
            return
        self._revision = cluster.store.revision
        claims = {claim.metadata.key: claim for claim in cluster.claims()}
        now = {row.pod: row for row in board.rows(cluster.pods(), claims, _explanations(cluster))}
        for line in board.changes(self._rows, now):
            self._note(line)
        self._rows = now

    def _note(self, line: str) -> None:
        """Something happened: a line of its own, or one of the last lines on the screen."""
        stamped = f"{time.strftime('%H:%M:%S')}  {line}"
        self._log.append(stamped)
        if self._plain:
            self._console.print(stamped, markup=False, highlight=False, soft_wrap=True)


def console() -> Console:
    """Standard output; lines are cut to 80 characters on a terminal only."""
    console = Console()
    return console if console.is_terminal else Console(width=_PLAIN_WIDTH)


def environment(kubeconfig: Path) -> str:
    """What to type first: the cluster, and the folder of `kubectl dra` unless the shell finds it already."""
    exported = f"export KUBECONFIG={_short(kubeconfig)}"
    folder = Path(sys.executable).parent
    if shutil.which("kubectl-dra") == str(folder / "kubectl-dra"):
        return exported
    # kubectl runs no plugin from a relative entry of PATH.
    absolute = folder if Path(_short(folder)).is_absolute() else f"$PWD/{_short(folder)}"
    return f"{exported} PATH={absolute}:$PATH"


def commands(pid: int | None, options: DemoOptions, shadow: str) -> tuple[str, ...]:
    """What to try; with pods only where the samples are."""
    about_pods = (
        ("kubectl describe pod unschedulable -n dra-samples", "the last event: why it waits, what helps"),
        ("kubectl dra why unschedulable -n dra-samples", "the same, in more detail"),
        ("kubectl delete pod pod0 -n dra-tutorial", "its claim is pending again, its GPU is free"),
    )
    tried = (
        *(about_pods[:2] if options.with_samples else ()),
        ("kubectl dra top nodes", "what is free, and where"),
        (f"kubectl dra shadow --service {shadow}", "what policy pack would have done"),
        *(about_pods[2:] if options.with_samples else ()),
        (f"kill -9 {pid or 'PID'}", "the service: no allocation is lost or made twice"),
    )
    longest = max(len(command) for command, _ in tried)
    return tuple(f"{command:<{longest}}  # {why}" for command, why in tried)


def service_command(server: str, listen: str, *more: str) -> Sequence[str]:
    """How to start a service for the embedded cluster."""
    return (
        sys.executable, "-m", "dra_extender.cli", "serve", "--server", server, "--listen", listen,
        "--scheduler-names", ",".join(SCHEDULER_NAMES), *more,
    )  # fmt: skip


def _check(task: asyncio.Task[None]) -> None:
    """Raise what ended the task, if it did not end well."""
    if task.done():
        task.result()


async def _ready(url: str, timeout: float) -> None:
    """Wait until the service is ready, or give up waiting: the demo shows that pods wait for it as well."""
    deadline = time.monotonic() + timeout / 2
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session:
        while time.monotonic() < deadline:
            try:
                async with session.get(f"{url}/readyz") as reply:
                    if reply.ok:
                        return
            except (aiohttp.ClientError, TimeoutError):
                pass
            await asyncio.sleep(_FRAME / 2)


def _explanations(cluster: EmbeddedCluster) -> dict[str, str]:
    """By UID of a pod what the service last said of its waiting."""
    events = cluster.store.list("events")
    events.sort(key=lambda event: int(event["metadata"]["resourceVersion"]))
    return {
        event["involvedObject"]["uid"]: event["message"]
        for event in events
        if event.get("reportingComponent") == "dra-extender" and event.get("type") == "Warning"
        if event["involvedObject"].get("kind") == "Pod"
    }


def _short(path: Path) -> str:
    """As people would type it: relative when it is below the current directory."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path.resolve())
