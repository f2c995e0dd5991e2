"""Named networks, each with the source of its figures.

A profile has a disturbed path for media each way and the bare path (its `base`): a measurement that disturbs only the
way of the media, as the NetEQ table of docs/jitter.md does, sends the other way through the base.
"""

from __future__ import annotations

import difflib

from impair.catalogue import CATALOGUE
from impair.chance import Distribution, Gamma
from impair.errors import ProfileError
from impair.link import Stage
from impair.profile import Direction, MediaWays, Profile, symmetric
from impair.stages import Delay, GilbertElliott, Jitter, Loss
from impair.timed import Spikes

__all__ = ["COMPARED_PATHS", "NONE", "PROFILES", "Direction", "MediaWays", "Profile", "find_profile"]


def find_profile(name: str) -> Profile:
    """The profile of this name; ProfileError says which names come close."""
    profile = PROFILES.get(name)
    if profile is None:
        close = difflib.get_close_matches(name, PROFILES, n=3)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        raise ProfileError(f"no profile is called {name!r}{hint} (python -m impair --list shows them all)")
    return profile


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
    return symmetric(name, f"{summary}; {each_way_ms:g} ms each way", _OWN_PATHS, *stages, base=(delay,))


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

PROFILES: dict[str, Profile] = {profile.name: profile for profile in (NONE, *COMPARED_PATHS, *CATALOGUE)}
