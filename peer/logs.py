"""Structured logs: one line a record, `time level logger message key=value …` (logfmt), on stderr."""

from __future__ import annotations

import json
import logging
import sys
from typing import Final

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


def configure_logs(level: str) -> None:
    """Send every log record of `level` (debug, info, warning, error) and above to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogfmtFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in _QUIET:
        logging.getLogger(name).setLevel("DEBUG" if level == "debug" else "WARNING")
