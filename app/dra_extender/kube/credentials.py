"""How to reach the API server, and as whom.

`Credentials` promises an address, a TLS context and a fresh `Authorization` header for every request. Loading is that
of kubernetes-asyncio: kubeconfig files (several, merged; tokens, client certificates, exec plugins, OIDC) or the
service account of the pod. Tokens and client certificates that change on disk or expire, and new authorities, are
picked up without a restart. Importing kubernetes-asyncio costs most of a second, so it happens only when one of them is
needed.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
import yaml
from aiohttp import ClientError

from dra_extender.unexpected import unexpected
from dra_extender.version import VERSION

log = structlog.get_logger(__name__)

REFRESH_PERIOD = 60.0
"""Seconds between looks at tokens and certificates; service account tokens are rotated long before they expire."""


FORWARDED_TOKEN: Final = "Dra-Extender-Authorization"
"""The header with the token of a request to a Service through the API server, which removes the usual header."""


class CredentialsError(Exception):
    """No usable configuration; the text names the file or variable and what is wrong with it."""


class ClientSettings(msgspec.Struct, frozen=True):
    """Where the API server is and how patiently to talk to it. Empty means: find out."""

    server: str = ""
    """URL; overrides the one of the kubeconfig, and is enough alone where no authentication is needed."""
    kubeconfig: str = ""
    context: str = ""
    timeout: float = 10.0
    """Seconds for one request, retries included."""
    connections: int = 256
    user_agent: str = f"dra-extender/{VERSION}"
    forwards_token: bool = False
    """Also send the token in the header `FORWARDED_TOKEN`."""


Refresh = Callable[[], Awaitable[None]]


class Credentials:
    """Address, TLS and authorization of one API server."""

    def __init__(self, server: str, configuration: Any = None, refresh: Refresh | None = None) -> None:
        self.server = server.rstrip("/")
        self._configuration = configuration
        self._refresh = refresh
        self._refreshed = time.monotonic()
        self._refreshing: asyncio.Task[None] | None = None
        self._loaded: dict[str, tuple[str, int]] = {}
        """The files that the TLS context has, and when they were written."""
        self.ssl: ssl.SSLContext | bool = self._context() if self.server.startswith("https") else True

    @property
    def server_hostname(self) -> str | None:
        """The name that the server's certificate is checked for, if it differs from the address."""
        return getattr(self._configuration, "tls_server_name", None) or None

    @property
    def proxy(self) -> str | None:
        return getattr(self._configuration, "proxy", None) or None

    async def authorization(self) -> str | None:
        """The value of the Authorization header, or None."""
        if self._configuration is None:
            return None
        if self._refresh is not None and time.monotonic() - self._refreshed > REFRESH_PERIOD:
            await self.refresh()
        value: str | None = self._configuration.api_key.get("BearerToken")
        return value.strip() if value else None

    async def refresh(self) -> None:
        """Look for a newer token and certificate, once for all who wait. Keeps the old ones when that fails. It goes on
        when a caller no longer waits.
        """
        if self._refresh is None:
            return
        if self._refreshing is None or self._refreshing.done():
            self._refreshed = time.monotonic()
            self._refreshing = asyncio.create_task(self._renew(self._refresh))
        await asyncio.shield(self._refreshing)

    async def _renew(self, refresh: Refresh) -> None:
        try:
            async with asyncio.timeout(REFRESH_PERIOD):
                await refresh()
            if isinstance(self.ssl, ssl.SSLContext):
                self._load_files(self.ssl)
        except _loading_problems() as problem:
            log.warning("credentials not refreshed, the old ones stay in use", problem=str(problem) or "no answer")
        except Exception as problem:
            unexpected("credentials", problem)

    def close(self) -> None:
        """End a refresh that is under way."""
        if self._refreshing is not None:
            self._refreshing.cancel()

    def _context(self) -> ssl.SSLContext:
        configuration = self._configuration
        context = ssl.create_default_context(cafile=getattr(configuration, "ssl_ca_cert", None))
        # Certificates that Kubernetes makes for itself lack extensions which strict checking demands.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if configuration is not None and not configuration.verify_ssl:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        self._load_files(context)
        return context

    def _load_files(self, context: ssl.SSLContext) -> None:
        """Give new connections the authorities and the client certificate, if they are others than before. Earlier
        authorities stay trusted. Raises OSError.
        """
        key = getattr(self._configuration, "key_file", None)
        for name, load in (
            ("ssl_ca_cert", context.load_verify_locations),
            ("cert_file", partial(context.load_cert_chain, keyfile=key)),
        ):
            path = getattr(self._configuration, name, None)
            if path and (written := (path, Path(path).stat().st_mtime_ns)) != self._loaded.get(name):
                load(path)
                self._loaded[name] = written


