"""The replay command: its JSON, its rules of accounting, and rough bars on short traces."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bench.aiortc_buffer import replay_aiortc
from bench.oracle import best_fixed_delay_ms
from jitter.repair import RepairPlan
from jitter.replay import main, parse_repair, replay
from jitter.simulation import TracePacket
from jitter.trace import Trace
from jitter.trace_file import TraceError, read_trace

KEYS = {
    "packets",
    "lost_pct",
    "late_pct",
    "repaired_pct",
    "concealed_pct",
    "mean_delay_ms",
    "mean_behind_ms",
    "p95_delay_ms",
    "accelerated_pct",
    "expanded_pct",
    "longest_gap_ms",
    "overhead_pct",
    "unused_pct",
}


def made(count: int, *, lost: set[int] = frozenset(), jitter_ms: float = 0.0, ptime_ms: int = 20) -> list[TracePacket]:  # type: ignore[assignment]
    extra = np.random.default_rng(1).gamma(2, jitter_ms / 2, count) if jitter_ms else np.zeros(count)
    return [
        TracePacket(
            sequence=index,
            sent_ms=float(ptime_ms * index),
            arrival_ms=None if index in lost else ptime_ms * index + 30.0 + float(extra[index]),
            ptime_ms=ptime_ms,
        )
        for index in range(count)
    ]


def write(path: Path, packets: list[TracePacket]) -> Path:
    rows = [f"{p.sequence},{p.sent_ms},{'' if p.arrival_ms is None else p.arrival_ms}" for p in packets]
    path.write_text("seq,sent_ms,arrival_ms\n" + "\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize("reader", ["playout", "listen"])
def test_the_command_prints_one_object_with_every_figure(
    reader: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "trace.csv", made(300, lost={100}))
    assert main([str(path), "--reader", reader, "--policy", "fixed:60", "--repair", "none", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert set(figures) == KEYS
    assert figures["packets"] == 300
    assert figures["lost_pct"] == pytest.approx(100 / 300, abs=0.01)


def test_the_plot_is_drawn(tmp_path: Path) -> None:
    path = write(tmp_path / "trace.csv", made(200, lost={50, 51}, jitter_ms=20))
    assert main([str(path), "--plot", str(tmp_path / "out.png")]) == 0
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


def test_what_one_would_have_heard_is_written(tmp_path: Path) -> None:
    import soundfile

    tone = (8000 * np.sin(2 * np.pi * 200 * np.arange(32_000) / 16_000)).astype(np.int16)
    soundfile.write(tmp_path / "in.wav", tone, 16_000)
    path = write(tmp_path / "trace.csv", made(150, lost={50}))
    arguments = [str(path), "--repair", "none", "--audio", str(tmp_path / "in.wav"), str(tmp_path / "out.wav")]
    assert main(arguments) == 0
    heard, rate_hz = soundfile.read(tmp_path / "out.wav", dtype="int16")
    assert rate_hz == 48_000
    assert len(heard) / 48_000 == pytest.approx(3.0, abs=0.3)
    assert float(np.abs(heard[48_000:96_000]).max()) > 5000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seq,sent_ms\n1,0\n", "no column arrival_ms"),
        ("seq,sent_ms,arrival_ms\n1,0,x\n", "trace.csv:2"),
        ("seq,sent_ms,arrival_ms\n1,0,\n", "no packet arrived"),
        ("", "no column arrival_ms, sent_ms, seq"),
        ("seq,sent_ms,arrival_ms\n1,0,30\n2,20\n", "trace.csv:3: too few columns"),
        ("seq,sent_ms,arrival_ms\n1,nan,30\n", "trace.csv:2: sent_ms is nan"),
        ("seq,sent_ms,arrival_ms\n1,0,inf\n", "trace.csv:2: arrival_ms is inf"),
        ("seq,sent_ms,arrival_ms\n1,0,30\n2,20,nan\n", "trace.csv:3: arrival_ms is nan"),
        ("seq,sent_ms,arrival_ms\n1,0,30\n1,20,50\n", "trace.csv:3: not in sending order"),
        ("seq,sent_ms,arrival_ms\n1,20,30\n2,0,50\n", "trace.csv:3: not in sending order"),
        ("seq,sent_ms,arrival_ms\n1,0,30\n2,1e12,1e12\n", "trace.csv:3: sent more than an hour after"),
        ("seq,sent_ms,arrival_ms\n1,0,30\n2,20,1e15\n", "more than an hour longer than another"),
        ("seq,sent_ms,arrival_ms,ptime_ms\n1,0,30,0\n", "trace.csv:2: ptime_ms is 0, not 1 to 120"),
        ("seq,sent_ms,arrival_ms,ptime_ms\n1,0,30,500\n", "trace.csv:2: ptime_ms is 500"),
        ("seq,sent_ms,arrival_ms,bytes\n1,0,30,-4\n", "trace.csv:2: bytes is -4"),
    ],
)
def test_a_bad_trace_is_refused_with_the_place(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(TraceError, match=message):
        read_trace(path)
    assert main([str(path)]) == 2


def test_a_file_that_is_no_text_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(b"\xff\xfe\x00\x89PNG" * 20)
    assert main([str(path)]) == 2
    assert capsys.readouterr().err == f"jitter.replay: {path}: no CSV text\n"


def test_sequence_numbers_as_on_the_wire_wrap(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("seq,sent_ms,arrival_ms\n65534,0,30\n65535,20,50\n0,40,70\n1,60,90\n")
    assert [packet.sequence for packet in read_trace(path)] == [65534, 65535, 65536, 65537]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--policy", "fixed:-5"], "policy 'fixed:-5': MS is a number from 0 to 500"),
        (["--policy", "fixed:nan"], "policy 'fixed:nan'"),
        (["--policy", "fixed:"], "policy 'fixed:'"),
        (["--rtt-ms", "-1"], "--rtt-ms is -1, not 0 to 60000"),
        (["--rtt-ms", "nan"], "--rtt-ms is nan"),
        (["--rtt-ms", "inf"], "--rtt-ms is inf"),
        (["--repair", "red:99"], "no repair 'red:99'"),
        (["--plot", "HERE/nowhere/out.png"], "there is no folder"),
        (["--plot", "HERE/out.xyz"], "a plot is one of .png, .pdf, .svg"),
        (["--plot", "HERE"], "cannot be written"),
        (["--audio", "HERE/none.wav", "HERE/out.wav"], "none.wav: "),
        (["--audio", "HERE/trace.csv", "HERE/out.wav"], "trace.csv: "),
        (["--audio", "HERE/in.wav", "HERE/nowhere/out.wav"], "there is no folder"),
        (["--audio", "HERE/in.wav", "HERE/out.xyz"], "sound is written as .wav or .flac"),
        (["--audio", "HERE/empty.wav", "HERE/out.wav"], "there is no sound in it"),
    ],
)
def test_a_bad_argument_is_one_line_and_no_traceback(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import soundfile

    soundfile.write(tmp_path / "empty.wav", np.zeros(0, np.int16), 16_000)
    path = write(tmp_path / "trace.csv", made(5))
    assert main([str(path), *(argument.replace("HERE", str(tmp_path)) for argument in arguments)]) == 2
    told = capsys.readouterr()
    assert message in told.err
    assert told.err.count("\n") == 1
    assert told.out == ""


def test_sound_needs_packets_of_one_length(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import soundfile

    soundfile.write(tmp_path / "in.wav", np.ones(16_000, np.int16), 16_000)
    path = tmp_path / "trace.csv"
    path.write_text("seq,sent_ms,arrival_ms,ptime_ms\n1,0,30,30\n2,30,60,30\n")
    assert main([str(path), "--audio", str(tmp_path / "in.wav"), str(tmp_path / "out.wav")]) == 2
    assert "--audio needs one ptime_ms throughout" in capsys.readouterr().err


def test_repairs_by_name() -> None:
    assert parse_repair("red:3") == RepairPlan(red_offsets=(1, 2, 3))
    assert parse_repair("auto") is None
    with pytest.raises(ValueError, match="no repair 'red:0'"):
        parse_repair("red:0")


def test_fec_costs_four_per_cent_and_mends_three_in_four() -> None:
    lost = set(range(50, 3000, 10))
    figures = replay(made(3000, lost=lost), policy="fixed:45", repair="fec")
    assert figures["overhead_pct"] == pytest.approx(4.0)
    assert figures["repaired_pct"] == pytest.approx(77 * len(lost) / 3000, abs=0.6)


def test_a_red_block_costs_its_payload_and_five_bytes() -> None:
    figures = replay(made(1000, lost=set(range(100, 1000, 50))), policy="fixed:45", repair="red:1")
    assert figures["overhead_pct"] == pytest.approx(100 * 65 / 60, abs=0.3)
    assert figures["concealed_pct"] == 0
    assert figures["repaired_pct"] == pytest.approx(1.8)


def test_red_mends_a_burst_no_longer_than_itself() -> None:
    burst = made(1000, lost={500, 501})
    assert replay(burst, policy="fixed:65", repair="red:2")["concealed_pct"] == 0
    assert replay(burst, policy="fixed:65", repair="red:1")["concealed_pct"] > 0


def test_an_answer_needs_a_round_trip_and_its_request_and_payload_are_paid() -> None:
    lost = set(range(100, 1000, 100))
    near = replay(made(1000, lost=lost), policy="fixed:75", repair="nack", rtt_ms=60)
    assert near["concealed_pct"] == 0
    paid = 100 * len(lost) * (30 + 72) / (1000 * 60)
    for_what_never_was = 100 * 8 * 30 / (1000 * 60)  # when the stream ends, it is asked for what would follow
    assert paid <= near["overhead_pct"] <= paid + for_what_never_was
    far = replay(made(1000, lost=lost), policy="fixed:75", repair="nack", rtt_ms=150)
    assert far["repaired_pct"] == 0
    assert far["overhead_pct"] == 0


def test_a_request_is_lost_with_the_packet_of_its_moment() -> None:
    # asked 51 ms after sending (30 on the way, 20 for the next packet to show, 1 of margin): packets 102 and 502
    plain = replay(made(700, lost={100, 500}), policy="fixed:120", repair="nack")
    both = replay(made(700, lost={100, 101, 102, 500}), policy="fixed:120", repair="nack")
    assert plain["concealed_pct"] == 0
    assert both["concealed_pct"] > 0


def test_the_listener_holds_nothing_back_on_an_undisturbed_stream() -> None:
    figures = replay(made(1000), reader="listen", repair="auto")
    assert figures["mean_delay_ms"] == 0
    assert figures["unused_pct"] == 0
    assert figures["mean_behind_ms"] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("ptime_ms", [10, 40, 60, 120])
def test_other_packet_times(ptime_ms: int) -> None:
    figures = replay(made(3000 // ptime_ms, ptime_ms=ptime_ms, jitter_ms=5), policy="auto", repair="none")
    assert figures["concealed_pct"] < 5
    assert figures["packets"] == 3000 // ptime_ms


def test_more_than_one_turn_of_the_sequence_numbers() -> None:
    packets = made(70_000, lost=set(range(66_000, 70_000, 100)))
    figures = replay(packets, reader="listen", policy="auto", repair="nack")
    assert figures["concealed_pct"] < 0.01
    assert figures["repaired_pct"] > 0.04


def test_the_same_seed_gives_the_same_figures() -> None:
    packets = made(1500, lost=set(range(10, 1500, 17)), jitter_ms=20)
    assert replay(packets, repair="auto", seed=3) == replay(packets, repair="auto", seed=3)


def test_a_step_of_loss_is_answered_within_a_second_and_a_half() -> None:
    trace = Trace.empty()
    lost = {index for index in range(1000, 2000) if index % 7 == 0}
    figures = replay(made(2000, lost=lost), repair="auto", trace=trace)
    late = [p for p in trace.decided if p.operation == "expand" and p.now > 1000 * 0.02 + 1.6]
    assert figures["repaired_pct"] > 5
    assert len(late) < 20


def test_the_delay_follows_jitter_up_at_once_and_down_slowly() -> None:
    calm, rough = made(1000), made(1000, jitter_ms=30)
    packets = [
        TracePacket(sequence=i, sent_ms=20.0 * i, arrival_ms=20.0 * i + ((p.arrival_ms or 0.0) - p.sent_ms))
        for i, p in enumerate([*calm, *rough, *[*calm, *calm, *calm]])
    ]
    trace = Trace.empty()
    replay(packets, repair="none", trace=trace)
    targets = {round(d.now): d.target_ms for d in trace.decided}
    assert targets[19] < 30
    assert targets[24] > 70
    assert targets[98] < 30
    falls = [targets[s] - targets[s + 1] for s in range(25, 97) if s in targets and s + 1 in targets]
    assert max(falls) <= 31  # 20 ms/s in half-second steps


def test_the_best_fixed_deadline() -> None:
    packets = made(100, jitter_ms=20)
    delays = sorted((p.arrival_ms or 0.0) - p.sent_ms for p in packets)
    assert best_fixed_delay_ms(packets, late_pct=0) == pytest.approx(delays[-1] - np.mean(delays))
    assert best_fixed_delay_ms(packets, late_pct=10) == pytest.approx(delays[89] - np.mean(delays[:90]))


def test_aiortc_throws_away_what_it_received() -> None:
    figures = replay_aiortc(made(1000, lost={500}))
    assert figures["unused_pct"] == pytest.approx(0.4, abs=0.15)
    assert figures["concealed_pct"] == pytest.approx(0.5, abs=0.15)
    assert replay_aiortc(made(1000))["unused_pct"] == pytest.approx(0, abs=0.15)
