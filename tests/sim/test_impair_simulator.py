"""Whole calls through links in virtual time: repeatable, true to the network, and shrunk to what broke them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from impair.errors import ImpairError, ProfileError
from impair.profiles import find_profile
from impair.simulate_command import main
from impair.simulated_speech import WORD_FRAMES, Utterance, WordDecoder, encode, words_in
from impair.simulator import Script, one_question, simulate, simulate_profile
from impair.stages import Delay, GilbertElliott, Loss
from impair.sweep import FAULTS, MediaTrace, ddmin, shrink, sweep
from impair.timed import Outages
from impair.traces import TraceRow, write_arrivals
from jitter.repair import NO_REPAIR

QUESTION = one_question(10)


def test_on_a_clean_network_every_word_is_understood_in_one_turn() -> None:
    outcome = simulate_profile(QUESTION, find_profile("clean"))
    assert (outcome.words_lost, outcome.turns, outcome.concealed_pct) == (0, 1, 0)
    assert outcome.transcripts[-1][1] == list(range(10))
    assert outcome.answer_ms is not None
    assert 60 < outcome.answer_ms < 2000


def test_the_delay_of_the_network_is_in_the_answer() -> None:
    near, far = (simulate(QUESTION, (Delay(ms),), (Delay(ms),)).answer_ms for ms in (0, 150))
    assert near is not None
    assert far is not None
    assert far - near == pytest.approx(300, abs=30)


def test_a_call_repeats_for_its_seed_and_not_for_another() -> None:
    profile = find_profile("loss20_jitter40")
    assert simulate_profile(QUESTION, profile, seed=3) == simulate_profile(QUESTION, profile, seed=3)
    assert simulate_profile(QUESTION, profile, seed=3) != simulate_profile(QUESTION, profile, seed=4)


def test_repair_is_the_product_s_own_and_counts() -> None:
    stages = (GilbertElliott.of(loss=0.1, mean_burst=2), Delay(30))
    bare = [simulate(QUESTION, stages, (Delay(30),), seed=seed, repair=NO_REPAIR) for seed in range(4)]
    repaired = [simulate(QUESTION, stages, (Delay(30),), seed=seed) for seed in range(4)]
    assert sum(o.concealed_pct for o in repaired) < 0.5 * sum(o.concealed_pct for o in bare)


def test_lost_requests_cost_what_they_must() -> None:
    """NACKs and their answers go through the links too: with the way back dead, nothing is repaired by asking."""
    up = (Loss(0.1), Delay(30))
    dead = [simulate(QUESTION, up, (Loss(1.0),), seed=seed) for seed in range(3)]
    alive = [simulate(QUESTION, up, (Delay(30),), seed=seed) for seed in range(3)]
    assert sum(o.concealed_pct for o in alive) < sum(o.concealed_pct for o in dead)
    assert all(o.answer_ms is None for o in dead)


def test_two_utterances_are_two_turns() -> None:
    first = Utterance(at_s=1.0, first_word=0, words=5)
    second = Utterance(at_s=9.0, first_word=5, words=5)
    outcome = simulate_profile(Script(utterances=(first, second), length_s=16.0), find_profile("loss5"))
    assert [words for _, words in outcome.transcripts] == [list(range(5)), list(range(5, 10))]


def test_words_are_read_from_whole_and_damaged_sound() -> None:
    import numpy as np

    decoder = WordDecoder()
    frames = [decoder.decode(encode(word, None, fec=False)) for word in (7, 3) for _ in range(WORD_FRAMES)]
    assert words_in(np.concatenate(frames)) == [7, 3]
    for index in range(7):
        frames[index] = decoder.conceal(320)
    assert words_in(np.concatenate(frames)) == [3]
    frames[6] = decoder.recover_fec(encode(7, 7, fec=True), 320)
    assert words_in(np.concatenate(frames)) == [7, 3]
    assert len(decoder.decode(b"?")) == 0


def test_delta_debugging_finds_the_pair_that_matters() -> None:
    events: list[tuple[int, float | None]] = [(n, None) for n in range(40)]
    found = ddmin(events, lambda kept: {(7, None), (31, None)} <= set(kept))
    assert found == [(7, None), (31, None)]
    assert ddmin(events, lambda kept: True) == []


def test_a_failing_call_shrinks_to_the_outage_that_broke_it() -> None:
    stages = (Loss(0.02), Outages(2.0, 0.3), Delay(30))
    outcome = simulate(QUESTION, stages, (Delay(30),), seed=2, repair=NO_REPAIR)
    assert FAULTS["words"](QUESTION, outcome)
    found = shrink(QUESTION, outcome, FAULTS["words"])
    assert 0 < len(found.events) <= 10 < found.of_events
    assert all(delay is None and 99 <= index <= 116 for index, delay in found.events)
    row: list[float | None] = [30.0] * len(outcome.up_delays_ms)
    for index, _ in found.events:
        row[index] = None
    again = simulate(QUESTION, (MediaTrace(tuple(row), 30.0),), (Delay(30),))
    assert again.words_lost > 0


def test_what_the_media_did_not_cause_is_said() -> None:
    outcome = simulate(QUESTION, (Delay(30),), (Loss(1.0),))
    with pytest.raises(ImpairError, match="does not come from the media"):
        shrink(QUESTION, outcome, FAULTS["answer"])


def test_a_sweep_covers_every_profile_and_seed() -> None:
    cases = list(sweep(QUESTION, ["none", "loss5"], [1, 2], workers=1))
    assert [(case.profile, case.seed) for case in cases] == [("none", 1), ("none", 2), ("loss5", 1), ("loss5", 2)]
    assert next(iter(sweep(QUESTION, ["loss5"], [2], workers=2))).outcome == cases[3].outcome
    with pytest.raises(ProfileError):
        list(sweep(QUESTION, ["los5"], [1]))


def test_the_shrunk_trace_is_a_network_that_brings_the_fault_about_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad, shrunk = tmp_path / "bad.csv", tmp_path / "shrunk.csv"
    rows = [TraceRow(n, 20.0 * n, None if 65 <= n < 95 else 20.0 * n + 30) for n in range(440)]
    bad.write_text(write_arrivals(rows))
    call = ["--seeds", "1", "--words", "6"]
    assert main(["--profiles", f"trace:{bad}", *call, "--fault", "words", "--trace", str(shrunk)]) == 1
    assert "suffice" in capsys.readouterr().out
    assert main(["--profiles", f"trace:{shrunk}", *call, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["words_lost_pct"] > 0
    assert main(["--profiles", f"trace:{tmp_path}/none.csv", "--seeds", "1"]) == 2
    assert "none.csv" in capsys.readouterr().err


def test_the_command_tells_the_worst_and_refuses_nonsense(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--profiles", "none", "--seeds", "1", "--words", "4", "--fault", "words"]) == 0
    assert "no call had the fault" in capsys.readouterr().out
    assert main(["--profiles", "nowhere", "--seeds", "1"]) == 2
    assert "no profile" in capsys.readouterr().err
