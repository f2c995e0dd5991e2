"""The level of loss that decisions act on: quick up, slow down, deaf to chance."""

from __future__ import annotations

import random
from itertools import pairwise
from statistics import median

import pytest

from jitter.loss_level import LossLevel


def _run(segments: list[tuple[float, float]], *, seed: int) -> list[tuple[float, float]]:
    """Feed 50 packets a second in reports at 5 Hz; return (time, level)."""
    source = random.Random(seed)
    level = LossLevel()
    sent = lost = 0
    levels = []
    for seconds, share in segments:
        for _ in range(round(seconds * 50)):
            sent += 1
            lost += source.random() < share
            if sent % 10 == 0:
                levels.append((sent / 50, level.handle_totals(sent=sent, lost=lost, now=sent / 50)))
    return levels


def test_a_step_of_loss_is_acted_on_within_a_second_and_forgotten_within_eleven() -> None:
    rises, falls = [], []
    for seed in range(20):
        levels = _run([(15, 0.0), (15, 0.1), (15, 0.0)], seed=seed)
        rises.append(next(at for at, share in levels if share >= 0.03) - 15)
        falls.append(next(at for at, share in levels if at > 30 and share < 0.001) - 30)
    assert median(rises) <= 1.0
    assert max(rises) <= 2.5
    assert max(falls) <= 11.0


@pytest.mark.parametrize("share", [0.01, 0.05, 0.1, 0.2])
def test_a_steady_loss_gives_its_share(share: float) -> None:
    levels = [value for seed in range(5) for at, value in _run([(60, share)], seed=seed) if at > 15]
    assert sum(levels) / len(levels) == pytest.approx(share, rel=0.25, abs=0.002)


def test_after_a_step_the_level_never_goes_the_wrong_way() -> None:
    for seed in range(10):
        levels = [share for at, share in _run([(15, 0.1), (20, 0.0)], seed=seed) if at > 15.4]
        assert all(after <= before for before, after in pairwise(levels))


def test_a_step_up_is_not_taken_back_for_what_was_before_it() -> None:
    for seed in range(20):
        levels = [share for at, share in _run([(15, 0.0), (8, 0.1)], seed=seed) if at > 15]
        risen = next(index for index, share in enumerate(levels) if share >= 0.03)
        assert min(levels[risen:]) >= 0.03


def test_one_lost_packet_moves_nothing() -> None:
    level = LossLevel()
    for second in range(20):
        level.handle_totals(sent=50 * second, lost=second >= 10, now=float(second))
    assert level.share == 0.0


def _level_after(rises: list[tuple[float, int]], *, until: float, told_at_once: bool) -> float:
    """Feed 50 packets a second at 5 Hz and at each of `rises`, (time, packets lost then); return the level."""
    level = LossLevel()
    for at in sorted({step / 5 for step in range(round(until * 5) + 1)} | {at for at, _ in rises}):
        lost = sum(count for since, count in rises if since <= at)
        level.handle_totals(sent=round(50 * at), lost=lost, now=at, told_at_once=told_at_once)
    return level.share


def test_two_losses_near_each_other_after_a_quiet_time_are_a_beginning() -> None:
    rises = [(15.0, 1), (15.5, 1)]
    assert _level_after(rises, until=15.6, told_at_once=True) == pytest.approx(0.03)
    assert _level_after(rises, until=15.6, told_at_once=False) == 0.0
    assert _level_after(rises, until=27.0, told_at_once=True) < 0.01


@pytest.mark.parametrize(
    "rises",
    [
        [(15.0, 1), (16.0, 1)],
        [(15.0, 2)],
        [(10.0, 1), (15.0, 1), (15.5, 1)],
        [(4.0, 1), (4.4, 1)],
    ],
    ids=["far apart", "one burst", "not quiet before", "too early to know what is usual"],
)
def test_two_losses_are_nothing_elsewhere(rises: list[tuple[float, int]]) -> None:
    assert _level_after(rises, until=rises[-1][0] + 0.1, told_at_once=True) == 0.0


def test_a_step_told_at_once_is_acted_on_sooner() -> None:
    """Ten per cent lost, each loss told when it happens, as the softphone does: the second loss is enough."""

    def rise_s(seed: int, *, told_at_once: bool) -> float:
        source, level, lost = random.Random(seed), LossLevel(), 0
        for sent in range(1, 1500):
            is_lost = sent > 750 and source.random() < 0.1
            lost += is_lost
            if (is_lost or sent % 10 == 0) and level.handle_totals(
                sent=sent, lost=lost, now=sent / 50, told_at_once=told_at_once
            ) >= 0.03:
                return sent / 50 - 15
        raise AssertionError("ten per cent were never seen")

    two = [rise_s(seed, told_at_once=True) for seed in range(100)]
    three = [rise_s(seed, told_at_once=False) for seed in range(100)]
    assert median(two) <= 0.5
    assert all(sooner <= later for sooner, later in zip(two, three, strict=True))
    assert median(later - sooner for sooner, later in zip(two, three, strict=True)) >= 0.1


def test_a_new_stream_starts_anew() -> None:
    level = LossLevel()
    level.handle_totals(sent=10_000, lost=5_000, now=0.0)
    level.handle_totals(sent=10, lost=0, now=1.0)
    assert level.share == 0.0
    assert level.measured(5.0, now=1.0) == 0.0
