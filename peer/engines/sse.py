"""Server-sent events out of a byte stream (WHATWG HTML, section 9.2.6). Pure."""

from __future__ import annotations

MAX_EVENT_BYTES = 1 << 20


class SseError(Exception):
    """An event that never ends."""


class SseParser:
    """Gathers the `data` of each event; other fields and comments are ignored."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[str]:
        """Return the data of every event that `chunk` completes; raises SseError for one beyond MAX_EVENT_BYTES."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) + sum(map(len, self._data)) > MAX_EVENT_BYTES:
            raise SseError("the server sent an event without end")
        return [event for line in lines if (event := self._take_line(line.removesuffix(b"\r"))) is not None]

    def flush(self) -> list[str]:
        """Return the last event of a stream that ended without its blank line."""
        *events, last = [*self.feed(b"\n"), self._take_line(b"")]
        return [*events, *([last] if last is not None else [])]

    def _take_line(self, line: bytes) -> str | None:
        if line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
            return None
        if line or not self._data:
            return None
        event = b"\n".join(self._data).decode("utf-8", "replace")
        self._data = []
        return event
