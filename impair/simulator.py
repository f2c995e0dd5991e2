"""Whole calls in virtual time: a caller, two links, and the server's own reader, controller and conversation.

The engines are scripted, the words are numbered (impair/simulated_speech.py), everything between is the product's
code: what is retransmitted, protected, waited for and understood is decided as in a real call, and repeats for a seed.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from impair.link import Link, Stage
from impair.profile import Profile
from impair.simulated_speech import (
    PAYLOAD_BYTES,
    WORD_FRAMES,
    LevelVad,
    Utterance,
    WordDecoder,
    encode,
    words_in,
)
from impair.virtual_time import VirtualLoop, run_virtual, wait_until
from jitter.controller import Controller
from jitter.frame import AudioFrame
from jitter.listen import ListenReader
from jitter.packet import RtpPacket
from jitter.planner import Listener
from jitter.red import build_red
from jitter.repair import NO_REPAIR, RepairPlan
from peer.conversation_parts import ConversationOptions
from peer.endpointing import Endpointer
from peer.engines.base import Samples
from peer.engines.factory import EngineSet
from peer.engines.scripted import ScriptedAsr, ScriptedLlm, ScriptedTts, Step
from peer.session import CallSession, ConnectionState, SessionOptions
from transport.messages import CallMessage, UserTranscript, decode
from transport.playout_queue import PlayoutQueue
from transport.transport_stats import TransportStats

FRAME_S = 0.02
PAYLOAD_TYPE, RED_PAYLOAD_TYPE = 111, 63
_RTP_BYTES = 12
_NACK_BYTES = 28
_REPORT_BYTES = 40
_REPORT_EVERY_S = 0.2
_HISTORY = 250
_TICKS = 960
_AUDIBLE = 50
_NEVER = float("inf")


_SentPacket = tuple[int, int, bytes]
"""Frame, payload type, payload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What the caller says and how the engines answer; seconds."""

    utterances: tuple[Utterance, ...]
    length_s: float
    asr_s: float = 0.15
    llm_s: float = 0.1
    reply: str = "This is all that there is to say about it."

    def words(self) -> list[int | None]:
        """The word of each 20 ms frame, None where nothing is said; of two at once the first utterance's."""
        words: list[int | None] = [None] * round(self.length_s / FRAME_S)
        for said in reversed(self.utterances):
            first = round(said.at_s / FRAME_S)
            for frame in range(min(said.words * WORD_FRAMES, len(words) - first)):
                words[first + frame] = said.first_word + frame // WORD_FRAMES
        return words


def one_question(words: int = 10) -> Script:
    """A caller who says so many words at 1 s and listens."""
    said = Utterance(at_s=1.0, first_word=0, words=words)
    return Script(utterances=(said,), length_s=said.ends_s + 6.0)


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What came of a call."""

    transcripts: list[tuple[float, list[int]]] = field(default_factory=list)
    """When each turn was told as over, and the words understood in it."""
    reply_heard_s: list[float] = field(default_factory=list)
    """When the caller heard sound set in."""
    words_said: int = 0
    words_lost: int = 0
    concealed_pct: float = 0.0
    up_delays_ms: list[float | None] = field(default_factory=list)
    """The up link's doing to each media packet, None = lost: a trace that replays it."""
    turns: int = 0
    answer_ms: float | None = None
    """From the end of the last utterance to the first sound of a reply at the caller's."""


