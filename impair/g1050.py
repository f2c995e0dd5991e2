"""The network model of ITU-T G.1050 (2007, Appendix II; TIA-921A): LANs and access links in order, then a core.

Every millisecond each LAN and access link has a state, low or high, by its occupancy; a state has a loss and a chance
of an impulse of delay; the access link smooths its impulses. The core adds a base delay, independent loss, uniform
jitter, flaps between two routes and failures, and alone may reorder. Written from the Recommendation's text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from impair.chance import CLOCK, Chance, Uniform01
from impair.errors import ProfileError
from impair.link import Copy, Stage, Step
from impair.stages import Delay, Loss
from impair.timed import Outages, RouteFlaps

_MTU_BITS = 1500 * 8
_PACKET_BITS = 200 * 8
_LAN_BITS_PER_MS = 100_000
_ACCESS_BITS_PER_MS = 1536
"""The model leaves rates open; these are a fast LAN and the T1-class access of its time."""
_LONGEST_CATCH_UP_MS = 60_000
"""After a longer silence the states are as good as forgotten."""


class _Segment:
    """One LAN or access link, a millisecond at a time: `delay_ms` and `loss` hold for the current one."""

    __slots__ = ("_back", "_draw", "_forth", "_height_ms", "_high", "_high_impulse", "_high_loss", "_is_lan",
                 "_low_impulse", "delay_ms")  # fmt: skip

    def __init__(self, occupancy_pct: float, draw: Uniform01, *, is_lan: bool) -> None:
        self._draw = draw
        self._is_lan = is_lan
        self._high = False
        self.delay_ms = 0.0
        if is_lan:
            self._forth, self._back = 0.0001 * occupancy_pct, 0.1
            self._high_loss = 0.000025 * occupancy_pct
            self._low_impulse, self._high_impulse = 0.0, 0.5
            self._height_ms = _MTU_BITS / _LAN_BITS_PER_MS * (1 + occupancy_pct / 40)
        else:
            self._forth, self._back = 0.0002 * occupancy_pct, 0.2 / (1 + occupancy_pct)
            self._high_loss = 0.0005 * occupancy_pct
            self._low_impulse, self._high_impulse = 0.001 + occupancy_pct / 2000, 0.3 + 0.4 * occupancy_pct / 100
            self._height_ms = 0.25 * _MTU_BITS / _ACCESS_BITS_PER_MS * (1 + occupancy_pct / 40)

    @property
    def loss(self) -> float:
        """The loss of a packet in this millisecond."""
        return self._high_loss if self._high else 0.0

    def advance(self) -> None:
        """One millisecond on."""
        draw = self._draw
        impulse_ms = 0.0
        if draw() < (self._high_impulse if self._high else self._low_impulse):
            impulse_ms = self._height_ms if self._high and not self._is_lan else self._height_ms * draw()
        self.delay_ms = impulse_ms if self._is_lan else 0.75 * self.delay_ms + 0.25 * impulse_ms
        if draw() < (self._back if self._high else self._forth):
            self._high = not self._high


@dataclass(frozen=True, slots=True)
class G1050Edges:
    """Both LANs and both access links of the model, by their occupancy in percent; packets keep their order."""

    lan_occupancy_pct: float
    access_occupancy_pct: float
    may_reorder: ClassVar[bool] = False
    needs_order: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not (0 <= self.lan_occupancy_pct <= 100 and 0 <= self.access_occupancy_pct <= 100):
            raise ProfileError("G1050Edges takes occupancies from 0 to 100 %")

    def start(self, chance: Chance) -> Step:
        """See Stage."""
        clock = chance.stream(CLOCK)
        segments = [
            _Segment(self.lan_occupancy_pct if is_lan else self.access_occupancy_pct, clock, is_lan=is_lan)
            for is_lan in (True, False, False, True)
        ]
        base_ms = 2 * _PACKET_BITS / _ACCESS_BITS_PER_MS
        done_ms = -1
        latest_us = 0

        def step(copy: Copy, out: list[Copy]) -> None:
            nonlocal done_ms, latest_us
            at_ms = copy.at_us // 1000
            done_ms = max(done_ms, at_ms - _LONGEST_CATCH_UP_MS)
            while done_ms < at_ms:
                done_ms += 1
                for segment in segments:
                    segment.advance()
            draw = chance.stream(copy.kind)
            delay_ms = base_ms + 1.5 * (draw() + draw()) + sum(segment.delay_ms for segment in segments)
            survival = 1.0
            for segment in segments:
                survival *= 1 - segment.loss
            if draw() >= survival:
                return
            copy.at_us = latest_us = max(latest_us, copy.at_us + round(delay_ms * 1000))
            out.append(copy)

        return step


@dataclass(frozen=True, slots=True)
class G1050CoreJitter:
    """Uniform jitter of the core; a packet that would overtake may do so with `reorder_rate`, else keeps its place."""

    jitter_ms: float
    reorder_rate: float = 0.0
    needs_order: ClassVar[bool] = False

    @property
    def may_reorder(self) -> bool:
        """As set."""
        return self.reorder_rate > 0

    def start(self, chance: Chance) -> Step:
        """See Stage."""
        latest_us: dict[int, int] = {}

        def step(copy: Copy, out: list[Copy]) -> None:
            draw = chance.stream(copy.kind)
            copy.at_us += round(self.jitter_ms * 1000 * draw())
            may_overtake = draw() < self.reorder_rate
            latest = latest_us.get(copy.kind, copy.at_us)
            if copy.at_us < latest and not may_overtake:
                copy.at_us = latest
            latest_us[copy.kind] = max(latest, copy.at_us)
            out.append(copy)

        return step


@dataclass(frozen=True, slots=True, kw_only=True)
class Severity:
    """One row of the Recommendation's impairment table."""

    letter: str
    lan_occupancy_pct: float
    access_occupancy_pct: float
    regional_delay_ms: float
    international_delay_ms: float
    core_loss_pct: float
    core_jitter_ms: float
    route_flap: tuple[float, float] | None
    """(every so many seconds, by so many ms)."""
    link_failure: tuple[float, float] | None
    """(every so many seconds, for so many ms)."""
    reorder_pct: float = 0.0

    def stages(self) -> tuple[Stage, ...]:
        """The row as stages of one direction, with the regional delay."""
        stages: list[Stage] = [G1050Edges(self.lan_occupancy_pct, self.access_occupancy_pct)]
        if self.link_failure is not None:
            every_s, for_ms = self.link_failure
            stages.append(Outages(every_s, for_ms / 1000, every_s))
        if self.core_loss_pct:
            stages.append(Loss(self.core_loss_pct / 100))
        stages.append(Delay(self.regional_delay_ms))
        stages.append(G1050CoreJitter(self.core_jitter_ms, self.reorder_pct / 100))
        if self.route_flap is not None:
            every_s, by_ms = self.route_flap
            stages.append(RouteFlaps(2 * every_s, every_s, by_ms, every_s))
        return tuple(stages)


