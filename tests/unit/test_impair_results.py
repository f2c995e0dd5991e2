"""From a call's packets and messages to figures, and from figures to the report: every gap named, nothing invented."""

from __future__ import annotations

import dataclasses
import itertools
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
import soundfile

from impair import report
from impair.alignment import align
from impair.caller import CallRecord, Clip, Marks, Said
from impair.errors import ImpairError, TargetError
from impair.harness import load_clips, tell_overload, with_words
from impair.hearing import hear
from impair.judging import Ears, judge
from impair.measures import Samples, WordErrors, audible_spans, word_errors, words_of
from impair.profiles import find_profile
from impair.receivers import round_trip_ms, trace_of_log
from impair.results import METRICS, CallResult, RunResult, read_json, write_json, write_junit
from impair.run_command import main, put_beside
from impair.targets import Target
from jitter.packet import RtpPacket
from jitter.red import build_red
from transport.messages import ReplyDone, UserTranscript
from transport.opus import OpusEncoder


@pytest.mark.parametrize(
    ("said", "heard", "errors", "words"),
    [
        ("the cat sat", "the cat sat", 0, 3),
        ("The cat, sat!", "the CAT sat.", 0, 3),
        ("the cat sat", "the bat", 2, 3),
        ("the cat sat", "", 3, 3),
        ("the cat", "the the cat", 1, 2),
        ("it's 2 o'clock", "its two o'clock", 1, 3),
        ("a b c d", "b c d a", 2, 4),
    ],
)
def test_word_errors(said: str, heard: str, errors: int, words: int) -> None:
    assert word_errors(said, heard) == WordErrors(errors, words)


def test_word_errors_agree_with_the_usual_tool() -> None:
    jiwer = pytest.importorskip("jiwer")
    generator = np.random.default_rng(1)
    for _ in range(200):
        said = " ".join(generator.choice(list("abcde"), generator.integers(1, 9)))
        heard = " ".join(generator.choice(list("abcde"), generator.integers(0, 9)))
        ours = word_errors(said, heard)
        assert ours.rate == pytest.approx(jiwer.wer(said, heard))
        assert ours.words == len(words_of(said))


def sound(*pieces: tuple[float, bool], rate: int = 48_000) -> Samples:
    generator = np.random.default_rng(2)
    parts = [
        generator.normal(0, 3000 if loud else 3, round(seconds * rate)).astype(np.int16) for seconds, loud in pieces
    ]
    return np.concatenate(parts)


def test_audible_spans_bridge_short_pauses() -> None:
    spans = audible_spans(
        sound((0.5, False), (0.5, True), (0.2, False), (0.5, True), (1.0, False), (0.3, True)), 48_000
    )
    assert [at for span in spans for at in span] == pytest.approx([0.5, 1.7, 2.7, 3.0])


