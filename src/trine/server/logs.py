"""One line for each event, with fields, to stderr: JSON for machines, columns for people.

Everything goes the same way: what the server says by structlog, and what asyncio, uvicorn and the broker's own
housekeeping say by the standard library's logging. Values of messages and secrets of keys are never logged.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Any, Final, TextIO

import structlog

from trine.server.config import LogConfig

QUIET = {"uvicorn.access": logging.WARNING, "uvicorn.error": logging.WARNING, "asyncio": logging.WARNING}
"""Loggers that say too much at the level of the rest: a line for each request, each connection."""


_SHARED: Final[list[Any]] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
    structlog.processors.StackInfoRenderer(),
]


def set_up(config: LogConfig, stream: TextIO | None = None) -> None:
    """For the whole process; call it once, before the first line. A server within another program leaves it out."""
    stream = stream or sys.stderr
    as_json = config.format == "json" or (config.format == "auto" and not stream.isatty())
    renderer: list[Any]
    if as_json:
        renderer = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
    else:
        colours = stream.isatty() and not os.environ.get("NO_COLOR")
        renderer = [structlog.dev.ConsoleRenderer(colors=colours, timestamp_key="time")]
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*_SHARED, structlog.stdlib.add_logger_name, _without_colours],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
        )
    )
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    level = getattr(logging, config.level.upper())
    root.setLevel(level)
    for name, least in QUIET.items():
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(max(level, least))


def get_log(**fields: Any) -> Any:
    """A logger that has these fields in each line. It is one of the standard library's beneath: `trine.server`."""
    return structlog.wrap_logger(
        logging.getLogger("trine.server"),
        processors=[
            structlog.stdlib.filter_by_level,
            *_SHARED,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        **fields,
    )


def _without_colours(logger: Any, name: str, event: Any) -> Any:
    """uvicorn says each message a second time, with colours."""
    event.pop("color_message", None)
    return event
