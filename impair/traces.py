"""Networks as they were: delivery opportunities of a cellular link (mahimahi's format) and packet arrivals, replayed.

A profile name `trace:FILE` or `trace:UP,DOWN` takes either kind of file; see docs/impair.md for both formats.
"""

from __future__ import annotations

import bisect
import csv
import io
import itertools
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

from impair.chance import Chance
from impair.errors import TraceError
from impair.link import Copy, Stage, Step
from impair.profile import Profile
from impair.profiles import find_profile
from impair.stages import Delay

OPPORTUNITY_BYTES = 1500
"""What one line of a delivery trace may carry, mahimahi's packet of one MTU."""
DEFAULT_QUEUE_BYTES = 100 * OPPORTUNITY_BYTES
_HEADERS_BYTES = 28
_PREFIX = "trace:"
_MAX_ROWS = 5_000_000


@dataclass(frozen=True, slots=True)
class DeliveryTrace:
    """A link that may send 1500 bytes at each of these milliseconds, over and over, behind a drop-tail queue.

    Unused opportunities are gone; small packets share one, and a packet may take the rest of one and some of the next.
    """

    opportunities_ms: tuple[int, ...]
    queue_bytes: int = DEFAULT_QUEUE_BYTES
    may_reorder: ClassVar[bool] = False
    needs_order: ClassVar[bool] = True

    def __post_init__(self) -> None:
        times = self.opportunities_ms
        if not times or times[-1] <= 0 or times[0] < 0 or any(a > b for a, b in itertools.pairwise(times)):
            raise TraceError("a delivery trace needs rising milliseconds, the last above 0")
        if self.queue_bytes < OPPORTUNITY_BYTES:
            raise TraceError(f"a delivery trace needs a queue of {OPPORTUNITY_BYTES} bytes or more")

    def start(self, chance: Chance) -> Step:
        """See Stage; nothing is left to chance."""
        del chance
        times = self.opportunities_ms
        period_ms = times[-1]
        turn, left_bytes = 0, 0
        turn_us = -1
        waiting: deque[tuple[int, int]] = deque()
        waiting_bytes = 0

        def time_of(index: int) -> int:
            lap, place = divmod(index, len(times))
            return (lap * period_ms + times[place]) * 1000

        def first_turn_from(at_us: int) -> int:
            lap, into_us = divmod(at_us, period_ms * 1000)
            return lap * len(times) + bisect.bisect_left(times, -(-into_us // 1000))

        def step(copy: Copy, out: list[Copy]) -> None:
            nonlocal turn, left_bytes, turn_us, waiting_bytes
            size = copy.size_bytes + _HEADERS_BYTES
            while waiting and waiting[0][0] <= copy.at_us:
                waiting_bytes -= waiting.popleft()[1]
            if waiting_bytes + size > self.queue_bytes:
                return
            if turn_us < copy.at_us:
                turn, left_bytes = max(turn, first_turn_from(max(0, copy.at_us))), 0
            needed = size
            while needed > 0:
                if left_bytes == 0:
                    turn_us, left_bytes = time_of(turn), OPPORTUNITY_BYTES
                    turn += 1
                used = min(needed, left_bytes)
                needed -= used
                left_bytes -= used
            waiting.append((turn_us, size))
            waiting_bytes += size
            copy.at_us = max(copy.at_us, turn_us)
            out.append(copy)

        return step


class TraceRow(NamedTuple):
    """One packet in the order of sending: ms of sending, ms of arrival (None = lost), as in jitter.replay's CSV."""

    seq: int
    sent_ms: float
    arrival_ms: float | None


@dataclass(frozen=True, slots=True)
class ArrivalTrace:
    """The n-th packet of a kind meets the fate of the n-th row, over and over; delays count from the fastest row.

    `delays_ms` holds each row's delay above the fastest one's, None = lost.
    """

    delays_ms: tuple[float | None, ...]
    may_reorder: ClassVar[bool] = True
    needs_order: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if all(delay is None for delay in self.delays_ms):
            raise TraceError("an arrival trace needs at least one packet that arrived")

    @classmethod
    def of(cls, rows: Iterable[TraceRow]) -> ArrivalTrace:
        """From rows; the fastest packet's delay becomes 0."""
        delays = [None if row.arrival_ms is None else row.arrival_ms - row.sent_ms for row in rows]
        floor = min((delay for delay in delays if delay is not None), default=0.0)
        return cls(tuple(None if delay is None else delay - floor for delay in delays))

    def start(self, chance: Chance) -> Step:
        """See Stage; nothing is left to chance."""
        del chance
        delays_us = [None if delay is None else round(delay * 1000) for delay in self.delays_ms]
        turns: dict[int, int] = {}

        def step(copy: Copy, out: list[Copy]) -> None:
            turn = turns.get(copy.kind, 0)
            turns[copy.kind] = (turn + 1) % len(delays_us)
            delay_us = delays_us[turn]
            if delay_us is not None:
                copy.at_us += delay_us
                out.append(copy)

        return step


def read_trace(text: str, *, name: str, floor_ms: float = 0.0) -> tuple[Stage, ...]:
    """Stages from the text of either kind of file; `floor_ms`: delay of the fastest packet of an arrival trace."""
    first = text.split("\n", 1)[0].strip()
    if not first:
        raise TraceError(f"{name} is empty, or begins with an empty line")
    if "arrival_ms" in first:
        return (Delay(floor_ms), ArrivalTrace.of(read_arrivals(text, name=name)))
    return (DeliveryTrace(_read_opportunities(text, name)),)


def read_arrivals(text: str, *, name: str) -> list[TraceRow]:
    """Rows of a CSV with the columns seq, sent_ms, arrival_ms; TraceError names the line that cannot be read."""
    reader = csv.DictReader(io.StringIO(text))
    if not {"seq", "sent_ms", "arrival_ms"} <= set(reader.fieldnames or ()):
        raise TraceError(f"{name} needs the columns seq, sent_ms and arrival_ms, not {reader.fieldnames}")
    rows = []
    for row in reader:
        try:
            arrival = row["arrival_ms"].strip()
            rows.append(TraceRow(int(row["seq"]), float(row["sent_ms"]), float(arrival) if arrival else None))
        except (ValueError, AttributeError, TypeError):
            raise TraceError(f"{name}, line {reader.line_num}: cannot be read") from None
    if not rows:
        raise TraceError(f"{name} has no packets")
    return rows


def write_arrivals(rows: Iterable[TraceRow]) -> str:
    """The CSV that `read_arrivals` and jitter.replay take, to a microsecond."""
    lines = ["seq,sent_ms,arrival_ms"]
    for row in rows:
        arrival = "" if row.arrival_ms is None else f"{row.arrival_ms:.3f}"
        lines.append(f"{row.seq},{row.sent_ms:.3f},{arrival}")
    return "\n".join(lines) + "\n"


def _read_opportunities(text: str, name: str) -> tuple[int, ...]:
    times: list[int] = []
    for number, line in enumerate(text.splitlines(), 1):
        word = line.strip()
        if not word:
            continue
        if not word.isdigit():
            raise TraceError(f"{name}, line {number}: {word[:40]!r} is not a whole number of milliseconds")
        if times and int(word) < times[-1]:
            raise TraceError(f"{name}, line {number}: {word} ms comes before {times[-1]} ms")
        if len(times) >= _MAX_ROWS:
            raise TraceError(f"{name} has more than {_MAX_ROWS} lines")
        times.append(int(word))
    if not times or times[-1] == 0:
        raise TraceError(f"{name} names no time above 0 ms")
    return tuple(times)


def load_profile(name: str) -> Profile:
    """A profile by name, or from files: `trace:FILE` for both ways, `trace:UP,DOWN` for each its own."""
    if not name.startswith(_PREFIX):
        return find_profile(name)
    paths = name.removeprefix(_PREFIX).split(",")
    if len(paths) > 2 or not all(paths):
        raise TraceError(f"write trace:FILE or trace:UP,DOWN, not {name!r}")
    ways = []
    for path in paths:
        try:
            ways.append(read_trace(Path(path).read_text(encoding="utf-8"), name=path))
        except (OSError, UnicodeDecodeError) as error:
            raise TraceError(f"cannot read {path}: {getattr(error, 'strerror', None) or 'not text'}") from error
    return Profile(name=name, summary="replays recorded traces", source="the files named", up=ways[0], down=ways[-1])