def packets(samples: Samples, *, at: float, lost: range = range(0)) -> list[RtpPacket]:
    encoder = OpusEncoder(48_000, 28_000)
    out = []
    for index in range(len(samples) // 960):
        payload = encoder.encode(samples[index * 960 : (index + 1) * 960])
        if index not in lost:
            out.append(
                RtpPacket(
                    sequence_number=index,
                    timestamp=960 * index,
                    payload_type=111,
                    ssrc=1,
                    payload=payload,
                    arrival=at + 0.02 * index,
                )
            )
    return out


def test_what_ears_heard_has_the_place_and_the_gaps_of_its_packets() -> None:
    got = packets(sound((1.0, False), (1.0, True), (1.0, False)), at=100.0, lost=range(70, 80))
    heard = hear(got, until=103.0, counted_until=103.0)
    assert heard is not None
    assert heard.onsets == [pytest.approx(101.0, abs=0.03)]
    (begin, end) = heard.spans()[0]
    assert begin == pytest.approx(101.0, abs=0.2)
    assert end == pytest.approx(102.0, abs=0.3)
    assert len(heard.sound_between(100.0, 103.0)) == pytest.approx(48_000 * (end - begin), abs=480)
    assert len(heard.sound_between(100.0, 100.5)) == 0
    assert heard.concealed_pct is not None
    assert 1 < heard.concealed_pct < 15  # of 200 ms in 3 s, what no stretched sound bridges, and the stretch around it
    assert hear([], until=1.0, counted_until=1.0) is None


def test_sound_that_comes_with_copies_is_noticed_too() -> None:
    plain = packets(sound((1.0, False), (1.0, True)), at=100.0)
    copied = [
        dataclasses.replace(
            packet,
            payload_type=63,
            payload=build_red(payload_type=111, primary=packet.payload, copies=[(960, before.payload)]),
        )
        for before, packet in itertools.pairwise(plain)
    ]
    one, other = (hear(got, until=102.0, counted_until=102.0) for got in (plain, copied))
    assert one is not None
    assert other is not None
    assert other.onsets == one.onsets
    assert other.spans() == [pytest.approx(one.spans()[0], abs=0.05)]


def clip(text: str | None) -> Clip:
    return Clip(name="x", samples=np.zeros(960, np.int16), speech_end_s=1.0, text=text)


def said(at: float, text: str | None = "one two three four") -> Said:
    return Said(clip=clip(text), began_at=at, speech_ended_at=at + 1.0)


@pytest.mark.parametrize(
    ("told", "places"),
    [
        ([(2, "a b c"), (6, "d e f")], [0, 1]),
        ([(5.5, "a b c"), (6, "d e f")], [0, 1]),  # the first came only after the second had begun
        ([(2, "a b"), (3, "c"), (6, "d e f")], [0, 0, 1]),  # split
        ([(6, "d e f")], [1]),  # the first was never understood
        ([(6, "a b c")], [0]),
        ([], []),
    ],
)
def test_transcripts_find_what_was_said(told: list[tuple[float, str]], places: list[int]) -> None:
    assert align([(1.0, "a b c"), (5.0, "d e f")], told) == places


def test_a_transcript_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="before anything"):
        align([(1.0, "a")], [(0.5, "a")])


class Judges:
    """Stands for the models, which have tests of their own."""

    def transcribe(self, samples: Samples, rate_hz: int) -> tuple[str | None, str]:
        return "five six", ""

    def plcmos(self, samples: Samples, rate_hz: int) -> tuple[float | None, str]:
        return None, "no such model"


def whole_call() -> tuple[CallRecord, Marks]:
    """Said at 1, 5, 8.0 (interrupting the reply of 7–8.3), 14 (after the outage of 11–13); replies at 3, 7, 9.5, 16."""
    line = sound(
        (2.0, False), (1.0, True), (3.0, False), (1.3, True), (1.2, False), (1.0, True), (5.5, False), (1.0, True),
        (1.0, False),
    )  # fmt: skip
    record = CallRecord(began_at=0.0, connected_at=0.25, packets=packets(line, at=1.0), rtt_ms=60.0)
    record.said = [said(1.0), said(5.0), said(8.0), said(14.0)]
    record.messages = [
        (2.2, UserTranscript(turn=1, text="one two three four")),
        (4.0, ReplyDone(turn=1, status="completed", reply_text="five six", heard_text="five six")),
        (6.2, UserTranscript(turn=2, text="one two")),
        (8.3, ReplyDone(turn=2, status="interrupted", reply_text="long", heard_text="long")),
        (9.2, UserTranscript(turn=3, text="noise")),
        (15.2, UserTranscript(turn=4, text="one two three five")),
    ]
    marks = Marks(interruption=record.said[2], outage=(11.0, 13.0), after_outage=record.said[3], ended_at=18.0,
                  moved_ms=120.0)  # fmt: skip
    return record, marks


def judged() -> CallResult:
    record, marks = whole_call()
    result = CallResult(target="t", profile="none", seed=1, url="http://x")
    heard = hear(record.packets, until=marks.ended_at, counted_until=11.0)
    judge(result, record, marks, heard, Judges(), {})  # type: ignore[arg-type]
    return result