def _row(
    letter: str, occupancies: tuple[float, float], delays: tuple[float, float], loss_pct: float, jitter_ms: float,
    flap: tuple[float, float] | None, failure: tuple[float, float] | None, reorder_pct: float = 0.0,
) -> Severity:  # fmt: skip
    return Severity(
        letter=letter,
        lan_occupancy_pct=occupancies[0],
        access_occupancy_pct=occupancies[1],
        regional_delay_ms=delays[0],
        international_delay_ms=delays[1],
        core_loss_pct=loss_pct,
        core_jitter_ms=jitter_ms,
        route_flap=flap,
        link_failure=failure,
        reorder_pct=reorder_pct,
    )


SEVERITIES: tuple[Severity, ...] = (
    _row("A", (1, 0), (4, 16), 0.0, 5, None, None),
    _row("B", (2, 1), (8, 32), 0.01, 10, (3600, 2), (3600, 64)),
    _row("C", (3, 2), (16, 64), 0.02, 16, (1800, 4), (1800, 128)),
    _row("D", (5, 4), (32, 128), 0.04, 40, (900, 8), (900, 256)),
    _row("E", (8, 8), (64, 196), 0.1, 70, (480, 16), (480, 400)),
    _row("F", (12, 15), (128, 256), 0.2, 100, (240, 32), (240, 800)),
    _row("G", (16, 30), (256, 512), 0.5, 150, (120, 64), (120, 1600)),
    _row("H", (20, 50), (512, 768), 1.0, 500, (60, 128), (60, 3000), 1.0),
)
"""The eight severities, lightest first."""
