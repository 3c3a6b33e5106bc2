"""The log of the service: structured lines on standard error, for people or for programs.

Promises: one line per event with its fields, all of which are printable; the logging of the standard library (uvicorn,
aiohttp, asyncio) has the same stream and format; tracebacks contain no local variables, which may be secrets.
"""

from __future__ import annotations

import io
import logging
import sys
from typing import Literal, TextIO

import structlog
from structlog.typing import EventDict, ExcInfo, Processor

from dra_extender.limits import CHARACTERS_OF_LINE
from dra_extender.plaintext import printable, wrapped
from dra_extender.unexpected import ErrorPlace

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

UNEXPECTED = "unexpected error, which is a bug: please report it"


def configure(level: str = "info", form: Literal["console", "json"] = "console") -> None:
    """Set up logging of this process. Calls below `level` then cost almost nothing."""
    stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars, structlog.stdlib.add_log_level, _printable_fields,
    ]  # fmt: skip
    traceback = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    last: list[Processor] = (
        [structlog.processors.ExceptionRenderer(traceback), structlog.processors.JSONRenderer()]
        if form == "json"
        else [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=_indented_traceback)]
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


def _printable_fields(_logger: object, _method: str, fields: EventDict) -> EventDict:
    """Renderers print values of other types with `repr`, which is printable."""
    texts = {key: value for key, value in fields.items() if isinstance(value, str)}
    return {**fields, **{key: printable(text, CHARACTERS_OF_LINE) for key, text in texts.items()}}


def _indented_traceback(target: TextIO, found: ExcInfo) -> None:
    """No line of an error message looks like an event."""
    text = io.StringIO()
    structlog.dev.plain_traceback(text, found)
    target.write("\n" + wrapped((f"  {line}" for line in text.getvalue().split("\n")), 0))


def log_unexpected(place: ErrorPlace, problem: Exception, about: dict[str, object]) -> None:
    """Log an unexpected error with its traceback, even if logging was not configured."""
    if not structlog.is_configured():
        configure("warning")
    structlog.get_logger().error(UNEXPECTED, where=place, exc_info=problem, **about)