def test_a_call_is_judged() -> None:
    result = judged()
    assert result.figures["setup_ms"] == pytest.approx(250)
    assert result.figures["rtt_ms"] == 60
    assert result.figures["voice_to_voice_ms"] == pytest.approx(1000, abs=40)  # 2.0 → 3.0, 6.0 → 7.0
    assert result.figures["uplink_wer"] == pytest.approx(25)  # 2 of 8; the interrupting words do not count
    assert result.figures["after_outage_wer"] == pytest.approx(25)
    assert result.figures["downlink_wer"] == 0
    assert result.figures["barge_in_ms"] == pytest.approx(300, abs=150)
    assert 0 <= result.figures["recovery_ms"] <= 21
    assert result.not_measured == {"plcmos": "no such model"}
    assert [turn["replied"] for turn in result.turns] == ["five six", "(cut off) long", None, None]
    assert [turn["role"] for turn in result.turns] == ["turn", "turn", "interrupting", "after the outage"]
    assert set(result.figures) | set(result.not_measured) == {metric.name for metric in METRICS}


def test_a_reply_that_came_to_its_own_end_was_not_interrupted() -> None:
    record, marks = whole_call()
    record.messages[3] = (8.3, ReplyDone(turn=2, status="completed", reply_text="long", heard_text="long"))
    result = CallResult(target="t", profile="none", seed=1, url="http://x")
    heard = hear(record.packets, until=marks.ended_at, counted_until=11.0)
    judge(result, record, marks, heard, Judges(), {})  # type: ignore[arg-type]
    assert "its own end" in result.not_measured["barge_in_ms"]


class DeafTo(Judges):
    """Understands what it is set to, in the order it is asked."""

    def __init__(self, *heard: str) -> None:
        self.heard = list(heard)

    def transcribe(self, samples: Samples, rate_hz: int) -> tuple[str | None, str]:
        return self.heard.pop(0), ""


@pytest.mark.parametrize(
    ("heard", "clean", "errors"),
    [
        ("the capital of francis paris", "the capital of francis paris", 0),  # the recogniser's own
        ("the capital of francis", "the capital of francis paris", 1),
        ("the capital of france is", "the capital of francis paris", 1),  # the text itself is nearer
        ("", "the capital of francis paris", 5),
    ],
)
def test_what_the_recogniser_gets_wrong_in_a_clean_reading_too_is_no_loss(heard: str, clean: str, errors: int) -> None:
    reply = "The capital of France is Paris."
    ears = Ears(DeafTo(heard, clean), {reply: np.ones(10, np.int16)})  # type: ignore[arg-type]
    assert ears.words(np.ones(10, np.int16), reply) == (heard, WordErrors(errors, 6), "")
    bare = Ears(DeafTo(heard), {reply: None})  # type: ignore[arg-type]
    assert bare.words(np.ones(10, np.int16), reply)[1] == word_errors(reply, heard)


def test_recordings_without_a_text_are_held_against_what_is_understood_in_them() -> None:
    remarks: list[str] = []
    named, unnamed = clip("one two"), dataclasses.replace(clip(None), name="nameless")
    told = with_words([named, unnamed], Judges(), remarks)  # type: ignore[arg-type]
    assert [one.text for one in told] == ["one two", "five six"]
    assert "nameless" in remarks[0]
    untouched: list[str] = []
    with_words([named], Judges(), untouched)  # type: ignore[arg-type]
    assert untouched == []


def test_a_target_that_tells_nothing_has_gaps_with_reasons() -> None:
    record, marks = whole_call()
    record.messages.clear()
    result = CallResult(target="t", profile="none", seed=1, url="http://x")
    judge(result, record, marks, hear(record.packets, until=18.0, counted_until=11.0), Judges(), {})  # type: ignore[arg-type]
    assert "tells no transcripts" in result.not_measured["uplink_wer"]
    assert "no text of its replies" in result.not_measured["downlink_wer"]
    assert "voice_to_voice_ms" in result.figures


