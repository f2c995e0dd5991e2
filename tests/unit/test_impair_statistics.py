"""Every model has the loss, bursts, delays and reordering it claims, against figures worked out here, apart from it."""

from __future__ import annotations

import itertools
import math
import statistics

import pytest

from impair.chance import Distribution, Gamma, TruncatedNormal, UniformJitter, Weibull
from impair.g1050 import SEVERITIES, G1050CoreJitter, G1050Edges
from impair.link import Link, Stage, transit
from impair.profiles import PROFILES
from impair.stages import Corrupt, Delay, Duplicate, GilbertElliott, Jitter, Loss, RateQueue
from impair.timed import DelaySteps, Drift, During, Outages, Redraw, RouteFlaps, Spikes, TcpSawtooth

N = 30_000
SENT = [0.02 * n for n in range(N)]


def lost(stage: Stage, seed: int = 1) -> list[bool]:
    return [at is None for at in transit((stage,), SENT, seed=seed)]


def delays_ms(*stages: Stage, sent: list[float] = SENT, seed: int = 1) -> list[float]:
    return [(at - t) * 1000 for at, t in zip(transit(stages, sent, seed=seed), sent, strict=True) if at is not None]


def bursts(losses: list[bool]) -> list[int]:
    return [len(list(run)) for is_lost, run in itertools.groupby(losses) if is_lost]


def near(value: float, expected: float, *, variance: float, n: float = N, sigmas: float = 4.0) -> None:
    """Within so many standard errors of what theory says."""
    assert abs(value - expected) < sigmas * math.sqrt(variance / n), f"{value} is not {expected}"


@pytest.mark.parametrize("rate", [0.01, 0.05, 0.2])
def test_independent_loss(rate: float) -> None:
    losses = lost(Loss(rate))
    near(statistics.fmean(losses), rate, variance=rate * (1 - rate))
    runs = bursts(losses)  # geometric: mean 1 / (1 - rate)
    near(statistics.fmean(runs), 1 / (1 - rate), variance=rate / (1 - rate) ** 2, n=len(runs))


@pytest.mark.parametrize(("loss", "burst"), [(0.05, 3), (0.2, 2), (0.1, 2), (0.01, 8)])
def test_gilbert_loss_and_bursts(loss: float, burst: float) -> None:
    p, r = loss / (burst * (1 - loss)), 1 / burst
    losses = lost(GilbertElliott.of(loss=loss, mean_burst=burst))
    correlation = 1 - p - r  # of the two-state chain, which widens the error of its mean
    near(statistics.fmean(losses), loss, variance=loss * (1 - loss) * (1 + correlation) / (1 - correlation))
    runs = bursts(losses)
    near(statistics.fmean(runs), burst, variance=(1 - r) / r**2, n=len(runs))
    for length in (1, 2, 3):  # the whole distribution, not the mean alone: P(L = k) = r (1 - r)^(k - 1)
        share = r * (1 - r) ** (length - 1)
        near(runs.count(length) / len(runs), share, variance=share * (1 - share), n=len(runs))
    gaps = [len(list(run)) for is_lost, run in itertools.groupby(losses) if not is_lost]
    near(statistics.fmean(gaps), 1 / p, variance=(1 - p) / p**2, n=len(gaps))


def test_gilbert_elliott_with_losses_in_both_states() -> None:
    p, r, good, bad = 0.02, 0.1, 0.01, 0.6
    losses = lost(GilbertElliott(p, r, good, bad))
    in_bad = p / (p + r)
    expected = in_bad * bad + (1 - in_bad) * good
    # after a loss the state is more likely bad: P(loss | loss before), by Bayes and one step of the chain
    bad_after_loss = in_bad * bad / expected
    next_bad = bad_after_loss * (1 - r) + (1 - bad_after_loss) * p
    again = next_bad * bad + (1 - next_bad) * good
    followers = [b for a, b in itertools.pairwise(losses) if a]
    near(statistics.fmean(losses), expected, variance=expected * (1 - expected) * (1.88 / 0.12))
    near(statistics.fmean(followers), again, variance=again * (1 - again) * 3, n=len(followers))


