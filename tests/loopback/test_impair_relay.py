"""The relay over real sockets: both ways, the seed's own fates, steering in mid-call, bounded and well-mannered."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import impair.udp_relay
from impair.errors import RelayError
from impair.flows import Address, Network
from impair.link import Stage
from impair.profile import Direction, Profile
from impair.profiles import find_profile
from impair.recorder import ArrivalRecorder
from impair.relay_control import ControlServer, RelaySteering, follow_lines
from impair.stages import Corrupt, Delay, Loss
from impair.udp_relay import RelayThread, UdpRelay

Socks = Callable[[], socket.socket]

RTP = bytes([0x80, 111]) + bytes(60)
STUN = bytes([0, 1]) + bytes(60)


def network(*stages: Stage, name: str = "test", seed: int = 4) -> Network:
    return Network(profile=Profile(name=name, summary="", source="", up=stages, down=stages), seed=seed)


@pytest.fixture
def socks() -> Iterator[Socks]:
    opened: list[socket.socket] = []

    def make() -> socket.socket:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind(("127.0.0.1", 0))
        sock.settimeout(5)
        opened.append(sock)
        return sock

    yield make
    for sock in opened:
        sock.close()


def route(relay: UdpRelay, target: socket.socket) -> Address:
    return relay.call(lambda: relay.add_route(("127.0.0.1", 0), target.getsockname()))


def drain(sock: socket.socket, count: int) -> list[bytes]:
    return [sock.recv(2048) for _ in range(count)]


def test_packets_cross_both_ways_unchanged(socks: Socks) -> None:
    target, first, second = socks(), socks(), socks()
    with RelayThread(network()) as relay:
        via = route(relay, target)
        first.sendto(b"one", via)
        data, first_seen_as = target.recvfrom(2048)
        second.sendto(b"two", via)
        _, second_seen_as = target.recvfrom(2048)
        target.sendto(b"to the second", second_seen_as)
        target.sendto(b"to the first", first_seen_as)
        assert data == b"one"
        assert first.recv(2048) == b"to the first"
        assert second.recv(2048) == b"to the second"
        assert first_seen_as != second_seen_as


def test_the_log_of_a_real_run_is_the_virtual_link_of_that_seed_byte_for_byte(socks: Socks) -> None:
    log, target, client = io.StringIO(), socks(), socks()
    profile = find_profile("burst5x3_jitter20")
    relay = UdpRelay(Network(profile=profile, seed=11), log=log)
    via = relay.add_route(("127.0.0.1", 0), target.getsockname())
    thread = threading.Thread(target=relay.run)
    thread.start()
    client.sendto(STUN, via)
    _, back = target.recvfrom(2048)
    for n in range(400):
        client.sendto(RTP, via)
        target.sendto(RTP if n % 3 else STUN, back)
    while sum(flow[way]["packets"] for flow in relay.call(relay.report)["flows"] for way in ("up", "down")) < 801:
        pass
    relay.stop()
    thread.join(10)
    links = {way: profile.link(way, seed=11, origin=0.0) for way in ("up", "down")}
    rows = list(csv.DictReader(io.StringIO(log.getvalue())))
    assert len(rows) == 801
    for row in rows:
        at_us = int(row["at_us"])
        fate = links[row["way"]].handle_packet(int(row["size_bytes"]), now=at_us / 1e6, kind=int(row["kind"]))
        assert row["delays_us"] == ";".join(str(round(d.at * 1e6) - at_us) for d in fate.deliveries)
        assert row["lost_by"] == (fate.lost_by or "")
    assert any(row["lost_by"] for row in rows)


def test_the_first_flow_with_media_draws_the_same_losses_whatever_came_before(socks: Socks) -> None:
    survivors = []
    for checks in (1, 9):
        target = socks()
        with RelayThread(network(Loss(0.3))) as relay:
            via = route(relay, target)
            for _ in range(checks):  # ICE checks from other candidates, flows of their own
                socks().sendto(STUN, via)
            client = socks()
            for n in range(100):
                client.sendto(RTP[:2] + bytes([n]), via)
            while sum(f["up"]["packets"] for f in relay.call(relay.report)["flows"]) < 100 + checks:
                pass
            arrived = relay.call(relay.report)["relay"]["sent"]
            survivors.append([p[2] for p in drain(target, arrived) if p[0] == 0x80])
    assert survivors[0] == survivors[1]
    assert 40 < len(survivors[0]) < 90


def test_what_comes_in_a_burst_leaves_in_its_order(socks: Socks) -> None:
    target, client = socks(), socks()
    with RelayThread(network()) as relay:
        via = route(relay, target)
        for turn in range(20):
            for n in range(50):
                client.sendto(bytes([turn, n]), via)
            assert drain(target, 50) == [bytes([turn, n]) for n in range(50)]


def test_a_corrupted_packet_differs_by_one_bit(socks: Socks) -> None:
    target, client = socks(), socks()
    with RelayThread(network(Corrupt(1.0))) as relay:
        client.sendto(RTP, route(relay, target))
        got = target.recv(2048)
    assert sum((a ^ b).bit_count() for a, b in zip(got, RTP, strict=True)) == 1


def test_profile_outage_and_rebind_take_effect_in_mid_call(socks: Socks) -> None:
    target, client = socks(), socks()
    with RelayThread(network()) as relay:
        via = route(relay, target)
        client.sendto(b"a", via)
        _, before = target.recvfrom(2048)
        assert relay.call(relay.rebind) == 1
        client.sendto(b"b", via)
        _, after = target.recvfrom(2048)
        assert before != after
        target.sendto(b"old mapping", before)
        target.sendto(b"new mapping", after)
        assert client.recv(2048) == b"new mapping"
        assert relay.call(relay.report)["relay"]["moves_ms"] == []
        target.sendto(RTP, after)
        assert client.recv(2048) == RTP
        assert len(relay.call(relay.report)["relay"]["moves_ms"]) == 1

        relay.call(lambda: relay.begin_outage(1000))
        client.sendto(b"c", via)
        while relay.call(relay.report)["relay"]["outage_lost"] == 0:
            pass
        relay.call(lambda: relay.begin_outage(0))
        relay.call(lambda: relay.set_network(network(Loss(1.0), name="dead")))
        client.sendto(b"d", via)
        while relay.call(relay.report)["flows"][0]["up"]["lost"] == 0:
            pass
        relay.call(lambda: relay.set_network(network(name="alive")))
        client.sendto(b"e", via)
        assert target.recv(2048) == b"e"


def test_flows_and_packets_on_their_way_are_bounded(socks: Socks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(impair.udp_relay, "MAX_FLOWS", 3)
    monkeypatch.setattr(impair.udp_relay, "MAX_QUEUED_BYTES", 2000)
    target = socks()
    with RelayThread(network(Delay(60_000))) as relay:
        via = route(relay, target)
        for _ in range(20):
            socks().sendto(RTP, via)
        while relay.call(relay.report)["relay"]["overflow_lost"] < 12:
            pass
        report = relay.call(relay.report)
    assert len(report["flows"]) == 3
    assert report["relay"]["queued_packets"] == 8


def test_a_target_that_is_gone_is_counted_and_hurts_nothing(socks: Socks) -> None:
    target, client = socks(), socks()
    address = target.getsockname()
    with RelayThread(network()) as relay:
        via = route(relay, target)
        target.close()
        while relay.call(relay.report)["relay"]["refused"] == 0:
            client.sendto(RTP, via)
        again = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        again.bind(address)
        again.settimeout(5)
        client.sendto(b"back", via)
        while again.recv(2048) != b"back":
            pass
        again.close()


def test_a_taken_port_is_said(socks: Socks) -> None:
    target = socks()
    with RelayThread(network()) as relay, pytest.raises(RelayError, match="cannot relay from"):
        relay.call(lambda: relay.add_route(target.getsockname(), target.getsockname()))


def ask(url: str, path: str, body: object = None) -> tuple[int, dict[str, object]]:
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(url + path, data, timeout=5) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_http_and_lines_steer_alike(socks: Socks) -> None:
    target = socks()
    with RelayThread(network()) as relay:
        route(relay, target)
        steering = RelaySteering(relay)
        server = ControlServer(steering, ("127.0.0.1", 0))
        assert ask(server.url, "/profile", {"profile": "loss5", "seed": 3}) == (
            200,
            {"profile": "loss5", "seed": 3, "media": "both"},
        )
        assert ask(server.url, "/stats")[1]["profile"] == "loss5"
        assert ask(server.url, "/route", {"to": "127.0.0.1:9"})[0] == 200
        assert ask(server.url, "/outage", {"seconds": 0.5})[0] == 200
        assert "did you mean loss5" in str(ask(server.url, "/profile", {"profile": "los5"}))
        assert ask(server.url, "/profile", {"profile": "loss5", "seed": "x"})[0] == 400
        assert ask(server.url, "/outage", {})[0] == 400
        assert ask(server.url, "/outage", {"seconds": -1})[0] == 400
        assert ask(server.url, "/nonsense", {})[0] == 400
        assert ask(server.url, "/profile", [])[0] == 400
        out = io.StringIO()
        follow_lines(
            steering, ["profile jitter30 9\n", "\n", "outage\n", "rebind\n", "rebind now\n", "what\n"], out
        ).join(5)
        answers = [json.loads(line) for line in out.getvalue().splitlines()]
        assert answers[0] == {"profile": "jitter30", "seed": 9, "media": "both"}
        assert answers[2] == {"rebound": 0}
        assert ["error" in answer for answer in answers] == [False, True, False, True, True]
        server.close()


def test_the_command_relays_and_ends_with_its_report(socks: Socks) -> None:
    target, client = socks(), socks()
    host, port = target.getsockname()
    command = [sys.executable, "-m", "impair", "none", "--listen", "0", "--to", f"{host}:{port}", "--json"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        listen = json.loads(process.stdout.readline())["listen"].rpartition(":")
        client.sendto(b"hello", (listen[0], int(listen[2])))
        assert target.recv(2048) == b"hello"
        process.stdin.write("stats\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["flows"][0]["up"]["packets"] == 1
        process.terminate()
        last, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert json.loads(last)["relay"]["sent"] == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["jitter", "--listen", "0", "--to", "127.0.0.1:9"], "did you mean"),
        (["none", "--listen", "x", "--to", "127.0.0.1:9"], "no address"),
        (["none", "--listen", "0", "--to", "127.0.0.1:99999"], "no address"),
        (["none", "--listen", "0", "--to", "127.0.0.1:9", "--seed", "a"], "whole number"),
        (["none", "--listen", "0", "--to", "127.0.0.1:9", "--media", "left"], "both, up or down"),
        (["none"], "--listen PORT"),
    ],
)
def test_bad_arguments_are_named_in_one_line(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from impair.__main__ import main

    assert main(arguments) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--list"], ["--list", "--json"]])
def test_a_reader_who_has_had_enough_hurts_nothing(arguments: list[str]) -> None:
    """As with `| head -1`: the pipe is closed before anything is written."""
    process = subprocess.Popen(
        [sys.executable, "-m", "impair", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    assert process.communicate(timeout=60)[1] == b""
    assert process.returncode == 0


def test_a_live_call_and_a_capture_become_traces(socks: Socks, tmp_path: Path) -> None:
    from impair.__main__ import main
    from impair.traces import read_arrivals
    from tests.unit.test_impair_traces import DELAYS, pcap, rtp, stream

    target, client = socks(), socks()
    recorders: dict[Direction, ArrivalRecorder] = {"up": ArrivalRecorder(), "down": ArrivalRecorder()}
    relay = UdpRelay(network(), recorders=recorders)
    via = relay.add_route(("127.0.0.1", 0), target.getsockname())
    thread = threading.Thread(target=relay.run)
    thread.start()
    for n in (0, 1, 3):
        client.sendto(rtp(n, 960 * n), via)
        target.recv(2048)
    relay.stop()
    thread.join(10)
    assert [row.arrival_ms is None for row in recorders["up"].rows()] == [False, False, True, False]
    assert recorders["down"].streams() == {}

    capture, out = tmp_path / "call.pcap", tmp_path / "trace.csv"
    capture.write_bytes(pcap(stream(DELAYS)))
    assert main(["record", str(capture), "--out", str(out)]) == 0
    assert [row.arrival_ms is None for row in read_arrivals(out.read_text(), name="")] == [d is None for d in DELAYS]
    assert main(["record", str(out), "--out", str(out)]) == 2
    assert main(["record", str(capture), "--out", str(out), "--port", "1"]) == 2


ORPHAN = """
import asyncio
from impair.relay_process import RelayProcess

async def main():
    async with RelayProcess("none") as relay:
        print(relay.process_id, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent's death")
def test_no_relay_stays_behind_a_harness_that_was_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", ORPHAN], stdout=subprocess.PIPE, text=True) as harness:
        assert harness.stdout is not None
        relay = Path("/proc") / harness.stdout.readline().strip()
        assert (relay / "stat").is_file()
        harness.kill()
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # gone between two looks
        while (relay / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
            pass
