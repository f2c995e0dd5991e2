"""Waiting for sockets to the microsecond: asyncio and `epoll_wait` round their time-outs up to whole milliseconds.

An epoll descriptor is itself selectable, and select(2) takes microseconds; elsewhere kqueue already does.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import select
import selectors
import signal
import sys
from typing import Any

_PR_SET_PDEATHSIG = 1
_PR_SET_TIMERSLACK = 29
_NICE = -10
RELAY_PRIORITY, SENDER_PRIORITY, RECEIVER_PRIORITY = 3, 2, 1
"""Real-time priorities of a measurement: who keeps time for others goes before them."""


class PreciseSelector:
    """Registers readable sockets with a handler each, and waits for them with a time-out in seconds."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._select_fd = self._selector.fileno() if isinstance(self._selector, _EPOLL) else None

    def add(self, sock: Any, handler: Any) -> None:
        """Watch a socket; `handler` is handed back when it is readable."""
        self._selector.register(sock, selectors.EVENT_READ, handler)

    def remove(self, sock: Any) -> None:
        """Stop watching a socket."""
        self._selector.unregister(sock)

    def wait(self, timeout_s: float | None) -> list[Any]:
        """Handlers of the readable sockets, after at most this long (None: as long as it takes)."""
        if self._select_fd is not None:
            if timeout_s is not None and timeout_s > 0:
                select.select((self._select_fd,), (), (), timeout_s)
                timeout_s = 0
            return [key.data for key, _ in self._selector.select(timeout_s)]
        return [key.data for key, _ in self._selector.select(timeout_s)]

    def close(self) -> None:
        """Let go of the descriptor; the sockets stay open."""
        self._selector.close()


_EPOLL: Any = getattr(selectors, "EpollSelector", ())


def sharpen_timers() -> str:
    """Ask the kernel for timers without slack and a place before ordinary work; says what was granted.

    "realtime" holds 1 ms on a busy machine; "high" and "normal" do so only while a core is free.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
        with contextlib.suppress(OSError):
            # Whatever the relay starts must not inherit this; the kernel leaves 5 % to others even if it ran wild.
            os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(RELAY_PRIORITY))
            return "realtime"
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, _NICE)
        return "high"
    return "normal"


def allow_many_sockets(count: int) -> None:
    """Raise this process's limit of open files as far as it may, towards `count`: each flow has a socket."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        resource = importlib.import_module("resource")  # not everywhere
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
        if soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def die_with_parent() -> None:
    """End this process where the one that started it is killed: no relay and no browser stays behind a dead harness."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def receiver_priority() -> None:
    """Put a receiver that was started by a real-time sender just behind it."""
    die_with_parent()
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(RECEIVER_PRIORITY))


def ordinary_priority() -> None:
    """Put a process that was started by a real-time one back among the others, before them where that is allowed."""
    die_with_parent()
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, _NICE)