MODELS: list[tuple[Distribution, float, float, tuple[float, float]]] = [
    # model, mean, standard deviation, (95th percentile, relative tolerance); percentiles of the unit laws from tables
    (Gamma(30, 2), 30.0, 30 / math.sqrt(2), (15 * 4.743865, 0.02)),
    (Gamma(10, 1), 10.0, 10.0, (10 * 2.995732, 0.02)),
    (TruncatedNormal(50, 5), 50.0, 5 * 0.986578, (50 + 5 * 1.634, 0.005)),
    (Weibull(10, 2), 10 * 0.886227, 10 * 0.463251, (10 * 1.730818, 0.02)),
    (Weibull(10, 0.5), 20.0, 44.72136, (10 * 8.974412, 0.05)),
    (UniformJitter(4, 10), 7.0, 6 / math.sqrt(12), (9.7, 0.005)),
]


@pytest.mark.parametrize(("model", "mean", "sd", "p95"), MODELS, ids=lambda value: type(value).__name__)
def test_jitter_models(model: Distribution, mean: float, sd: float, p95: tuple[float, float]) -> None:
    delays = sorted(delays_ms(Jitter(model)))
    near(statistics.fmean(delays), mean, variance=sd**2)
    assert statistics.pstdev(delays) == pytest.approx(
        sd, rel=0.04 if sd < 1.5 * mean else 0.12
    )  # the long tail's own error is 2.7 %
    assert delays[int(0.95 * N)] == pytest.approx(p95[0], rel=p95[1])
    assert delays[0] >= 0
    assert delays[-1] <= model.reach_ms


@pytest.mark.parametrize("mean", [10.0, 30.0, 40.0])
def test_gamma_jitter_reorders_as_often_as_its_law_says(mean: float) -> None:
    arrivals = [at for at in transit((Jitter(Gamma(mean)),), SENT, seed=2) if at is not None]
    overtaken = statistics.fmean(a > b for a, b in itertools.pairwise(arrivals))
    rate = 2 / mean  # P(X - Y > d) of two gamma(2) = e^(-rate d) (2 + rate d) / 4
    expected = math.exp(-rate * 20) * (2 + rate * 20) / 4
    near(overtaken, expected, variance=expected * (1 - expected))
    in_order = [at for at in transit((Jitter(Gamma(mean), reorder=False),), SENT, seed=2) if at is not None]
    assert in_order == sorted(in_order)


def overtaken(*stages: Stage) -> float:
    """The part of packets that arrive before the one sent just before them."""
    arrivals = [at for at in transit(stages, SENT, seed=2) if at is not None]
    return statistics.fmean(a > b for a, b in itertools.pairwise(arrivals))


def test_uniform_and_weibull_jitter_reorder_as_often_as_their_laws_say() -> None:
    # X - Y > 20 of two uniform on [0, 60]: (60 - 20)^2 / (2 · 60^2)
    expected = 40**2 / (2 * 60**2)
    near(overtaken(Jitter(UniformJitter(0, 60))), expected, variance=expected * (1 - expected))
    assert overtaken(Jitter(UniformJitter(0, 19.99))) == 0
    # of two exponential (Weibull of shape 1) with mean 30: e^(-20/30) / 2
    expected = math.exp(-20 / 30) / 2
    near(overtaken(Jitter(Weibull(30, 1.0))), expected, variance=expected * (1 - expected))
    # of two normal, variance 2 sd² (the cut at 3 takes off less than the tolerance): Q(20 / (sd √2))
    expected = 0.5 * math.erfc(20 / (15 * math.sqrt(2)) / math.sqrt(2))
    assert overtaken(Jitter(TruncatedNormal(60, 15))) == pytest.approx(expected, rel=0.06)
    for model in (UniformJitter(0, 60), Weibull(30, 1.0), TruncatedNormal(60, 15)):
        assert overtaken(Jitter(model, reorder=False)) == 0


def test_route_flaps_reorder_at_their_end_alone() -> None:
    # the first packet back on the route that is 50 ms shorter overtakes the two or three before it
    arrivals = [at for at in transit((RouteFlaps(10, 1, 50),), SENT) if at is not None]
    late = [b for a, b in itertools.pairwise(arrivals) if a > b]
    assert len(late) == N * 0.02 // 10 - 1
    assert {round(at % 10, 2) for at in late} == {1.0}