def test_a_failed_call_has_every_gap_explained() -> None:
    result = CallResult(target="t", profile="none", seed=1, url="http://x", failure="no media")
    judge(result, CallRecord(), Marks(ended_at=1.0), None, Judges(), {})  # type: ignore[arg-type]
    assert result.figures == {}
    assert set(result.not_measured) == {metric.name for metric in METRICS}
    assert all("no media" in reason for reason in result.not_measured.values())


def a_run() -> RunResult:
    good = judged()
    way = {"packets": 10, "lost": 1, "delay_sum_ms": 90.0}
    good.network = {
        "flows": [{"carries_media": True, "up": way, "down": way}],
        "relay": {"late_p99_ms": 0.2, "kernel_dropped": 0, "overflow_lost": 0, "outage_lost": 3},
    }  # fmt: skip
    bad = CallResult(target="other <b>", profile="none", seed=1, url="http://y", failure="it <broke>")
    judge(bad, CallRecord(), Marks(ended_at=1.0), None, Judges(), {})  # type: ignore[arg-type]
    receivers = [
        {"path": "loss5", "neteq": {"delay_ms": 20.0, "concealed_pct": 4.5}, "ours_missing": "lost its way",
         "ours_with_repair": {"delay_ms": 30.0, "concealed_pct": 0.8}, "pacing_p99_ms": 3.0}
    ]  # fmt: skip
    return RunResult(
        title="Voice on bad networks",
        begun="2030-01-01T00:00:00+00:00",
        machine={"cpus": 2},
        targets={"t": "antiphon: http://x", "other <b>": "offer: http://y"},
        profiles=[{"name": "none", "summary": find_profile("none").summary, "source": "s"}],
        seed=1,
        calls=[good, bad],
        receivers=receivers,
    )


def test_the_report_says_all_that_was_found_and_what_was_not() -> None:
    page = report.render(a_run())
    for text in (
        "Voice to voice",
        "it &lt;broke&gt;",
        "no such model",
        "lost its way",
        "1.1 % lost" if 0 else "10.0 % lost",
    ):
        assert text in page
    assert "<b>other &lt;b&gt;" in page
    assert "<broke>" not in page
    assert page.count("<svg") >= 8
    for outside in ('src="http', "<script", '<link rel="stylesheet"', "@import"):
        assert outside not in page


def test_the_report_follows_the_reader_s_colours_and_names_what_was_not_asked_for() -> None:
    run = a_run()
    run.receivers = []
    page = report.render(run)
    assert "prefers-color-scheme: dark" in page
    assert "currentColor" in page
    assert "#010203" not in page
    assert "not measured" in page
    assert "not asked for (--receivers all)" in page


def test_an_overloaded_machine_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    run = a_run()
    tell_overload(run)
    assert run.remarks == []
    run.calls[0].load = 14.2
    tell_overload(run)
    assert "up to 14 programs" in run.remarks[0]


def test_recordings_are_taken_shortest_first_with_their_labels(tmp_path: Path) -> None:
    for name, seconds in (("a", 0.9), ("b", 0.3), ("c", 0.6)):
        soundfile.write(tmp_path / f"{name}.wav", sound((0.2, False), (seconds, True), (0.3, False)), 48_000)
    (tmp_path / "c.json").write_text('{"speech_ends_ms": [250]}')
    (tmp_path / "c.txt").write_text("hello\n")
    clips = load_clips(tmp_path)
    assert [(one.name, round(one.speech_end_s, 2), one.text) for one in clips] == [
        ("c", 0.25, "hello"), ("b", 0.5, None), ("a", 1.1, None),
    ]  # fmt: skip
    assert [one.speech_begin_s for one in clips] == pytest.approx([0.2] * 3)
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(ImpairError, match="not a label file"):
        load_clips(tmp_path)