async def load(settings: ClientSettings) -> Credentials:
    """The first of: server, kubeconfig, $KUBECONFIG, the pod's service account, ~/.kube/config.

    Raises CredentialsError.
    """
    kubeconfig = settings.kubeconfig or os.environ.get("KUBECONFIG", "")
    if settings.server and not settings.kubeconfig and not settings.context:
        return Credentials(settings.server)
    if not kubeconfig and not settings.context and os.environ.get("KUBERNETES_SERVICE_HOST"):
        return await _from_service_account()
    return await _from_kubeconfig(kubeconfig or "~/.kube/config", settings.context, settings.server)


def _loading_problems() -> tuple[type[Exception], ...]:
    """What the library raises for a file, plugin or token service that is not as it should be: its own error, and
    whatever its first wrong assumption about the content leads to.
    """
    from kubernetes_asyncio.config import ConfigException

    return (
        ConfigException, ClientError, yaml.YAMLError, OSError, RuntimeError,
        ValueError, TypeError, LookupError, AttributeError,
    )  # fmt: skip


def _exists(paths: str) -> bool:
    return any(Path(part).expanduser().is_file() for part in paths.split(os.pathsep) if part)


async def _from_service_account() -> Credentials:
    from kubernetes_asyncio import config
    from kubernetes_asyncio.client import Configuration

    configuration = type.__call__(Configuration)
    try:
        config.load_incluster_config(client_configuration=configuration)
    except (config.ConfigException, OSError) as problem:
        raise CredentialsError(f"service account of this pod: {problem}") from None

    async def refresh() -> None:
        configuration.refresh_api_key_hook(configuration)

    return Credentials(configuration.host, configuration, refresh)


async def _from_kubeconfig(paths: str, context: str, server: str) -> Credentials:
    if not _exists(paths):
        raise CredentialsError(
            f"kubeconfig {paths} does not exist; set --kubeconfig or KUBECONFIG, "
            "or --server for an address that needs no login"
        )
    known = names_of(paths)
    if context and known and context not in known:
        raise CredentialsError(f"kubeconfig {paths}: context {context} does not exist; it has: {', '.join(known)}")
    from kubernetes_asyncio import config
    from kubernetes_asyncio.client import Configuration

    configuration = type.__call__(Configuration)
    try:
        # Never written back: a refreshed token lives in this process only.
        loader = await config.load_kube_config(
            config_file=paths, context=context or None, client_configuration=configuration, persist_config=False
        )
    except _loading_problems() as problem:
        raise CredentialsError(f"kubeconfig {paths}: {str(problem) or type(problem).__name__}") from None
    if not server and not str(configuration.host).startswith(("http://", "https://")):
        raise CredentialsError(f"kubeconfig {paths}: cluster.server is missing or not an http(s) URL")

    async def refresh() -> None:
        await loader.load_and_set(configuration)

    try:
        return Credentials(server or configuration.host, configuration, refresh)
    except (OSError, ssl.SSLError) as problem:
        raise CredentialsError(f"kubeconfig {paths}: certificate or key cannot be used: {problem}") from None


DEFAULT: Final = "default"
_MOUNTED: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def namespace_of(kubeconfig: str = "", context: str = "") -> str:
    """The namespace of the context, or of the current one; in a pod without a kubeconfig, the namespace of the pod."""
    named = kubeconfig or os.environ.get("KUBECONFIG", "")
    if not named and not context and os.environ.get("KUBERNETES_SERVICE_HOST"):
        return _text(_MOUNTED).strip() or DEFAULT
    configs = list(_configs(named or "~/.kube/config"))
    current = context or next((str(found) for config in configs if (found := config.get("current-context"))), "")
    for config in configs:
        for entry in config.get("contexts") or ():
            if isinstance(entry, dict) and entry.get("name") == current:
                return str((entry.get("context") or {}).get("namespace") or DEFAULT)
    return DEFAULT


def names_of(kubeconfig: str) -> list[str]:
    """The contexts of these files, in the order in which they are written."""
    entries = (entry for config in _configs(kubeconfig) for entry in config.get("contexts") or ())
    return [str(entry["name"]) for entry in entries if isinstance(entry, dict) and entry.get("name")]


def _configs(paths: str) -> Iterator[dict[str, Any]]:
    for part in filter(None, paths.split(os.pathsep)):
        try:
            config = yaml.safe_load(_text(Path(part).expanduser()))
        except yaml.YAMLError:
            continue
        if isinstance(config, dict):
            yield config


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