def test_what_only_moves_the_clock_never_reorders() -> None:
    for stages in ((Delay(30),), (Drift(200),), (Spikes(5, 0.2),), (RateQueue(64_000, 300),), (Loss(0.1),)):
        assert overtaken(*stages) == 0


def test_ways_may_differ() -> None:
    profile = PROFILES["5g"]
    up, down = (transit(profile.stages(way), SENT, seed=1) for way in ("up", "down"))
    means = [
        statistics.fmean((at - t) * 1000 for t, at in zip(SENT, way, strict=True) if at is not None)
        for way in (up, down)
    ]
    assert means == pytest.approx([18 + 2.5, 7 + 2.5], abs=0.1)
    lopsided = PROFILES["lopsided"]
    losses = [[at is None for at in transit(lopsided.stages(way), SENT, seed=1)] for way in ("up", "down")]
    near(statistics.fmean(losses[0]), 0.1, variance=0.09 * (1 + 4 / 9) / (5 / 9))  # 1 - p - r = 4/9
    assert sum(losses[1]) == 0


def test_spikes_hold_back_what_falls_within_them_and_let_it_go_at_their_end() -> None:
    arrivals = transit((Delay(30), Spikes(5, 0.2)), SENT)
    late = [(t, at) for t, at in zip(SENT, arrivals, strict=True) if at is not None and at - t > 0.0301]
    assert len(late) / N == pytest.approx(0.2 / 5, rel=0.01)
    for t, at in late:
        assert at == pytest.approx(5 * math.floor((t + 0.030001) / 5) + 0.2, abs=2e-6)


def test_outages_lose_all_within_them_and_nothing_else() -> None:
    arrivals = transit((Outages(10, 2, 30),), SENT)
    for t, at in zip(SENT, arrivals, strict=True):
        assert (at is None) == (round(t, 6) >= 10 and round((t - 10) % 30, 6) % 30 < 2)


def test_flaps_steps_and_drift_follow_the_clock() -> None:
    assert set(map(round, delays_ms(RouteFlaps(10, 1, 40)))) == {0, 40}
    assert statistics.fmean(delays_ms(RouteFlaps(10, 1, 40))) == pytest.approx(4, rel=0.02)
    steps = delays_ms(DelaySteps(((100, 80), (200, 20))))
    assert [round(steps[i]) for i in (0, 4999, 5000, 9999, 10000, N - 1)] == [0, 0, 80, 80, 20, 20]
    hour = [float(s) for s in range(3601)]
    assert delays_ms(Drift(200), sent=hour)[-1] == pytest.approx(720)
    assert delays_ms(Drift(-200, 1000), sent=hour)[-1] == pytest.approx(280)
    assert min(delays_ms(Drift(-200, 100), sent=hour)) == 0


def test_a_bottleneck_lets_through_its_rate_and_queues_the_rest() -> None:
    # 172 bytes + 28 of headers, 50 a second: 80 kbit/s into 64 kbit/s
    out = transit((RateQueue(64_000, 300),), SENT, size_bytes=172)
    assert statistics.fmean(at is None for at in out) == pytest.approx(0.2, rel=0.01)
    settled = [(at - t) * 1000 for t, at in list(zip(SENT, out, strict=True))[500:] if at is not None]
    assert 300 <= max(settled) < 325.001  # a full queue and one packet of 25 ms
    assert min(settled) > 295
    free = delays_ms(RateQueue(160_000, 300), sent=SENT[:100])
    assert free == pytest.approx([100 * 8 / 160] * 100, abs=0.01)  # 72 + 28 bytes, never a queue


def test_duplicates_and_flipped_bits() -> None:
    link = Link((Duplicate(0.05, 30), Corrupt(0.1)), seed=3)
    gaps, flips = [], []
    for t in SENT:
        fate = link.handle_packet(72, now=t)
        flips += [bit for d in fate.deliveries for bit in d.flips]
        if len(fate.deliveries) == 2:
            gaps.append((fate.deliveries[1].at - fate.deliveries[0].at) * 1000)
    near(len(gaps) / N, 0.05, variance=0.05 * 0.95)
    near(statistics.fmean(gaps), 15, variance=30**2 / 12, n=len(gaps))
    copies = N + len(gaps)
    near(len(flips) / copies, 0.1, variance=0.09, n=copies)
    near(statistics.fmean(flips), 72 * 4 - 0.5, variance=(72 * 8) ** 2 / 12, n=len(flips))


