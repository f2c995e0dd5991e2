"""One direction of a network: packets and `now` in, the moments of their delivery out; pure, seeded, repeatable.

A link is a row of stages (impair/stages.py). Time inside is whole microseconds since the link's origin, so the result
does not depend on where the clock stood: the same seed and the same packets give the same fates, bit for bit, in the
relay, in virtual time and on another machine. Chance is drawn packet by packet from a stream of its own for every
stage and every *kind* of packet, so that one STUN check more or less does not move the losses of the speech.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from impair.chance import Chance
from impair.errors import ProfileError


class Copy:
    """A packet on its way through the stages; `at_us` moves on as each stage delays it."""

    __slots__ = ("at_us", "flips", "kind", "size_bytes")

    def __init__(self, at_us: int, size_bytes: int, kind: int, flips: tuple[int, ...] = ()) -> None:
        self.at_us = at_us
        self.size_bytes = size_bytes
        self.kind = kind
        self.flips = flips


Step = Callable[[Copy, list[Copy]], None]
"""A running stage: appends to the list what becomes of the copy (nothing = lost)."""


class Stage(Protocol):
    """What a link is made of: frozen settings that start one run of themselves for one link."""

    @property
    def may_reorder(self) -> bool:
        """Whether a later packet can leave before an earlier one, which no queue may stand behind."""
        ...

    @property
    def needs_order(self) -> bool:
        """Whether packets must enter in the order of time."""
        ...

    def start(self, chance: Chance) -> Step:
        """Begin with fresh state and these draws."""
        ...


class Delivery(NamedTuple):
    """One arriving copy: when (seconds, on the clock of `now`), and which bits are flipped (0 = first byte, lowest)."""

    at: float
    flips: tuple[int, ...] = ()


class Fate(NamedTuple):
    """What becomes of a packet: its copies in the order they were made, and the stage that lost it, if any did."""

    deliveries: tuple[Delivery, ...]
    lost_by: str | None


@dataclass(slots=True)
class LinkStats:
    """What a link did so far, so that a report says what the network was, not what was ordered."""

    packets: int = 0
    bytes: int = 0
    lost: int = 0
    duplicated: int = 0
    corrupted: int = 0
    reordered: int = 0
    delay_sum_ms: float = 0.0
    delay_max_ms: float = 0.0
    lost_by: dict[str, int] = field(default_factory=dict)


class Link:
    """A running link of these stages; `origin` (seconds) is when its timed events begin, None = its first packet."""

    __slots__ = ("_latest_us", "_origin", "_steps", "stats")

    def __init__(self, stages: Sequence[Stage], *, seed: int | str = 0, origin: float | None = None) -> None:
        check_order(stages)
        self._steps = tuple(
            (type(stage).__name__, stage.start(Chance(f"{seed}/{index}"))) for index, stage in enumerate(stages)
        )
        self._origin = origin
        self._latest_us = -1
        self.stats = LinkStats()

    def handle_packet(self, size_bytes: int, *, now: float, kind: int = 0) -> Fate:
        """Send a packet of this size (UDP payload) at `now`; kinds of packets draw their chance apart."""
        if self._origin is None:
            self._origin = now
        sent_us = round((now - self._origin) * 1e6)
        copies = [Copy(sent_us, size_bytes, kind)]
        lost_by = None
        for name, step in self._steps:
            kept: list[Copy] = []
            for copy in copies:
                step(copy, kept)
            copies = kept
            if not copies:
                lost_by = name
                break
        self._count(sent_us, size_bytes, copies, lost_by)
        origin = self._origin
        deliveries = [Delivery(max(now, origin + copy.at_us / 1e6), copy.flips) for copy in copies]
        return Fate(tuple(deliveries), lost_by)

    def _count(self, sent_us: int, size_bytes: int, copies: list[Copy], lost_by: str | None) -> None:
        stats = self.stats
        stats.packets += 1
        stats.bytes += size_bytes
        if lost_by is not None:
            stats.lost += 1
            stats.lost_by[lost_by] = stats.lost_by.get(lost_by, 0) + 1
            return
        first = copies[0]
        at_us = first.at_us
        if len(copies) == 1:
            stats.corrupted += bool(first.flips)
        else:
            at_us = min([copy.at_us for copy in copies])
            stats.duplicated += len(copies) - 1
            stats.corrupted += any(copy.flips for copy in copies)
        delay_ms = (at_us - sent_us) / 1000
        stats.delay_sum_ms += delay_ms
        stats.delay_max_ms = max(stats.delay_max_ms, delay_ms)
        stats.reordered += at_us < self._latest_us
        self._latest_us = max(self._latest_us, at_us)


def check_order(stages: Sequence[Stage]) -> None:
    """Raise ProfileError where a queue stands behind a stage that reorders: a queue serves what comes, as it comes."""
    reorders = None
    for stage in stages:
        name = type(stage).__name__
        if stage.needs_order and reorders is not None:
            raise ProfileError(f"{name} must come before {reorders}, which may reorder packets")
        if stage.may_reorder:
            reorders = name


def transit(
    stages: Sequence[Stage], sent_s: Iterable[float], *, seed: int | str = 0, size_bytes: int = 72
) -> list[float | None]:
    """Send packets at these seconds through a fresh link; the arrival of each one's first copy, None = lost.

    The origin is 0 s. 72 bytes is a 60-byte Opus payload with its RTP header.
    """
    link = Link(stages, seed=seed, origin=0.0)
    arrivals: list[float | None] = []
    for now in sent_s:
        deliveries = link.handle_packet(size_bytes, now=now).deliveries
        arrivals.append(min(delivery.at for delivery in deliveries) if deliveries else None)
    return arrivals