class SimulatedLine:
    """The server's MediaConnection over two links; also the caller at the other end."""

    def __init__(self, script: Script, up: Link, down: Link, *, listen_repair: RepairPlan | None = None) -> None:
        self.on_audio: Callable[[list[AudioFrame], float], None] | None = None
        self.on_message: Callable[[str], None] | None = None
        self.on_state: Callable[[ConnectionState, str], None] | None = None
        self.playout = PlayoutQueue()
        self.messages: list[tuple[float, CallMessage]] = []
        self.sound_heard: list[float] = []
        self.up_delays_ms: list[float | None] = []
        self._script = script
        self._up, self._down = up, down
        self.controller = Controller(listener=Listener.LISTEN, plan=listen_repair)
        self.reader = ListenReader(WordDecoder(), controller=self.controller, red_payload_type=RED_PAYLOAD_TYPE)
        self._sent: dict[int, _SentPacket] = {}
        self._plan = listen_repair or NO_REPAIR
        self._words = script.words()
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = itertools.count()

    async def answer(self, offer_sdp: str) -> str:
        """Nothing is negotiated."""
        return offer_sdp

    async def add_candidate(self, candidate: str | None, sdp_mid: str | None, sdp_m_line_index: int | None) -> None:
        """Nothing is trickled."""

    def send_message(self, text: str) -> None:
        """Keep what the server tells."""
        message = decode(text)
        if message is not None:
            self.messages.append((asyncio.get_running_loop().time(), message))

    def stats(self) -> TransportStats:
        """Nothing that the conversation needs."""
        return TransportStats()

    async def close(self, reason: str) -> None:
        """Nothing is held."""

    async def carry(self) -> None:
        """Hold the call for the script's length."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0)
        assert self.on_state is not None
        self.on_state("connected", "")
        begun = loop.time()
        reports = itertools.count(1)
        next_report = begun + _REPORT_EVERY_S
        for index in range(round(self._script.length_s / FRAME_S)):
            due = begun + index * FRAME_S
            await self._run_events(until=due)
            self._speak(index, now=due)
            self._pull(now=due)
            if due >= next_report:
                next_report = begun + next(reports) * _REPORT_EVERY_S + _REPORT_EVERY_S
                self._report(now=due)

    async def _run_events(self, *, until: float) -> None:
        """Let arrivals and the reader's timers happen at their own moments."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        while True:
            timer = self.reader.get_timer()
            event = self._events[0][0] if self._events else _NEVER
            at = event if timer is None or event < timer else timer
            if at > until:
                break
            if not loop.skip_to(at):
                await asyncio.sleep(max(0.0, at - loop.time()))
            now = loop.time()
            if event <= at:
                heapq.heappop(self._events)[2](now)
            else:
                self.reader.handle_timer(now=now)
            self._after_reader(now=now)
        await wait_until(until)

    def _after_reader(self, *, now: float) -> None:
        frames = self.reader.poll(now=now)
        if frames and self.on_audio is not None:
            self.on_audio(frames, now)
        if asked := self.reader.poll_requests(now=now):
            for delivery in self._down.handle_packet(_NACK_BYTES + 2 * len(asked), now=now, kind=1).deliveries:
                self._at(delivery.at, partial(self._resend, asked))

    def _at(self, when: float, event: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), event))

    # the caller

    def _speak(self, index: int, *, now: float) -> None:
        payload, payload_type = self._protected(index)
        self._sent[index] = packet = (index, payload_type, payload)
        self._sent.pop(index - _HISTORY, None)
        copies = len(self._plan.red_offsets) if payload_type == RED_PAYLOAD_TYPE else 0
        fate = self._up.handle_packet(PAYLOAD_BYTES * (1 + copies) + _RTP_BYTES, now=now, kind=0)
        self.up_delays_ms.append((fate.deliveries[0].at - now) * 1000 if fate.deliveries else None)
        for delivery in fate.deliveries:
            self._at(delivery.at, partial(self._receive, packet))

    def _protected(self, index: int) -> tuple[bytes, int]:
        """The frame's payload as the plan in force has it."""
        before = self._words[index - 1] if index else None
        primary = encode(self._words[index], before, fec=self._plan.fec)
        offsets = [offset for offset in self._plan.red_offsets if offset <= index]
        if not offsets:
            return primary, PAYLOAD_TYPE
        copies = [(offset * _TICKS, encode(self._words[index - offset], None, fec=False)) for offset in offsets]
        return build_red(payload_type=PAYLOAD_TYPE, primary=primary, copies=copies), RED_PAYLOAD_TYPE

    def _resend(self, asked: Sequence[int], now: float) -> None:
        for packet in [self._sent[index] for index in self._sent if (index & 0xFFFF) in set(asked)]:
            for delivery in self._up.handle_packet(PAYLOAD_BYTES + _RTP_BYTES, now=now, kind=3).deliveries:
                self._at(delivery.at, partial(self._receive, packet))

    # the server

    def _receive(self, sent: _SentPacket, now: float) -> None:
        index, payload_type, payload = sent
        packet = RtpPacket(index & 0xFFFF, index * _TICKS & 0xFFFFFFFF, payload_type, 1, payload, now)
        self.reader.handle_packet(packet, now=now)

    def _pull(self, *, now: float) -> None:
        frame = self.playout.pull(now=now)
        if frame is None:
            return  # silence is not sent (DTX)
        audible = bool(np.abs(frame).max() > _AUDIBLE)
        for delivery in self._down.handle_packet(PAYLOAD_BYTES + _RTP_BYTES, now=now, kind=0).deliveries:
            if audible:
                self.sound_heard.append(delivery.at)

    def _report(self, *, now: float) -> None:
        """Tell the caller what protection is wished for, and learn the round trip from his answer."""
        plan = self.controller.decision.plan
        for there in self._down.handle_packet(_REPORT_BYTES, now=now, kind=4).deliveries:
            back = self._up.handle_packet(_REPORT_BYTES, now=there.at, kind=4).deliveries
            self._at(there.at, partial(self._follow, plan))
            for delivery in back:
                self._at(delivery.at, partial(self._learn_round_trip, now))

    def _follow(self, plan: RepairPlan, now: float) -> None:
        del now
        self._plan = plan

    def _learn_round_trip(self, sent_at: float, now: float) -> None:
        self.controller.handle_round_trip(rtt_ms=(now - sent_at) * 1000, now=now)