def test_what_holds_during_a_while_holds_then_alone() -> None:
    losses = lost(During(15, 0.3, Loss(0.5), 15))
    inside = [is_lost for t, is_lost in zip(SENT, losses, strict=True) if t >= 15 and t % 15 < 0.2999]
    near(statistics.fmean(inside), 0.5, variance=0.25, n=len(inside))
    assert sum(losses) == sum(inside)


def test_a_redrawn_delay_is_one_delay_a_period() -> None:
    out = transit((Redraw(2, UniformJitter(0, 15)),), SENT)
    levels = [
        {round((at - t) * 1e6) for t, at in zip(SENT, out, strict=True) if int(round(t, 6) // 2) == turn and at}
        for turn in range(1, 21)
    ]
    assert all(len(level) == 1 for level in levels)
    assert len(set.union(*levels)) == 20
    many = delays_ms(Redraw(2, UniformJitter(0, 15)), sent=[2.0 * n for n in range(5000)])
    near(statistics.fmean(many), 7.5, variance=15**2 / 12, n=5000)


def test_the_queue_beside_a_download_swings_and_loses_at_its_peak() -> None:
    stage = TcpSawtooth(150, 400, 9.0, loss_at_peak=0.5)
    delays = delays_ms(stage)
    assert 150 <= min(delays) < 152
    assert max(delays) <= 400
    near(1 - len(delays) / N, 0.03 * 0.5, variance=0.03 * 0.25)
    out = [at for at in transit((stage,), SENT) if at is not None]
    assert out == sorted(out)


def edge_theory(lan_pct: float, access_pct: float) -> tuple[float, float]:
    """Mean delay in ms and loss of the model's edges, from the stationary state of each chain."""
    lan_high = 0.0001 * lan_pct / (0.0001 * lan_pct + 0.1)
    access_back = 0.2 / (1 + access_pct)
    access_high = 0.0002 * access_pct / (0.0002 * access_pct + access_back)
    lan_delay = lan_high * 0.5 * 0.5 * 0.12 * (1 + lan_pct / 40)
    height = 0.25 * 12000 / 1536 * (1 + access_pct / 40)
    access_delay = (1 - access_high) * (0.001 + access_pct / 2000) * height / 2
    access_delay += access_high * (0.3 + 0.4 * access_pct / 100) * height
    loss = 2 * (lan_high * 0.000025 * lan_pct + access_high * 0.0005 * access_pct)
    return 1600 / 1536 * 2 + 1.5 + 2 * (lan_delay + access_delay), loss


@pytest.mark.parametrize("row", SEVERITIES, ids=lambda row: row.letter)
def test_g1050_edges_have_the_delay_and_loss_of_their_chains(row) -> None:  # type: ignore[no-untyped-def]
    sent = SENT[:8_000]
    delays = delays_ms(G1050Edges(row.lan_occupancy_pct, row.access_occupancy_pct), sent=sent)
    mean, loss = edge_theory(row.lan_occupancy_pct, row.access_occupancy_pct)
    assert statistics.fmean(delays) == pytest.approx(mean, rel=0.05)
    assert 1 - len(delays) / len(sent) == pytest.approx(loss, abs=0.0015 + 0.3 * loss)


def test_g1050_core_overtakes_only_as_often_as_it_may() -> None:
    kept = transit((G1050CoreJitter(500, 0.0),), SENT)
    assert kept == sorted(at for at in kept if at is not None)
    some = [at for at in transit((G1050CoreJitter(500, 0.01),), SENT) if at is not None]
    latest = list(itertools.accumulate(some, max))
    overtaking = statistics.fmean(at < before for at, before in zip(some[1:], latest, strict=False))
    assert 0 < overtaking <= 0.0115


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_runs_both_ways_and_keeps_its_summary(name: str) -> None:
    """A minute of speech: nothing comes before it was sent, and the bare path loses nothing."""
    profile = PROFILES[name]
    sent = SENT[:1500]
    for way in ("up", "down"):
        out = transit(profile.stages(way), sent, seed=1)
        assert all(at is None or at >= t for t, at in zip(sent, out, strict=True))
        assert sum(at is None for at in out) < 900
    assert None not in transit(profile.base, sent)
