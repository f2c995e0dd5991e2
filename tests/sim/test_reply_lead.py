"""How far ahead of its sound a reply is voiced: as far as the network asks, no farther, and never dry."""

from __future__ import annotations

import asyncio

import pytest

from jitter.sender_control import SenderOutputs
from peer.engines.base import ChatMessage
from peer.engines.scripted import ScriptedLlm, ScriptedTts, Step
from peer.reply import Reply, ReplyOptions
from tests.sim.virtual_time import run_virtual
from transport.playout_queue import PlayoutQueue

NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
TEXT = " ".join(f"Number {word} is here now." for word in NUMBERS)


async def _speak(lead_extra_ms: float) -> tuple[list[float], list[float], int]:
    """Return the queue's length at each request for a sentence, and all along, and how often it ran dry."""
    loop = asyncio.get_running_loop()
    queue = PlayoutQueue()
    asked: list[float] = []

    class Watched(ScriptedTts):
        def synthesize(self, text, *, options=None):  # type: ignore[no-untyped-def]
            asked.append(queue.queued_ms)
            return super().synthesize(text)

    outputs = SenderOutputs(lead_extra_ms=lead_extra_ms)
    reply = Reply(
        turn=1,
        prompt=[ChatMessage(role="user", content="Count to ten.")],
        llm=ScriptedLlm([Step(text=TEXT, delay_s=0.05, piece_delay_s=0.01)]),
        tts=Watched([Step(delay_s=0.1)]),
        playout=queue,
        options=ReplyOptions(max_tokens=1000),
        emit=lambda _: None,
        clock=loop.time,
        lead_ms=outputs.lead_ms,
    )
    reply.release()
    speaking = asyncio.create_task(reply.run())
    levels: list[float] = []
    dry = 0
    started = False
    while not speaking.done():
        frame = queue.pull(now=loop.time())
        started = started or frame is not None
        dry += started and frame is None and not speaking.done() and len(asked) < 10
        levels.append(queue.queued_ms)
        await asyncio.sleep(0.02)
    await speaking
    return asked, levels, dry


@pytest.mark.parametrize(("extra_ms", "least_ms"), [(0.0, 400.0), (800.0, 1200.0)])
def test_the_next_sentence_is_asked_for_at_the_lead_and_the_queue_never_runs_dry(
    extra_ms: float, least_ms: float
) -> None:
    asked, levels, dry = run_virtual(_speak(extra_ms))
    assert len(asked) >= 10
    assert dry == 0
    piece_ms = 1250.0  # five words of a quarter second
    assert max(asked[3:]) <= 1.8 * piece_ms + extra_ms + 25
    assert max(levels) <= 1.8 * piece_ms + extra_ms + piece_ms + 50
    assert max(asked[3:]) >= least_ms


def test_the_lead_is_never_under_400_ms() -> None:
    outputs = SenderOutputs(lead_extra_ms=0.0)
    assert outputs.lead_ms(0.0) == 400.0
    assert outputs.lead_ms(100.0) == 400.0
    assert outputs.lead_ms(1000.0) == 1800.0
