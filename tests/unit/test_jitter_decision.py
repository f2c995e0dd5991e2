"""Golden tests: a state in, the operation out."""

from __future__ import annotations

import pytest

from jitter.decision import BufferStatus, Operation, bridge_ahead_ms, decide

HELD = {"next_held": True, "hole_ms": 0.0, "target_ms": 60.0}
HOLE = {"hole_ms": 20.0, "target_ms": 60.0, "delay_ms": 62.0, "next_missing": True}


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        # sound is there: held at the target within one output frame
        ({**HELD, "delay_ms": 60.0}, Operation.NORMAL),
        ({**HELD, "delay_ms": 70.9}, Operation.NORMAL),
        ({**HELD, "delay_ms": 71.0}, Operation.ACCELERATE),
        ({**HELD, "delay_ms": 109.0}, Operation.ACCELERATE),
        ({**HELD, "delay_ms": 110.0}, Operation.FAST_ACCELERATE),
        ({**HELD, "delay_ms": 56.0}, Operation.NORMAL),
        ({**HELD, "delay_ms": 55.9}, Operation.PREEMPTIVE_EXPAND),
        # one stretch in 50 ms, unless the delay is far off
        ({**HELD, "delay_ms": 80.0, "since_stretch_ms": 40.0}, Operation.NORMAL),
        ({**HELD, "delay_ms": 40.0, "since_stretch_ms": 40.0}, Operation.NORMAL),
        ({**HELD, "delay_ms": 120.0, "since_stretch_ms": 0.0}, Operation.FAST_ACCELERATE),
        # with 20 ms frames the delay can only be set that finely
        ({**HELD, "delay_ms": 75.0, "frame_ms": 20.0}, Operation.NORMAL),
        # a stall is stretched over at once, but not without end
        ({**HELD, "delay_ms": 62.0, "stalled": True, "since_stretch_ms": 0.0}, Operation.PREEMPTIVE_EXPAND),
        ({**HELD, "delay_ms": 171.0, "stalled": True}, Operation.FAST_ACCELERATE),
        # a known hole ahead is stretched into while there is budget and no delay to spare
        ({**HELD, "delay_ms": 62.0, "hole_follows_ms": 20.0, "may_bridge": True}, Operation.PREEMPTIVE_EXPAND),
        ({**HELD, "delay_ms": 62.0, "hole_follows_ms": 20.0}, Operation.NORMAL),
        ({**HELD, "delay_ms": 75.0, "hole_follows_ms": 20.0, "may_bridge": True}, Operation.ACCELERATE),
        # after concealment comes a merge
        ({**HELD, "delay_ms": 62.0, "filled_ms": 10.0}, Operation.MERGE),
        # nothing is held
        ({"hole_ms": None}, Operation.EXPAND),
        ({"hole_ms": None, "in_pause": True}, Operation.COMFORT_NOISE),
        # a hole: FEC where there is some, concealment until what follows is due, then on
        ({**HOLE, "fec_held": True}, Operation.RECOVER),
        ({**HOLE, "fec_held": True, "filled_ms": 10.0}, Operation.RECOVER),
        ({**HOLE, "hole_ms": 40.0, "fec_held": True}, Operation.EXPAND),
        ({**HOLE, "hole_ms": 40.0, "fec_held": True, "filled_ms": 20.0}, Operation.RECOVER),
        (HOLE, Operation.EXPAND),
        ({**HOLE, "filled_ms": 10.0}, Operation.EXPAND),
        ({**HOLE, "filled_ms": 20.0}, Operation.MERGE),
        ({**HOLE, "filled_ms": 13.0, "bridged_ms": 7.0}, Operation.MERGE),
        ({**HOLE, "filled_ms": 12.5, "may_bridge": True}, Operation.MERGE),
        ({**HOLE, "filled_ms": 10.0, "delay_ms": 81.0}, Operation.MERGE),
        ({**HOLE, "filled_ms": 0.0, "delay_ms": 90.0}, Operation.EXPAND),
        # a pause of the sender
        ({"hole_ms": 400.0, "in_pause": True, "filled_ms": 100.0, "target_ms": 60.0}, Operation.COMFORT_NOISE),
        ({"hole_ms": 400.0, "in_pause": True, "filled_ms": 400.0, "target_ms": 60.0}, Operation.MERGE),
    ],
)
def test_golden(state: dict[str, float], expected: Operation) -> None:
    assert decide(BufferStatus(**state)) is expected  # type: ignore[arg-type]


def test_a_longer_hole_leaves_more_to_what_follows_it_up_to_three_periods() -> None:
    def ahead(hole_ms: float) -> float:
        return bridge_ahead_ms(BufferStatus(hole_ms=hole_ms, next_missing=True, may_bridge=True))

    assert [ahead(ms) for ms in (10, 20, 40, 60, 200)] == [0.0, 7.5, 15.0, 22.5, 22.5]
    assert bridge_ahead_ms(BufferStatus(hole_ms=20, next_missing=True)) == 0
