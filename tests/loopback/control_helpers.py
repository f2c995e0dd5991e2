"""What the loopback tests of the control channel share: a listener that remembers, and a running server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from transport.control_call import CallControl
from transport.control_messages import CarrierKind, NextToken, ReceiveReport, StreamMessage
from transport.messages import CallMessage
from transport.quic_client import ControlClient
from transport.quic_server import ControlServer

UNIX_TIME = 1_900_000_000.0


@dataclass
class Listener:
    """Remembers everything it hears; reports that it received as many packets as it was asked for reports."""

    reports: list[ReceiveReport] = field(default_factory=list)
    messages: list[StreamMessage | CallMessage] = field(default_factory=list)
    carriers: list[CarrierKind | None] = field(default_factory=list)
    asked: int = 0

    def make_report(self, *, now: float) -> ReceiveReport | None:
        self.asked += 1
        return ReceiveReport(seq=0, at_us=0, packets_received=self.asked)

    def handle_report(self, report: ReceiveReport, *, now: float) -> None:
        self.reports.append(report)

    def handle_control_message(self, message: StreamMessage | CallMessage, *, now: float) -> None:
        self.messages.append(message)

    def handle_carrier(self, kind: CarrierKind | None, *, now: float) -> None:
        self.carriers.append(kind)


@dataclass
class Side:
    control: CallControl
    listener: Listener


def make_side(call_id: str = "call") -> Side:
    listener = Listener()
    return Side(control=CallControl(call_id=call_id, listener=listener), listener=listener)


@asynccontextmanager
async def running_server(
    *, ttl_s: float | None = None, unix_time: Callable[[], float] = lambda: UNIX_TIME
) -> AsyncIterator[ControlServer]:
    server = ControlServer(host="127.0.0.1", port=0, unix_time=unix_time, ttl_s=ttl_s)
    await server.start()
    try:
        yield server
    finally:
        await server.aclose()


@asynccontextmanager
async def running_client(
    server: ControlServer, side: Side, token: str, *, port: int | None = None, digests: list[str] | None = None
) -> AsyncIterator[ControlClient]:
    client = ControlClient(
        side.control,
        url=f"https://127.0.0.1:{port or server.port}/control",
        token=token,
        certificate_sha256_list=digests if digests is not None else server.certificate_sha256_list,
    )
    task = asyncio.create_task(client.run())
    try:
        yield client
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def ignore(_: NextToken) -> None:
    """Stand in for the data channel of a call that has none."""


async def until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)
