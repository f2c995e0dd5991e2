"""The link keeps its promises: repeatable by seed, whatever the clock; bad settings are named."""

from __future__ import annotations

import hashlib

import pytest

from impair.chance import Gamma, TruncatedNormal, UniformJitter, Weibull
from impair.errors import ProfileError
from impair.link import Link, transit
from impair.profiles import COMPARED_PATHS, PROFILES, find_profile
from impair.stages import Corrupt, Delay, Duplicate, GilbertElliott, Jitter, Loss, RateQueue
from impair.timed import DelaySteps, Drift, Outages, RouteFlaps, Spikes

EVERY_20_MS = [0.02 * n for n in range(3000)]
EVERYTHING = (
    RateQueue(64_000, 300),
    GilbertElliott(0.02, 0.4, 0.001, 0.9),
    Loss(0.01),
    Delay(30),
    Drift(200),
    Jitter(Gamma(10)),
    Jitter(TruncatedNormal(15, 5), reorder=False),
    Jitter(Weibull(4, 0.8)),
    Jitter(UniformJitter(0, 3)),
    Spikes(5, 0.2),
    Outages(20, 1, 30),
    RouteFlaps(10, 0.1, 40),
    DelaySteps(((30, 80), (40, 0))),
    Duplicate(0.02),
    Corrupt(0.02),
)


def fingerprint(arrivals: list[float | None]) -> str:
    text = " ".join("-" if at is None else f"{at * 1e6:.0f}" for at in arrivals)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def test_same_seed_gives_the_same_network_on_every_machine_and_release() -> None:
    """The figure is pinned: were it to change, every published measurement would lose its meaning."""
    first, again = transit(EVERYTHING, EVERY_20_MS, seed=7), transit(EVERYTHING, EVERY_20_MS, seed=7)
    assert first == again
    assert fingerprint(first) == "22357839d38a3bec"
    assert transit(EVERYTHING, EVERY_20_MS, seed=8) != first


@pytest.mark.parametrize("origin", [0.0, 1234.567891, 9e5 + 0.1])
def test_fates_do_not_depend_on_where_the_clock_stood(origin: float) -> None:
    link, moved = Link(EVERYTHING, seed=3, origin=0.0), Link(EVERYTHING, seed=3, origin=origin)
    for sent in EVERY_20_MS:
        here, there = link.handle_packet(72, now=sent), moved.handle_packet(72, now=origin + sent)
        assert here.lost_by == there.lost_by
        assert [d.flips for d in here.deliveries] == [d.flips for d in there.deliveries]
        for a, b in zip(here.deliveries, there.deliveries, strict=True):
            assert abs(a.at + origin - b.at) < 1e-8


def test_packets_of_another_kind_do_not_move_the_losses_of_speech() -> None:
    stages = find_profile("burst5x3_jitter20").down
    alone, mixed = Link(stages, seed=1, origin=0.0), Link(stages, seed=1, origin=0.0)
    for n, sent in enumerate(EVERY_20_MS):
        if n % 7 == 0:
            mixed.handle_packet(100, now=sent, kind=2)
        assert alone.handle_packet(72, now=sent) == mixed.handle_packet(72, now=sent)


def test_stages_draw_apart_so_that_more_jitter_leaves_the_losses_alone() -> None:
    lost = [
        [at is None for at in transit((Loss(0.05), Jitter(Gamma(mean))), EVERY_20_MS, seed=5)] for mean in (1.0, 30.0)
    ]
    assert lost[0] == lost[1]


def test_up_and_down_of_a_profile_draw_apart() -> None:
    profile = find_profile("loss5")
    up, down = profile.link("up", seed=1), profile.link("down", seed=1)
    assert [up.handle_packet(72, now=t).lost_by for t in EVERY_20_MS] != [
        down.handle_packet(72, now=t).lost_by for t in EVERY_20_MS
    ]


def test_stats_say_what_the_link_did() -> None:
    link = Link((Loss(0.1), Duplicate(0.1), Corrupt(0.1), Delay(20)), seed=2)
    fates = [link.handle_packet(72, now=t) for t in EVERY_20_MS]
    assert link.stats.packets == 3000
    assert link.stats.lost == link.stats.lost_by["Loss"] == sum(not fate.deliveries for fate in fates)
    assert link.stats.duplicated == sum(len(fate.deliveries) == 2 for fate in fates)
    assert link.stats.corrupted == sum(any(d.flips for d in fate.deliveries) for fate in fates)
    assert link.stats.delay_sum_ms / (3000 - link.stats.lost) == pytest.approx(20)


def test_a_direction_without_media_is_the_bare_path() -> None:
    for profile in COMPARED_PATHS:
        assert profile.stages("up", media="down") == profile.base
        assert profile.stages("down", media="down") == profile.down
        assert profile.stages("up") == profile.up == profile.down
        assert all(isinstance(stage, Delay) for stage in profile.base)


def test_every_profile_names_its_source() -> None:
    for name, profile in PROFILES.items():
        assert profile.name == name
        assert len(profile.source) > 10
        assert len(profile.summary) > 10


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Loss(1.5), "probabilities from 0 to 1"),
        (lambda: Delay(-1), "delay_ms of 0 or more"),
        (lambda: GilbertElliott.of(loss=0.05, mean_burst=0.5), "bursts of 1 or more"),
        (lambda: RateQueue(0, 100), "above 0 bit/s"),
        (lambda: Spikes(1, 2), "holds its duration"),
        (lambda: UniformJitter(5, 1), "low <= high"),
        (lambda: DelaySteps(((5, 1), (1, 1))), "rising moments"),
        (lambda: Link((Jitter(Gamma(5)), RateQueue(1e6, 100))), "RateQueue must come before Jitter"),
        (lambda: find_profile("jiter30"), "did you mean jitter30"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(make, says: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ProfileError, match=says):
        make()
