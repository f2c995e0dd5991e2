"""Networks people have, and the cases standards name: each profile says where its figures come from.

Presets of engineers are called presets; they are not measurements.
"""

from __future__ import annotations

from impair.chance import Distribution, Gamma, TruncatedNormal, UniformJitter
from impair.g1050 import SEVERITIES
from impair.link import Stage
from impair.profile import Profile, symmetric
from impair.repair_paths import REPAIR_PATHS
from impair.stages import Corrupt, Delay, Duplicate, GilbertElliott, Jitter, Loss, RateQueue
from impair.timed import DelaySteps, Drift, During, Outages, Redraw, Spikes, TcpSawtooth

_STR0M = "preset of str0m's network emulator (crates/netem), an engineer's figure, not a measurement"
_RFC8868 = "RFC 8868 §4, test conditions for interactive real-time media"
_OWN = "this project's: what other catalogues leave out"


def _in_order(model: Distribution) -> Jitter:
    return Jitter(model, reorder=False)


_ACCESS = (
    symmetric(
        "wifi_good", "home Wi-Fi nearby: 5 ± 2 ms, 1 % lost in bursts of 2", _STR0M,
        GilbertElliott(1 / 200, 1 / 2), _in_order(TruncatedNormal(5, 2)), base=(Delay(5),),
    ),
    symmetric(
        "wifi_lossy", "Wi-Fi through walls: 15 ± 10 ms, 4.8 % lost in bursts of 2", _STR0M,
        GilbertElliott(1 / 40, 1 / 2), _in_order(TruncatedNormal(15, 10)), base=(Delay(15),),
    ),
    symmetric(
        "lte", "a phone on LTE: 50 ± 15 ms, 2 % lost in bursts of 2", _STR0M,
        GilbertElliott(1 / 100, 1 / 2), _in_order(TruncatedNormal(50, 15)), base=(Delay(50),),
    ),
    Profile(
        name="5g",
        summary="a phone on 5G: 18 ms up, 7 ms down, up to 5 ms of scheduling, 0.5 % lost in bursts of 2",
        source="delays: one way, Rohde & Schwarz 2022 on a public 5G NSA network; scheduling and loss: a preset",
        up=(GilbertElliott(1 / 400, 1 / 2), Delay(18), _in_order(UniformJitter(0, 5))),
        down=(GilbertElliott(1 / 400, 1 / 2), Delay(7), _in_order(UniformJitter(0, 5))),
        base=(Delay(12.5),),
    ),
    symmetric(
        "geo", "a geostationary satellite: 300 ± 30 ms each way, 2.9 % lost in bursts of 3",
        f"{_STR0M}; its 600 ms taken as the round trip",
        GilbertElliott(1 / 100, 1 / 3), _in_order(TruncatedNormal(300, 30)), base=(Delay(300),),
    ),
    symmetric(
        "leo", "a low-orbit satellite: 13 ms each way, up to 15 more anew every 15 s; 215 ms of trouble at handovers",
        "handovers every 15 s with 75 + 140 ms of spikes around them: arXiv 2601.08439; up to half of the packets lost "
        "there: measurements at IMC 2022; median round trip 26 ms: Starlink's own report (2025)",
        During(15, 0.215, Loss(0.5), 14.925), Delay(13), Redraw(15, UniformJitter(0, 15)), _in_order(Gamma(2)),
        During(15, 0.215, _in_order(UniformJitter(0, 80)), 14.925), base=(Delay(13),),
    ),
    symmetric(
        "congested", "a path overfull: 80 ± 40 ms, 9 % lost in bursts of 2", _STR0M,
        GilbertElliott(1 / 20, 1 / 2), _in_order(TruncatedNormal(80, 40)), base=(Delay(80),),
    ),
    symmetric(
        "narrow", "a 64 kbit/s bottleneck with 300 ms of queue: what does not fit waits, then falls off",
        f"{_OWN}: the class of slow links where packet headers alone matter",
        RateQueue(64_000, 300), Delay(30), base=(Delay(30),),
    ),
)  # fmt: skip


