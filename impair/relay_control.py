"""Steering a running relay: the same few commands as lines on stdin and as HTTP with JSON on a local port."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TextIO, cast, get_args

from impair.errors import ImpairError, RelayError
from impair.flows import Address, Network
from impair.profile import Direction, MediaWays
from impair.traces import load_profile
from impair.udp_relay import UdpRelay

Arguments = dict[str, Any]

COMMANDS = """\
profile NAME [SEED [both|up|down]]   change the network of every flow, now
outage SECONDS                       lose everything for so long
rebind                               another source port towards the target, as after a NAT's
                                     time-out
route HOST:PORT                      one more way through the relay; answers where it listens
stats                                what the relay did so far
quit                                 end
"""
_WORDS = {"profile": ("profile", "seed", "media"), "outage": ("seconds",), "route": ("to", "listen", "listener")}
_MAX_BODY_BYTES = 65536


def parse_address(text: object, *, host: str = "127.0.0.1") -> Address:
    """`HOST:PORT`, `[v6]:PORT` or a bare port on `host`."""
    name, colon, port = str(text).rpartition(":")
    if not (port.isdigit() and int(port) <= 65535 and (name or not colon)):
        raise RelayError(f"{text!r} is no address; write HOST:PORT")
    return (name.strip("[]") or host), int(port)


def make_network(profile: str, seed: object = 0, media: str = "both") -> Network:
    """A network by words; ProfileError or RelayError where one makes no sense."""
    if media not in get_args(MediaWays):
        raise RelayError(f"media goes both, up or down, not {media!r}")
    try:
        number = int(str(seed))
    except ValueError:
        raise RelayError(f"a seed is a whole number, not {seed!r}") from None
    return Network(profile=load_profile(profile), seed=number, media=cast("MediaWays", media))


class RelaySteering:
    """The commands; every method may be called from any thread but the relay's."""

    def __init__(self, relay: UdpRelay) -> None:
        self._relay = relay
        self._commands: dict[str, Callable[[Arguments], Arguments]] = {
            "profile": self._set_profile,
            "outage": self._begin_outage,
            "rebind": self._rebind,
            "route": self._add_route,
            "stats": lambda _: relay.call(relay.report),
            "quit": self._quit,
        }

    def execute(self, name: str, arguments: Arguments) -> Arguments:
        """Do what is asked and answer with plain values; RelayError names what was wrong."""
        command = self._commands.get(name)
        if command is None:
            raise RelayError(f"no command is called {name!r}; there are {', '.join(self._commands)}")
        return command(arguments)

    def execute_line(self, line: str) -> Arguments:
        """The same from words."""
        name, *words = line.split()
        names = _WORDS.get(name, ())
        if len(words) > len(names):
            raise RelayError(f"{name} takes {' '.join(names) or 'nothing'}, not {' '.join(words)!r}")
        return self.execute(name, dict(zip(names, words, strict=False)))

    def _set_profile(self, arguments: Arguments) -> Arguments:
        network = make_network(
            str(arguments.get("profile", "")), arguments.get("seed", 0), str(arguments.get("media", "both"))
        )
        self._relay.call(lambda: self._relay.set_network(network))
        return {"profile": network.profile.name, "seed": network.seed, "media": network.media}

    def _begin_outage(self, arguments: Arguments) -> Arguments:
        try:
            seconds = float(arguments["seconds"])
        except (KeyError, TypeError, ValueError):
            raise RelayError("outage takes its length in seconds") from None
        self._relay.call(lambda: self._relay.begin_outage(seconds))
        return {"outage_s": seconds}

    def _rebind(self, arguments: Arguments) -> Arguments:
        del arguments
        return {"rebound": self._relay.call(self._relay.rebind)}

    def _add_route(self, arguments: Arguments) -> Arguments:
        to, listen = parse_address(arguments.get("to", "")), parse_address(arguments.get("listen", "127.0.0.1:0"))
        listener = arguments.get("listener", "up")
        if listener not in get_args(Direction):
            raise RelayError(f"the listener's side is up or down, not {listener!r}")
        bound = self._relay.call(lambda: self._relay.add_route(listen, to, listener=listener))
        return {"listen": list(bound), "to": list(to)}

    def _quit(self, arguments: Arguments) -> Arguments:
        del arguments
        self._relay.stop()
        return {"ending": True}


def follow_lines(steering: RelaySteering, lines: Iterable[str], out: TextIO) -> threading.Thread:
    """Obey lines (of stdin) until they end, on a thread of its own; each is answered with one line of JSON."""

    def follow() -> None:
        for line in lines:
            if not line.strip():
                continue
            try:
                answer = steering.execute_line(line)
            except ImpairError as error:
                answer = {"error": str(error)}
            print(json.dumps(answer), file=out, flush=True)

    thread = threading.Thread(target=follow, name="impair-lines", daemon=True)
    thread.start()
    return thread


class ControlServer:
    """HTTP on a local port: GET /stats, POST /profile, /outage, /rebind, /route, /quit with a JSON object each."""

    def __init__(self, steering: RelaySteering, address: Address) -> None:
        try:
            self._server = ThreadingHTTPServer(address, _handler_of(steering))
        except OSError as error:
            raise RelayError(f"cannot listen for commands on {address[0]}:{address[1]}: {error.strerror}") from error
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="impair-control", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{self._server.server_address[0]!s}:{self._server.server_address[1]}"

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)


def _handler_of(steering: RelaySteering) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 10

        def do_GET(self) -> None:
            if self.path in {"/", "/stats"}:
                self._answer("stats", {})
            else:
                self._write(404, {"error": f"there is nothing at {self.path}"})

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length", "0")
            if not (length.isdigit() and int(length) <= _MAX_BODY_BYTES):
                self.close_connection = True
                self._write(413, {"error": "a command is a small JSON object"})
                return
            try:
                arguments = json.loads(self.rfile.read(int(length)) or b"{}")
            except ValueError:
                arguments = None
            if not isinstance(arguments, dict):
                self._write(400, {"error": "a command is a JSON object"})
                return
            self._answer(self.path.strip("/"), arguments)

        def _answer(self, name: str, arguments: Arguments) -> None:
            try:
                self._write(200, steering.execute(name, arguments))
            except ImpairError as error:
                self._write(400, {"error": str(error)})

        def _write(self, status: int, values: Arguments) -> None:
            body = json.dumps(values).encode() + b"\n"
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
            pass

    return Handler
