"""A pytest plugin: `@pytest.mark.network("lte")` and the fixture `network` put a test's UDP through that network.

    @pytest.mark.network("lte", seed=3)
    def test_call(network):
        url = network.proxy("http://127.0.0.1:8080")    # signaling; the media goes through relays by itself
        host, port = network.relay("127.0.0.1:5004")    # or any UDP service, such as QUIC
        network.outage(2.0)

The relays run in processes of their own and end with the test; what they did is kept in the test's JUnit properties.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from impair.errors import ImpairError
from impair.relay_control import make_network

_MARKER = (
    "network(profile, *, seed=1, media='both'): the network that the fixture `network` puts the test's UDP through"
)
_END_TIMEOUT_S = 15.0


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known, for --strict-markers."""
    config.addinivalue_line("markers", _MARKER)


class RunningNetwork:
    """What the fixture gives: relays and proxies with the marked network in them; steps of it change in mid-test."""

    def __init__(self, profile: str, seed: int, media: str) -> None:
        make_network(profile, seed, media)  # a wrong mark is said at once
        self.profile, self.seed, self.media = profile, seed, media
        self._processes: list[tuple[subprocess.Popen[str], str]] = []

    def relay(self, to: str) -> tuple[str, int]:
        """Listen on a free port of 127.0.0.1 and relay it to `HOST:PORT`."""
        host, _, port = self._start(to)["listen"].rpartition(":")
        return host, int(port)

    def proxy(self, url: str) -> str:
        """A URL that stands for a signaling URL; calls set up through it go through the network."""
        return str(self._start(url)["listen"])

    def change(self, profile: str, *, seed: int | None = None) -> None:
        """Another network from now on."""
        self.profile, self.seed = profile, self.seed if seed is None else seed
        self._all("profile", {"profile": profile, "seed": self.seed, "media": self.media})

    def outage(self, seconds: float) -> None:
        """Lose everything for so long; returns at once."""
        self._all("outage", {"seconds": seconds})

    def rebind(self) -> None:
        """Another source port towards the target, as after a NAT's time-out or a change of network."""
        self._all("rebind", {})

    def report(self) -> list[dict[str, Any]]:
        """What each relay did so far."""
        return [self._ask(control, "stats", None) for _, control in self._processes]

    def close(self) -> None:
        """End every relay."""
        for process, _ in self._processes:
            process.terminate()
        for process, _ in self._processes:
            try:
                process.communicate(timeout=_END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
        self._processes.clear()

    def _start(self, to: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "impair", self.profile, "--seed", str(self.seed), "--media", self.media]
        process = subprocess.Popen(
            [*command, "--listen", "0", "--to", to, "--control", "0", "--json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise ImpairError(process.communicate()[1].strip() or "the relay did not start")
        told = dict(json.loads(line))
        self._processes.append((process, str(told["control"])))
        return told

    def _all(self, command: str, arguments: dict[str, Any]) -> None:
        for _, control in self._processes:
            self._ask(control, command, arguments)

    @staticmethod
    def _ask(control: str, command: str, arguments: dict[str, Any] | None) -> dict[str, Any]:
        data = None if arguments is None else json.dumps(arguments).encode()
        try:
            with urllib.request.urlopen(f"{control}/{command}", data, timeout=10) as answer:  # noqa: S310 - our own
                return dict(json.load(answer))
        except urllib.error.HTTPError as error:
            with error:
                raise ImpairError(str(json.load(error).get("error"))) from None


@pytest.fixture
def network(request: pytest.FixtureRequest) -> Iterator[RunningNetwork]:
    """The network of the test's mark, `none` without one; see the plugin's module."""
    mark = request.node.get_closest_marker("network")
    profile, seed, media = _read_mark(mark) if mark is not None else ("none", 1, "both")
    running = RunningNetwork(profile, seed, media)
    try:
        yield running
    finally:
        with contextlib.suppress(OSError, ImpairError):
            request.node.user_properties.append(("network", json.dumps(running.report())))
        running.close()


def _read_mark(mark: pytest.Mark) -> tuple[str, int, str]:
    known = {"seed", "media"}
    if len(mark.args) != 1 or set(mark.kwargs) - known:
        raise pytest.UsageError(f"write @pytest.mark.{_MARKER.split(':', maxsplit=1)[0]}")
    return str(mark.args[0]), mark.kwargs.get("seed", 1), mark.kwargs.get("media", "both")
