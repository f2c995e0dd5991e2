"""The queue between aioice's sockets and aiortc: bounded, in order, stamped on entry."""

from __future__ import annotations

import asyncio

from transport.ice import MAX_QUEUED_DATAGRAMS, DatagramQueue


async def test_datagrams_come_out_in_order_with_the_time_they_came_in() -> None:
    loop = asyncio.get_running_loop()
    queue = DatagramQueue(loop)
    clock = iter([1.0, 2.0])
    queue._loop = type("Clock", (), {"time": lambda self: next(clock), "create_future": loop.create_future})()
    queue.put_nowait((b"a", 1))
    queue.put_nowait((b"b", 1))
    assert await queue.get() == (b"a", 1)
    assert queue.last_arrival == 1.0
    assert queue.last_heard == 2.0
    assert await queue.get() == (b"b", 1)
    assert queue.last_arrival == 2.0


async def test_a_reader_that_waits_is_woken_and_one_that_is_cancelled_loses_nothing() -> None:
    queue = DatagramQueue(asyncio.get_running_loop())
    reader = asyncio.ensure_future(queue.get())
    await asyncio.sleep(0)
    reader.cancel()
    await asyncio.wait([reader])
    queue.put_nowait((b"kept", 1))
    reader = asyncio.ensure_future(queue.get())
    assert await reader == (b"kept", 1)
    reader = asyncio.ensure_future(queue.get())
    await asyncio.sleep(0)
    queue.put_nowait(None)
    assert await reader is None


async def test_a_queue_nobody_reads_drops_the_oldest_and_counts_them() -> None:
    queue = DatagramQueue(asyncio.get_running_loop())
    for n in range(MAX_QUEUED_DATAGRAMS + 10):
        queue.put_nowait((n.to_bytes(4, "big"), 1))
    queue.put_nowait(None)
    assert queue.dropped == 10
    assert await queue.get() == ((10).to_bytes(4, "big"), 1)
    for _ in range(MAX_QUEUED_DATAGRAMS - 1):
        await queue.get()
    assert await queue.get() is None


async def test_an_empty_datagram_goes_nowhere() -> None:
    queue = DatagramQueue(asyncio.get_running_loop())
    queue.put_nowait((b"", 1))
    queue.put_nowait((b"x", 1))
    assert await queue.get() == (b"x", 1)
