"""How the service writes its log: structured lines on standard error, for people or for machines.

Promises: one line per event with its fields; the standard library's logging (uvicorn, aiohttp, asyncio) ends in the
same stream and format; nothing secret is ever a field.
"""

from __future__ import annotations

import logging
import sys
from typing import Literal

import structlog

from dra_extender.unexpected import Place

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

UNEXPECTED = "unexpected error, which is a bug: please report it"


def configure(level: str = "info", form: Literal["console", "json"] = "console") -> None:
    """Set up logging of this process. Calls below `level` cost next to nothing afterwards."""
    stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)
    shared: list[structlog.typing.Processor] = [structlog.contextvars.merge_contextvars, structlog.stdlib.add_log_level]
    # Tracebacks without local variables: those are long, and any of them may be a secret.
    traceback = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    plain = structlog.dev.plain_traceback
    last: list[structlog.typing.Processor] = (
        [structlog.processors.ExceptionRenderer(traceback), structlog.processors.JSONRenderer()]
        if form == "json"
        else [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)]
    )
    structlog.configure(
        processors=[*shared, stamp, *last],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),  # a line is one write
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, stamp],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    # Libraries report trouble only; what they do in between is ours to report.
    root.setLevel(max(_LEVELS[level], logging.WARNING))


def log_unexpected(place: Place, problem: Exception, about: dict[str, object]) -> None:
    """Log an unforeseen error with its traceback, on standard error even when nothing was configured."""
    if not structlog.is_configured():
        configure("warning")
    structlog.get_logger().error(UNEXPECTED, where=place, exc_info=problem, **about)
