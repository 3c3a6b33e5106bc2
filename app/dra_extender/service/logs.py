"""The log of the service: structured lines on standard error, for people or for programs.

Promises: one line per event with its fields; the logging of the standard library (uvicorn, aiohttp, asyncio) has the
same stream and format; tracebacks contain no local variables, which may be secrets.
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
    """Set up logging of this process. Calls below `level` then cost almost nothing."""
    stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)
    shared: list[structlog.typing.Processor] = [structlog.contextvars.merge_contextvars, structlog.stdlib.add_log_level]
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
    # Libraries log problems only.
    root.setLevel(max(_LEVELS[level], logging.WARNING))


def log_unexpected(place: Place, problem: Exception, about: dict[str, object]) -> None:
    """Log an unexpected error with its traceback, even if logging was not configured."""
    if not structlog.is_configured():
        configure("warning")
    structlog.get_logger().error(UNEXPECTED, where=place, exc_info=problem, **about)
