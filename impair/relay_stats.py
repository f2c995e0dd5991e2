"""What a relay did, and how late it was itself, in a histogram of fixed size."""

from __future__ import annotations

from collections import deque
from typing import Any

_BUCKET_S = 10e-6
_BUCKETS = 10_000


class RelayStats:
    """Counters and the relay's own lateness: sending minus the moment the link had set."""

    __slots__ = (
        "_buckets", "_max_s", "_moves_ms", "_overflows", "outage_lost", "overflow_lost", "priority", "refused", "sent",
        "socket_errors",
    )  # fmt: skip

    def __init__(self) -> None:
        self.priority = "normal"
        self.sent = 0
        self.refused = 0
        self.socket_errors = 0
        self.outage_lost = 0
        self.overflow_lost = 0
        self._moves_ms: deque[float] = deque(maxlen=64)
        self._overflows: dict[int, int] = {}
        self._max_s = 0.0
        self._buckets = [0] * _BUCKETS

    def note_sent(self, late_s: float) -> None:
        """Count a packet sent, and its lateness in seconds."""
        self.sent += 1
        self._max_s = max(self._max_s, late_s)
        self._buckets[min(int(late_s / _BUCKET_S), _BUCKETS - 1)] += 1

    def note_move(self, seconds: float) -> None:
        """Note how long after a rebind the target's media came back to the new source port."""
        self._moves_ms.append(seconds * 1000)

    def note_overflow(self, socket_number: int, dropped: int) -> None:
        """Note how many packets the kernel has dropped before this socket since it was opened."""
        self._overflows[socket_number] = dropped

    def late_ms(self, quantile: float) -> float | None:
        """The lateness in ms that this part of the packets did not exceed (to 0.01 ms); None before any."""
        left = quantile * self.sent
        for bucket, count in enumerate(self._buckets):
            left -= count
            if left <= 0 and count:
                return (bucket + 1) * _BUCKET_S * 1000
        return None

    def report(self) -> dict[str, Any]:
        """Plain values for JSON; what the kernel dropped would make the report a lie if it were left out."""
        return {
            "priority": self.priority,
            "sent": self.sent,
            "late_p50_ms": self.late_ms(0.5),
            "late_p99_ms": self.late_ms(0.99),
            "late_max_ms": self._max_s * 1000,
            "refused": self.refused,
            "socket_errors": self.socket_errors,
            "outage_lost": self.outage_lost,
            "overflow_lost": self.overflow_lost,
            "moves_ms": list(self._moves_ms),
            "kernel_dropped": sum(self._overflows.values()),
        }
