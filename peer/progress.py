"""Tells on a terminal, or line by line in a log, what the engines are loading."""

from __future__ import annotations

import sys
from typing import TextIO


class ProgressPrinter:
    """Prints progress: rewritten in place on a terminal, else a line for each new message and each quarter of it."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._in_place = self._stream.isatty()
        self._last: tuple[str, str, int] | None = None
        self._open_line = False

    def __call__(self, part: str, fraction: float | None, message: str) -> None:
        """Show that `part` is at `fraction` (0..1, None where unknown) of `message`."""
        step = -1 if fraction is None else int(fraction * (100 if self._in_place else 4))
        if (part, message, step) == self._last:
            return
        self._last = (part, message, step)
        percent = "" if fraction is None else f" {fraction:4.0%}"
        text = f"{part}: {message}{percent}"
        if self._in_place:
            self._stream.write(f"\r\x1b[K{text}")
            self._open_line = True
        else:
            self._stream.write(text + "\n")
        self._stream.flush()

    def close(self) -> None:
        """End the line that is being rewritten."""
        if self._open_line:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._open_line = False
