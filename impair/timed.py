"""Stages moved by the clock alone: spikes, outages, route flaps, delay steps, drift; times count from the origin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from impair.chance import CLOCK, Chance, Distribution
from impair.errors import ProfileError
from impair.link import Copy, Stage, Step


def _s_to_us(seconds: float) -> int:
    return round(seconds * 1e6)


def _check_period(name: str, period_s: float, duration_s: float, first_s: float) -> None:
    if not (0 <= duration_s <= period_s and period_s > 0 and first_s >= 0):
        raise ProfileError(
            f"{name} needs a period above 0 s that holds its duration, not {duration_s:g} s every {period_s:g} s"
        )


@dataclass(frozen=True, slots=True)
class Spikes:
    """Every period nothing arrives for a while: what would arrive within it arrives together at its end."""

    period_s: float
    duration_s: float
    first_s: float | None = None
    may_reorder: ClassVar[bool] = False
    needs_order: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check_period("Spikes", self.period_s, self.duration_s, self.first_s or 0)

    def start(self, chance: Chance) -> Step:
        """See Stage; nothing is left to chance. The first spike comes after one period, if not set."""
        del chance
        period_us, duration_us = _s_to_us(self.period_s), _s_to_us(self.duration_s)
        first_us = _s_to_us(self.period_s if self.first_s is None else self.first_s)

        def step(copy: Copy, out: list[Copy]) -> None:
            since_us = copy.at_us - first_us
            if since_us >= 0:
                into_us = since_us % period_us
                if into_us < duration_us:
                    copy.at_us += duration_us - into_us
            out.append(copy)

        return step


@dataclass(frozen=True, slots=True)
class Outages:
    """Every period (None: once) everything is lost for a while."""

    first_s: float
    duration_s: float
    period_s: float | None = None
    may_reorder: ClassVar[bool] = False
    needs_order: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check_period("Outages", self.period_s or self.duration_s or 1, self.duration_s, self.first_s)

    def start(self, chance: Chance) -> Step:
        """See Stage; nothing is left to chance."""
        del chance
        first_us, duration_us = _s_to_us(self.first_s), _s_to_us(self.duration_s)
        period_us = None if self.period_s is None else _s_to_us(self.period_s)

        def step(copy: Copy, out: list[Copy]) -> None:
            into_us = copy.at_us - first_us
            if into_us >= 0 and period_us is not None:
                into_us %= period_us
            if not 0 <= into_us < duration_us:
                out.append(copy)

        return step


@dataclass(frozen=True, slots=True)
class RouteFlaps:
    """Every period packets sent within a while take another route, longer by `extra_ms`."""

    period_s: float
    duration_s: float
    extra_ms: float
    first_s: float | None = None
    may_reorder: ClassVar[bool] = True
    needs_order: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check_period("RouteFlaps", self.period_s, self.duration_s, self.first_s or 0)
        if self.extra_ms < 0:
            raise ProfileError(f"RouteFlaps takes an extra delay of 0 ms or more, not {self.extra_ms:g}")

    def start(self, chance: Chance) -> Step:
        """See Stage; nothing is left to chance. The first flap comes after one period, if not set."""
        del chance
        period_us, duration_us = _s_to_us(self.period_s), _s_to_us(self.duration_s)
        first_us = _s_to_us(self.period_s if self.first_s is None else self.first_s)
        extra_us = round(self.extra_ms * 1000)

        def step(copy: Copy, out: list[Copy]) -> None:
            since_us = copy.at_us - first_us
            if since_us >= 0 and since_us % period_us < duration_us:
                copy.at_us += extra_us
            out.append(copy)

        return step


@dataclass(frozen=True, slots=True)
class DelaySteps:
    """A delay that changes at given moments: ((from second, delay in ms), …), 0 ms before the first."""

    steps: tuple[tuple[float, float], ...]
    may_reorder: ClassVar[bool] = True
    needs_order: ClassVar[bool] = False

    def __post_init__(self) -> None:
        times = [at_s for at_s, _ in self.steps]
        if times != sorted(times) or any(at_s < 0 or delay_ms < 0 for at_s, delay_ms in self.steps):
            raise ProfileError("DelaySteps takes rising moments of 0 s or more and delays of 0 ms or more")

    def start(self, chance: Chance) -> Step:
        """See Stage; nothing is left to chance."""
        del chance
        steps_us = tuple((_s_to_us(at_s), round(delay_ms * 1000)) for at_s, delay_ms in reversed(self.steps))

        def step(copy: Copy, out: list[Copy]) -> None:
            copy.at_us += next((delay_us for from_us, delay_us in steps_us if copy.at_us >= from_us), 0)
            out.append(copy)

        return step


@dataclass(frozen=True, slots=True)
class Drift:
    """Two clocks that part: delay grows by `ppm` microseconds a second from `initial_ms`, never below 0."""

    ppm: float
    initial_ms: float = 0.0
    may_reorder: ClassVar[bool] = False
    needs_order: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.initial_ms < 0:
            raise ProfileError(f"Drift takes an initial delay of 0 ms or more, not {self.initial_ms:g}")

    def start(self, chance: Chance) -> Step:
        """See Stage; nothing is left to chance."""
        del chance
        initial_us, per_us = self.initial_ms * 1000, self.ppm / 1e6

        def step(copy: Copy, out: list[Copy]) -> None:
            copy.at_us += max(0, round(initial_us + copy.at_us * per_us))
            out.append(copy)

        return step


@dataclass(frozen=True, slots=True)
class During:
    """Every period another stage is in force for a while, and out of force between."""

    period_s: float
    duration_s: float
    stage: Stage
    first_s: float | None = None
    needs_order: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check_period("During", self.period_s, self.duration_s, self.first_s or 0)
        if self.stage.needs_order:
            raise ProfileError("During cannot hold a queue, which serves packets at all times")

    @property
    def may_reorder(self) -> bool:
        """Packets after the while may overtake those delayed within it."""
        return True

    def start(self, chance: Chance) -> Step:
        """See Stage. The first while comes after one period, if not set."""
        inner = self.stage.start(chance)
        period_us, duration_us = _s_to_us(self.period_s), _s_to_us(self.duration_s)
        first_us = _s_to_us(self.period_s if self.first_s is None else self.first_s)

        def step(copy: Copy, out: list[Copy]) -> None:
            since_us = copy.at_us - first_us
            if since_us >= 0 and since_us % period_us < duration_us:
                inner(copy, out)
            else:
                out.append(copy)

        return step


@dataclass(frozen=True, slots=True)
class Redraw:
    """A delay drawn anew every period, as when a satellite or a route is chosen again."""

    period_s: float
    model: Distribution
    may_reorder: ClassVar[bool] = True
    needs_order: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check_period("Redraw", self.period_s, 0, 0)

    def start(self, chance: Chance) -> Step:
        """See Stage; the draws belong to the clock, not to packets."""
        draw = chance.stream(CLOCK)
        sample_ms = self.model.sample_ms
        period_us = _s_to_us(self.period_s)
        drawn = 0
        delays_us = [0, 0]

        def step(copy: Copy, out: list[Copy]) -> None:
            nonlocal drawn
            turn = max(0, copy.at_us // period_us)
            while drawn <= turn:
                delays_us[drawn % 2] = round(sample_ms(draw) * 1000)
                drawn += 1
            copy.at_us += delays_us[turn % 2]
            out.append(copy)

        return step


@dataclass(frozen=True, slots=True)
class TcpSawtooth:
    """The queue of a bottleneck shared with a long download: rises from `low_ms` to `high_ms`, falls, again; in order.

    Additive increase, multiplicative decrease: a drop-tail queue of Q ms on a path of R ms round trip swings between
    (Q - R) / 2 and Q; at the peak, while it is full, packets are lost with `loss_at_peak`.
    """

    low_ms: float
    high_ms: float
    period_s: float
    loss_at_peak: float = 0.5
    may_reorder: ClassVar[bool] = False
    needs_order: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_period("TcpSawtooth", self.period_s, 0, 0)
        if not (0 <= self.low_ms <= self.high_ms and 0 <= self.loss_at_peak <= 1):
            raise ProfileError("TcpSawtooth needs 0 <= low <= high and a loss from 0 to 1")

    def start(self, chance: Chance) -> Step:
        """See Stage."""
        period_us, low_us = _s_to_us(self.period_s), self.low_ms * 1000
        rise_us = (self.high_ms - self.low_ms) * 1000
        latest_us = 0

        def step(copy: Copy, out: list[Copy]) -> None:
            nonlocal latest_us
            into = copy.at_us % period_us / period_us
            if into >= _FULL_FROM and chance.stream(copy.kind)() < self.loss_at_peak:
                return
            copy.at_us = latest_us = max(latest_us, copy.at_us + round(low_us + rise_us * into))
            out.append(copy)

        return step


_FULL_FROM = 0.97
"""The part of the sawtooth's period after which the queue counts as full: about one round trip of a dozen or more."""