def simulate(
    script: Script, up: Sequence[Stage], down: Sequence[Stage], *, seed: int | str = 0, repair: RepairPlan | None = None
) -> Outcome:
    """Hold one call in virtual time over these stages; `repair` fixes the plan that the controller else chooses."""
    line_up = Link(up, seed=f"{seed}/up", origin=0.0)
    line_down = Link(down, seed=f"{seed}/down", origin=0.0)
    return run_virtual(_hold(script, line_up, line_down, repair))


def simulate_profile(script: Script, profile: Profile, *, seed: int = 0) -> Outcome:
    """The same on a profile, media both ways."""
    return simulate(script, profile.up, profile.down, seed=seed)


async def _hold(script: Script, up: Link, down: Link, repair: RepairPlan | None) -> Outcome:
    line = SimulatedLine(script, up, down, listen_repair=repair)

    def understand(samples: Samples) -> Step:
        return Step(text=" ".join(f"w{word}" for word in words_in(samples)), delay_s=script.asr_s)

    engines = EngineSet(
        asr=ScriptedAsr(understand, record=False),
        llm=ScriptedLlm([Step(text=script.reply, delay_s=script.llm_s)], record=False),
        tts=ScriptedTts(record=False),
        turn=None,
    )
    session = CallSession(
        call_id="simulated",
        connection=line,
        engines=engines,
        endpointer=Endpointer(gate=LevelVad(), judge=LevelVad()),
        options=SessionOptions(conversation=ConversationOptions()),
    )
    running = asyncio.create_task(session.run())
    await line.carry()
    session.hang_up("the script is over")
    await running
    return _outcome(script, line)


def _outcome(script: Script, line: SimulatedLine) -> Outcome:
    told = [(at, message.text) for at, message in line.messages if isinstance(message, UserTranscript)]
    transcripts = [(at, [int(word[1:]) for word in text.split() if word[1:].isdigit()]) for at, text in told if text]
    said = {word for u in script.utterances for word in range(u.first_word, u.first_word + u.words)}
    understood = {word for _, words in transcripts for word in words}
    onsets = [b for a, b in itertools.pairwise([-1.0, *sorted(line.sound_heard)]) if b - a > 0.4]
    last = max((u.ends_s for u in script.utterances), default=0.0)
    first = next((at for at in onsets if at > last), None)
    stats = line.reader.stats
    return Outcome(
        transcripts=transcripts,
        reply_heard_s=onsets,
        words_said=len(said),
        words_lost=len(said - understood),
        concealed_pct=100 * stats.concealed_samples / max(1, stats.total_samples_received),
        up_delays_ms=line.up_delays_ms,
        turns=len(transcripts),
        answer_ms=None if first is None else (first - last) * 1000,
    )