def test_results_survive_json_and_junit_tells_failures(tmp_path: Path) -> None:
    run = a_run()
    write_json(run, tmp_path / "r.json")
    assert read_json(tmp_path / "r.json") == run
    write_junit(run, tmp_path / "j.xml")
    suites = ET.parse(tmp_path / "j.xml").getroot()
    assert [suite.get("failures") for suite in suites] == ["0", "1"]
    failure = suites[1][0].find("failure")
    assert failure is not None
    assert failure.get("message") == "it <broke>"
    assert "plcmos: not measured: no such model" in (suites[0][0].findtext("system-out") or "")


def test_an_earlier_run_stands_beside(tmp_path: Path) -> None:
    now, earlier = a_run(), a_run()
    earlier.seed = 9
    put_beside(now, earlier, "before")
    assert len(now.targets) == 4
    assert now.of("t (before 2030-01-01T00:00)", "none") is not None
    assert "seed 9" in now.remarks[0]


def test_a_relays_log_becomes_the_media_trace() -> None:
    log = "flow,way,kind,at_us,size_bytes,delays_us,lost_by\n"
    log += "0,down,0,1000000,72,30000,\n0,down,2,1000500,90,30000,\n0,up,0,1000600,72,5,\n"
    log += "0,down,0,1021000,72,,Loss\n0,down,0,1040000,72,35000;36000,\n1,down,3,1,9,9,\n"
    rows, pacing = trace_of_log(log)
    assert [(row.sent_ms, row.arrival_ms) for row in rows] == [(0, 30), (20, None), (40, 75)]
    assert pacing == pytest.approx(1.0)
    with pytest.raises(ImpairError, match="no media"):
        trace_of_log(log.splitlines()[0])
    assert round_trip_ms(find_profile("loss20_jitter40")) == 100


@pytest.mark.parametrize(
    ("text", "kind", "name", "url"),
    [
        ("http://h:1/", "antiphon", "antiphon", "http://h:1/"),
        ("http://h:1/api/offer", "offer", "offer", "http://h:1/api/offer"),
        ("mine=http://h:1/api/offer", "offer", "mine", "http://h:1/api/offer"),
        ("offer:https://h/x", "offer", "offer", "https://h/x"),
        ("A 1=antiphon:http://h:1/x?y=z", "antiphon", "A 1", "http://h:1/x?y=z"),
    ],
)
def test_targets_are_read(text: str, kind: str, name: str, url: str) -> None:
    target = Target.parse(text)
    assert (target.kind, target.name, target.url) == (kind, name, url)


@pytest.mark.parametrize("text", ["", "h:1", "ftp://h/", "a/b=http://h", "x!=http://h"])
def test_a_bad_target_is_refused(text: str) -> None:
    with pytest.raises(TargetError):
        Target.parse(text)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "name a --target"),
        (["--target", "x"], "no target"),
        (["--target", "http://127.0.0.1:9"], "--speech"),
        (["--target", "http://127.0.0.1:9", "--speech", "nowhere"], "no folder"),
        (["--receivers", "clear", "--speech", "."], "did you mean clean"),
        (["--receivers", "clean", "--receiver-s", "0", "--speech", "."], "more than 0"),
        (["--target", "http://127.0.0.1:9", "--profiles", ",", "--speech", "."], "name a network"),
        (["--target", "http://127.0.0.1:9", "--turns", "-1", "--speech", "."], "0 or more"),
        (["--target", "http://127.0.0.1:9", "--target", "http://127.0.0.1:8"], "same name"),
    ],
)
def test_a_run_that_makes_no_sense_is_refused(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main([*arguments, "--out", str(tmp_path / "out")]) == 2
    assert says in capsys.readouterr().err


def test_a_missing_drawing_package_is_said_before_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert main(["--target", "http://127.0.0.1:9", "--out", str(tmp_path)]) == 2
    assert "need matplotlib" in capsys.readouterr().err
