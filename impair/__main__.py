"""`python -m impair PROFILE --listen PORT --to HOST:PORT`: a UDP relay with that network in it."""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from impair.errors import ImpairError, RelayError
from impair.profiles import PROFILES
from impair.relay_control import COMMANDS, ControlServer, RelaySteering, follow_lines, make_network, parse_address
from impair.udp_relay import UdpRelay
from impair.waiting import sharpen_timers


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m impair",
        description="A UDP relay with a network in it.",
        epilog="While it runs it takes commands, a line each on stdin:\n\n" + COMMANDS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("profile", nargs="?", help="a name from --list")
    parser.add_argument("--list", action="store_true", help="name every profile with its source, then end")
    parser.add_argument("--listen", metavar="PORT", help="[HOST:]PORT to listen on; 0 takes a free port of 127.0.0.1")
    parser.add_argument("--to", metavar="HOST:PORT", help="where the packets go")
    parser.add_argument("--seed", default="0", help="what chance decides follows from it (0)")
    parser.add_argument("--media", default="both", help="which ways are disturbed: both, up (to HOST:PORT) or down")
    parser.add_argument("--control", metavar="PORT", help="[HOST:]PORT for the same commands over HTTP")
    parser.add_argument("--log", metavar="FILE.csv", type=Path, help="write the fate of every packet")
    parser.add_argument("--json", action="store_true", help="speak JSON, one object a line")
    return parser


def _list_profiles(*, as_json: bool) -> None:
    if as_json:
        print(json.dumps([{"name": p.name, "summary": p.summary, "source": p.source} for p in PROFILES.values()]))
        return
    width = max(map(len, PROFILES))
    for profile in PROFILES.values():
        print(f"{profile.name:{width}}  {profile.summary}\n{'':{width}}  source: {profile.source}")


def _announce(values: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(values), flush=True)
        return
    print(
        f"{values['profile']} (seed {values['seed']}) between {values['listen']} and {values['to']}"
        + (f", commands at {values['control']}" if values["control"] else "")
        + "; a line on stdin steers it, Ctrl-C ends it",
        flush=True,
    )


def _relay(options: argparse.Namespace) -> None:
    network = make_network(options.profile, options.seed, options.media)
    listen, to = parse_address(options.listen), parse_address(options.to)
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(options.log.open("w")) if options.log else None
        relay = UdpRelay(network, log=log)
        bound = relay.add_route(listen, to)
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
                "listen": f"{bound[0]}:{bound[1]}",
                "to": f"{to[0]}:{to[1]}",
                "control": control.url if control else None,
            },
            as_json=options.json,
        )
        follow_lines(steering, sys.stdin, sys.stdout)
        relay.stats.priority = sharpen_timers()
        gc.collect()
        gc.freeze()
        print(json.dumps(relay.run()), flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 2 and one line on stderr where it makes no sense."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.list:
        _list_profiles(as_json=options.json)
        return 0
    try:
        if not (options.profile and options.listen and options.to):
            raise RelayError("name a PROFILE (see --list), --listen PORT and --to HOST:PORT")
        _relay(options)
    except (ImpairError, OSError) as error:
        print(f"python -m impair: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
