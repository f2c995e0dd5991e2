"""Named networks, each with the source of its figures.

A profile has a disturbed path for media each way and the bare path (its `base`): a measurement that disturbs only the
way of the media, as the NetEQ table of docs/jitter.md does, sends the other way through the base.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Literal

from impair.chance import Distribution, Gamma
from impair.errors import ProfileError
from impair.link import Link, Stage, check_order
from impair.stages import Delay, GilbertElliott, Jitter, Loss
from impair.timed import Spikes

Direction = Literal["up", "down"]
MediaWays = Literal["both", "up", "down"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A network by name: `up` is from the caller to the system under test, `down` the way back."""

    name: str
    summary: str
    """What it is, in one line for people."""
    source: str
    """Where the figures come from."""
    up: tuple[Stage, ...] = ()
    down: tuple[Stage, ...] = ()
    base: tuple[Stage, ...] = ()
    """The path of a direction that carries no media to be disturbed."""

    def __post_init__(self) -> None:
        for stages in (self.up, self.down, self.base):
            check_order(stages)

    def stages(self, direction: Direction, *, media: MediaWays = "both") -> tuple[Stage, ...]:
        """The stages of one direction when media to be disturbed goes these ways."""
        if media not in {"both", direction}:
            return self.base
        return self.up if direction == "up" else self.down

    def link(
        self, direction: Direction, *, seed: int | str = 0, media: MediaWays = "both", origin: float | None = None
    ) -> Link:
        """A fresh link of one direction; its chance differs from that of the other direction of the same seed."""
        return Link(self.stages(direction, media=media), seed=f"{seed}/{direction}", origin=origin)


def find_profile(name: str) -> Profile:
    """The profile of this name; ProfileError says which names come close."""
    profile = PROFILES.get(name)
    if profile is None:
        close = difflib.get_close_matches(name, PROFILES, n=3)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        raise ProfileError(f"no profile is called {name!r}{hint} (python -m impair --list shows them all)")
    return profile


def _symmetric(name: str, summary: str, source: str, *stages: Stage, base: tuple[Stage, ...] = ()) -> Profile:
    return Profile(name=name, summary=summary, source=source, up=stages, down=stages, base=base)


_OWN_PATHS = "this project's comparison with NetEQ (docs/jitter.md)"


def _compared(
    name: str,
    summary: str,
    *,
    loss: Stage | None = None,
    jitter: Distribution | None = None,
    each_way_ms: float = 30.0,
    spikes: Spikes | None = None,
) -> Profile:
    """One path of the comparison: loss, then the delay of each way, then jitter that may reorder, then spikes."""
    delay = Delay(each_way_ms)
    stages: list[Stage] = [delay]
    if loss is not None:
        stages.insert(0, loss)
    if jitter is not None:
        stages.append(Jitter(jitter))
    if spikes is not None:
        stages.append(spikes)
    return _symmetric(name, f"{summary}; {each_way_ms:g} ms each way", _OWN_PATHS, *stages, base=(delay,))


NONE = Profile(name="none", summary="no impairment: 0 ms, nothing lost", source="the zero of every comparison")

COMPARED_PATHS: tuple[Profile, ...] = (
    _compared("clean", "nothing but delay"),
    _compared("jitter10", "jitter of 10 ms mean (gamma, shape 2)", jitter=Gamma(10)),
    _compared("jitter30", "jitter of 30 ms mean (gamma, shape 2)", jitter=Gamma(30)),
    _compared("loss1", "1 % independent loss", loss=Loss(0.01)),
    _compared("loss5", "5 % independent loss", loss=Loss(0.05)),
    _compared("loss5_jitter30", "5 % independent loss, jitter of 30 ms mean", loss=Loss(0.05), jitter=Gamma(30)),
    _compared(
        "burst5x3_jitter20",
        "5 % loss in bursts of 3 (Gilbert), jitter of 20 ms mean",
        loss=GilbertElliott.of(loss=0.05, mean_burst=3),
        jitter=Gamma(20),
    ),
    _compared(
        "spike200",
        "jitter of 5 ms mean; every 5 s nothing arrives for 200 ms, then all at once",
        jitter=Gamma(5),
        spikes=Spikes(period_s=5, duration_s=0.2),
    ),
    _compared(
        "loss20_jitter40",
        "20 % loss in bursts of 2 (Gilbert), jitter of 40 ms mean",
        loss=GilbertElliott.of(loss=0.20, mean_burst=2),
        jitter=Gamma(40),
        each_way_ms=50,
    ),
)
"""The nine paths on which jitter buffers are compared, in the order of the table."""

PROFILES: dict[str, Profile] = {profile.name: profile for profile in (NONE, *COMPARED_PATHS)}