def _rfc8868(name: str, summary: str, *stages: Stage, each_way_ms: float = 50.0) -> Profile:
    """A case of the RFC with its default jitter: normal, 5 ms, cut at 3 deviations, order kept (NR-RBPDV)."""
    jitter = _in_order(TruncatedNormal(15, 5))
    return symmetric(
        f"rfc8868_{name}", f"{summary}; jitter 5 ms normal, in order", _RFC8868,
        *stages, Delay(each_way_ms), jitter, base=(Delay(each_way_ms),),
    )  # fmt: skip


_RFC_CASES = (
    *(
        _rfc8868(f"delay{delay}", f"{delay} ms each way", each_way_ms=float(delay))
        for delay in (1, 50, 150, 300)
    ),
    *(
        _rfc8868(f"loss{loss}", f"{loss} % independent loss, 50 ms each way", Loss(loss / 100))
        for loss in (1, 5, 10, 20)
    ),
    *(
        _rfc8868(
            f"queue{queue}",
            f"beside a long download in a queue of {queue} ms, 50 ms each way",
            TcpSawtooth(max(0.0, (queue - 100) / 2), float(queue), period_s=period_s),
        )
        for queue, period_s in ((70, 2.0), (400, 9.0), (1500, 40.0))
    ),
)  # fmt: skip

_G1050 = tuple(
    symmetric(
        f"g1050_{row.letter.lower()}",
        f"severity {row.letter} of A to H: LAN {row.lan_occupancy_pct:g} % and access {row.access_occupancy_pct:g} % "
        f"busy, core {row.regional_delay_ms:g} ms + up to {row.core_jitter_ms:g} ms, {row.core_loss_pct:g} % lost",
        "ITU-T G.1050 (2007), Appendix II and impairment tables, regional; 100 Mbit/s LANs, 1536 kbit/s access",
        *row.stages(),
        base=(Delay(row.regional_delay_ms),),
    )
    for row in SEVERITIES
)

_DELAY = Delay(30)
_MISSED = (
    symmetric("step80", "the route grows by 80 ms at 20 s and shrinks again at 40 s; 30 ms each way", _OWN,
              _DELAY, Jitter(Gamma(5)), DelaySteps(((20, 80), (40, 0))), base=(_DELAY,)),
    symmetric("stall300", "every 10 s nothing for 300 ms, then all at once; 30 ms each way", _OWN,
              _DELAY, Jitter(Gamma(5)), Spikes(10, 0.3), base=(_DELAY,)),
    symmetric("outage2", "every 20 s everything is lost for 2 s; 30 ms each way", _OWN,
              Outages(20, 2, 20), _DELAY, base=(_DELAY,)),
    symmetric("outage30", "20 s into the call everything is lost for 30 s; 30 ms each way", _OWN,
              Outages(20, 30), _DELAY, base=(_DELAY,)),
    symmetric("drift200", "the delay grows by 200 µs a second, as if clocks parted; 30 ms each way", _OWN,
              _DELAY, Drift(200), base=(_DELAY,)),
    symmetric("drift_minus200", "the delay shrinks by 200 µs a second from 1 s; 30 ms each way", _OWN,
              _DELAY, Drift(-200, 1000), base=(_DELAY,)),
    symmetric("duplicates", "5 % of the packets come twice, 1 % with a bit flipped; 30 ms each way", _OWN,
              Corrupt(0.01), _DELAY, Duplicate(0.05, 30), base=(_DELAY,)),
    Profile(name="lopsided", summary="10 % lost in bursts of 2 from the caller, nothing lost to him; 30 ms each way",
            source=_OWN, up=(GilbertElliott.of(loss=0.1, mean_burst=2), _DELAY), down=(_DELAY,), base=(_DELAY,)),
)  # fmt: skip

CATALOGUE: tuple[Profile, ...] = (*_ACCESS, *_RFC_CASES, *_G1050, *_MISSED, *REPAIR_PATHS)
"""Every profile but `none` and the compared paths."""
