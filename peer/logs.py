"""Structured logs: one line a record, `time level logger message key=value …` (logfmt), on stderr."""

from __future__ import annotations

import json
import logging
import sys
from typing import Final

from aiohttp.http_exceptions import HttpProcessingError

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_QUIET: Final = ("aioice", "aiortc", "aiohttp.access", "asyncio", "quic")
"""Libraries whose information is our debugging."""


class LogfmtFormatter(logging.Formatter):
    """Formats the `extra` of a record as key=value, quoted where it needs to be."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line, with its traceback below where it has one."""
        head = f"{self.formatTime(record)} {record.levelname.lower()} {record.name}: {record.getMessage()}"
        extras = [f"{key}={_quote(value)}" for key, value in vars(record).items() if key not in _STANDARD]
        text = " ".join([head, *extras])
        return text + "\n" + self.formatException(record.exc_info) if record.exc_info else text


def _quote(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else str(value)
    return json.dumps(text, ensure_ascii=False) if not text or set(text) & set(' "=\n') else text


class NoHttpFilter(logging.Filter):
    """Makes a line of what anyone may cause by sending no HTTP, such as TLS to a plain port, instead of a traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True: every record is kept, those of bad requests without their traceback."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            words = " ".join(error.message.split())[:200]
            record.msg, record.args = "not HTTP: %s (is it TLS, or another protocol?)", (words,)
            record.exc_info = record.exc_text = None
            record.levelno, record.levelname = logging.INFO, "INFO"
        return True


def configure_logs(level: str) -> None:
    """Send every log record of `level` (debug, info, warning, error) and above to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogfmtFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    server = logging.getLogger("aiohttp.server")
    if not any(isinstance(known, NoHttpFilter) for known in server.filters):
        server.addFilter(NoHttpFilter())
    for name in _QUIET:
        logging.getLogger(name).setLevel("DEBUG" if level == "debug" else "WARNING")
