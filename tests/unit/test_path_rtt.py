"""Whose round trip is the media's."""

from __future__ import annotations

from transport.path_rtt import PathRtt
from transport.rtt import RttStatistics


def _echo(rtt_ms: float, now: float) -> RttStatistics:
    return RttStatistics(latest_ms=rtt_ms, min_ms=rtt_ms, p50_ms=rtt_ms, p90_ms=rtt_ms + 2, echoes=10, updated_at=now)


def test_rtcp_serves_until_there_are_echoes() -> None:
    path = PathRtt()
    assert path.update(echo=RttStatistics(), rtcp_ms=None, now=0.0) is False
    assert path.source == "none"
    assert path.update(echo=RttStatistics(), rtcp_ms=80.0, now=1.0)
    assert (str(path.source), path.p90_ms) == ("rtcp", 80.0)
    assert path.update(echo=_echo(60.0, 2.0), rtcp_ms=80.0, now=2.0)
    assert (str(path.source), path.p50_ms, path.p90_ms) == ("echo", 60.0, 62.0)


def test_after_a_step_rtcp_lags_and_does_not_win() -> None:
    path = PathRtt()
    for tick in range(20):
        path.update(echo=_echo(200.0, tick / 5), rtcp_ms=40.0, now=tick / 5)
    assert path.source == "echo"


def test_media_that_goes_another_way_is_believed_after_five_seconds_and_given_up_when_it_agrees() -> None:
    path = PathRtt()
    for tick in range(40):
        path.update(echo=_echo(20.0, tick / 5), rtcp_ms=120.0, now=tick / 5)
    assert (path.source, path.p90_ms) == ("rtcp", 120.0)
    path.update(echo=_echo(118.0, 9.0), rtcp_ms=120.0, now=9.0)
    assert path.source == "echo"


def test_echoes_that_stopped_give_way() -> None:
    path = PathRtt()
    path.update(echo=_echo(60.0, 0.0), rtcp_ms=70.0, now=0.0)
    path.update(echo=_echo(60.0, 0.0), rtcp_ms=70.0, now=6.0)
    assert path.source == "rtcp"
