"""The command: `python -m impair PROFILE --listen PORT --to HOST:PORT`, a UDP relay with that network in it.

`python -m impair record CAPTURE --out TRACE.csv` turns a capture into a trace; `trace:FILE` is a profile too.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import importlib
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from impair.captures import read_capture
from impair.errors import ImpairError, RelayError
from impair.flows import Address
from impair.ice_proxy import IceProxy
from impair.profile import Direction
from impair.profiles import PROFILES
from impair.recorder import ArrivalRecorder
from impair.relay_control import COMMANDS, ControlServer, RelaySteering, follow_lines, make_network, parse_address
from impair.relay_process import RelayProcess
from impair.traces import write_arrivals
from impair.udp_relay import MAX_FLOWS, UdpRelay
from impair.waiting import allow_many_sockets, sharpen_timers


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m impair",
        description="A UDP relay with a network in it.",
        epilog="While it runs it takes commands, a line each on stdin:\n\n" + COMMANDS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("profile", nargs="?", help="a name from --list, or trace:FILE, or trace:UP,DOWN")
    parser.add_argument("--list", action="store_true", help="name every profile with its source, then end")
    parser.add_argument("--listen", metavar="PORT", help="[HOST:]PORT to listen on; 0 takes a free port of 127.0.0.1")
    parser.add_argument(
        "--to",
        metavar="HOST:PORT",
        help="where packets go; or an http(s) URL: its signaling is proxied, its media relayed",
    )
    parser.add_argument("--seed", default="0", help="what chance decides follows from it (0)")
    parser.add_argument("--media", default="both", help="which ways are disturbed: both, up (to HOST:PORT) or down")
    parser.add_argument("--control", metavar="PORT", help="[HOST:]PORT for the same commands over HTTP")
    parser.add_argument("--log", metavar="FILE.csv", type=Path, help="write the fate of every packet")
    parser.add_argument("--record", metavar="NAME", help="write the media that came in as NAME.up.csv, NAME.down.csv")
    parser.add_argument("--nat", action="store_true", help="with a URL: hide the caller's addresses from the target")
    parser.add_argument("--json", action="store_true", help="speak JSON, one object a line")
    return parser


def _record_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m impair record", description="Turn the RTP packets of a pcap or pcapng file into a trace."
    )
    parser.add_argument("capture", type=Path)
    parser.add_argument("--out", metavar="TRACE.csv", type=Path, required=True)
    parser.add_argument("--ssrc", type=lambda text: int(text, 0), help="which stream (the one with most packets)")
    parser.add_argument("--port", type=int, help="only packets to this UDP port")
    return parser


def _record(options: argparse.Namespace) -> None:
    recorder = ArrivalRecorder()
    for packet in read_capture(options.capture.read_bytes()):
        if options.port in {None, packet.destination_port}:
            recorder.handle_packet(packet.payload, now=packet.at)
    rows = recorder.rows(options.ssrc)
    options.out.write_text(write_arrivals(rows))
    heard = ", ".join(f"0x{ssrc:08x} ({count} packets)" for ssrc, count in recorder.streams().items())
    print(f"{options.out}: {len(rows)} packets, {sum(row.arrival_ms is None for row in rows)} lost; heard {heard}")


def _write_records(name: str, recorders: dict[Direction, ArrivalRecorder]) -> None:
    for way, recorder in recorders.items():
        try:
            Path(f"{name}.{way}.csv").write_text(write_arrivals(recorder.rows()))
        except ImpairError as error:
            print(f"python -m impair: nothing recorded on the way {way}: {error}", file=sys.stderr)


def _list_profiles(*, as_json: bool) -> None:
    if as_json:
        told = [{"name": p.name, "summary": p.summary, "source": p.source} for p in PROFILES.values()]
        print(json.dumps(told), flush=True)
        return
    width = max(map(len, PROFILES))
    for profile in PROFILES.values():
        print(f"{profile.name:{width}}  {profile.summary}\n{'':{width}}  source: {profile.source}")
    sys.stdout.flush()


def _announce(values: dict[str, Any], *, as_json: bool, on_stdin: bool = True) -> None:
    if as_json:
        print(json.dumps(values), flush=True)
        return
    print(
        f"{values['profile']} (seed {values['seed']}) between {values['listen']} and {values['to']}"
        + (f", commands at {values['control']}" if values["control"] else "")
        + ("; a line on stdin steers it" if on_stdin else "")
        + "; Ctrl-C ends it",
        flush=True,
    )


def _relay(options: argparse.Namespace) -> None:
    network = make_network(options.profile, options.seed, options.media)
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(options.log.open("w")) if options.log else None
        recorders: dict[Direction, ArrivalRecorder] = {}
        if options.record:
            recorders = {"up": ArrivalRecorder(), "down": ArrivalRecorder()}
            stack.callback(_write_records, options.record, recorders)
        relay = UdpRelay(network, log=log, recorders=recorders)
        way = ("nothing yet", "nothing yet")
        if options.to:
            to = parse_address(options.to)
            bound = relay.add_route(parse_address(options.listen), to)
            way = (f"{bound[0]}:{bound[1]}", f"{to[0]}:{to[1]}")
        steering = RelaySteering(relay)
        control = None
        if options.control is not None:
            control = ControlServer(steering, parse_address(options.control))
            stack.callback(control.close)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: relay.stop())
        _announce(
            {
                "profile": network.profile.name,
                "seed": network.seed,
                "listen": way[0],
                "to": way[1],
                "control": control.url if control else None,
            },
            as_json=options.json,
        )
        follow_lines(steering, sys.stdin, sys.stdout)
        relay.stats.priority = sharpen_timers()
        allow_many_sockets(MAX_FLOWS + 256)
        gc.collect()
        gc.freeze()
        print(json.dumps(relay.run()), flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 2 and one line on stderr where it makes no sense."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if words[:1] == ["record"]:
            _record(_record_parser().parse_args(words[1:]))
            return 0
        if words and words[0] in {"run", "simulate"}:
            # A second of imports that a relay need not pay.
            return int(importlib.import_module(f"impair.{words[0]}_command").main(words[1:]))
        return _relay_or_list(_parser().parse_args(words))
    except BrokenPipeError:
        # Whoever read the output has had enough; what is left of it must not fail once more at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ImpairError, OSError) as error:
        print(f"python -m impair: {error}", file=sys.stderr)
        return 2


def _relay_or_list(options: argparse.Namespace) -> int:
    if options.list:
        _list_profiles(as_json=options.json)
        return 0
    if not (options.profile and ((options.listen and options.to) or options.control)):
        raise RelayError("name a PROFILE (see --list), --listen PORT and --to HOST:PORT")
    if "://" in (options.to or ""):
        asyncio.run(_proxy(options))
    else:
        _relay(options)
    return 0


async def _proxy(options: argparse.Namespace) -> None:
    listen = parse_address(options.listen)
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    relay = RelayProcess(
        options.profile, seed=make_network(options.profile, options.seed, options.media).seed, media=options.media,
        control=options.control or "0", log=options.log, record=options.record,
    )  # fmt: skip

    async def add_route(to: Address, way: Direction) -> Address:
        return await relay.add_route(to, way, listen=(listen[0], 0))

    async with relay, IceProxy(options.to, add_route, listen=listen, behind_nat=options.nat) as proxy:
        _announce(
            {"profile": options.profile, "seed": int(options.seed), "listen": proxy.url, "to": options.to,
             "control": relay.url}, as_json=options.json, on_stdin=False,
        )  # fmt: skip
        await ended.wait()
    print(json.dumps(relay.report), flush=True)


if __name__ == "__main__":
    sys.exit(main())
