"""One call: it owns the connection, the conversation and every task of both, and closes them in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from jitter.frame import AudioFrame
from peer.agent import Agent, AgentCall
from peer.agent_llm import engines_with, options_with
from peer.conversation import Conversation
from peer.conversation_parts import ConversationOptions, Engines, Outlets
from peer.endpointing import Endpointer
from peer.noise import NoiseReducer
from peer.recording import Recording
from transport.call_network import CallNetwork
from transport.messages import CallEnded, CallError, CallMessage, CallRecorded, CallStats, encode
from transport.playout_queue import PlayoutQueue
from transport.transport_stats import TransportStats

_LOG = logging.getLogger(__name__)
_STATS_EVERY_S: Final = 1.0
_AGENT_GOODBYE_S: Final = 2.0

ConnectionState = Literal["connecting", "connected", "disconnected", "failed", "closed"]


class MediaConnection(Protocol):
    """What carries the call: `transport.peer_connection.PeerConnection`, or a test's line."""

    on_audio: Callable[[list[AudioFrame], float], None] | None
    on_message: Callable[[str], None] | None
    on_state: Callable[[ConnectionState, str], None] | None
    playout: PlayoutQueue

    async def answer(self, offer_sdp: str) -> str:
        """Return the answer to an offer; raises RemoteProtocolError."""
        ...

    async def add_candidate(self, candidate: str | None, sdp_mid: str | None, sdp_m_line_index: int | None) -> None:
        """Take a trickled candidate, None for the end of them."""
        ...

    def send_message(self, text: str) -> None:
        """Send one message of the call."""
        ...

    def stats(self) -> TransportStats:
        """Return the media's statistics."""
        ...

    async def close(self, reason: str) -> None:
        """Say BYE and end every task."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """Limits and manners of one call."""

    conversation: ConversationOptions = field(default_factory=ConversationOptions)
    connect_timeout_s: float = 30.0
    max_call_s: float = 3600.0
    log_transcripts: bool = False
    record_max_s: float = 1800.0


class CallSession:
    """One call from its offer to its end; `run` returns when the call is over and nothing of it is left."""

    def __init__(
        self,
        *,
        call_id: str,
        connection: MediaConnection,
        engines: Engines,
        endpointer: Endpointer,
        options: SessionOptions,
        network: CallNetwork | None = None,
        agent: Agent | None = None,
        record_to: Path | None = None,
        noise: NoiseReducer | None = None,
    ) -> None:
        """`network` is the call's control channel and what it drives; `agent` answers in the language model's place.

        `record_to` is a WAV file to be made of the call; `noise` cleans what the recogniser hears.
        """
        self.call_id: Final = call_id
        self._connection: Final = connection
        self._options: Final = options
        self._network: Final = network
        self._loop: Final = asyncio.get_running_loop()
        self._over: Final = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None
        self._reason = ""
        self._connected = False
        self._record_to: Final = record_to
        self._recording: Recording | None = None
        self._recorder: asyncio.Task[None] | None = None
        self._agent: Final = agent
        self._agent_call: Final = self._make_agent_call()
        conversation = options.conversation
        if agent is not None:
            engines = engines_with(agent, call=self._agent_call, engines=engines, emit=self._emit)
            conversation = options_with(agent, conversation)
        self._conversation: Final = Conversation(
            engines=engines,
            options=conversation,
            outlets=Outlets(
                playout=connection.playout,
                emit=self._emit,
                spawn=self._spawn,
                clock=self._loop.time,
                endpointer=endpointer,
                hang_up=self.hang_up,
                noise=noise,
                log_transcripts=options.log_transcripts,
                lead_ms=network.lead_ms if network else None,
            ),
        )
        if network is not None:
            connection.on_message = network.take_text
        connection.on_audio = self._handle_audio
        connection.on_state = self._handle_state

    @property
    def conversation(self) -> Conversation:
        """What is being said."""
        return self._conversation

    async def answer(self, offer_sdp: str) -> str:
        """Return the answer to the caller's offer; raises RemoteProtocolError."""
        return await self._connection.answer(offer_sdp)

    async def add_candidate(self, candidate: str | None, sdp_mid: str | None, sdp_m_line_index: int | None) -> None:
        """Take a trickled candidate; raises RemoteProtocolError."""
        await self._connection.add_candidate(candidate, sdp_mid, sdp_m_line_index)

    async def abandon(self) -> None:
        """Close a call that never began."""
        if self._network is not None:
            self._network.close()
        await self._connection.close("the call was not made")

    def hang_up(self, reason: str) -> None:
        """End the call; `run` returns soon after."""
        if not self._over.is_set():
            self._reason = reason
            self._over.set()

    async def run(self) -> None:
        """Hold the call until either side ends it; then stop its tasks, say goodbye and close."""
        started_at = self._loop.time()
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                watchers = [group.create_task(self._watch_limits()), group.create_task(self._report())]
                await self._over.wait()
                self._conversation.handle_hang_up()
                self._group = None
                if self._recorder is not None:
                    watchers.append(self._recorder)
                for watcher in watchers:
                    watcher.cancel()
        finally:
            self._group = None
            await self._close()
            if self._recording is not None:
                await self._recording.finish(now=self._loop.time())
            await self._tell_agent_of_end()
            _LOG.info(
                "call over",
                extra={
                    "call": self.call_id,
                    "reason": self._reason,
                    "seconds": round(self._loop.time() - started_at, 1),
                },
            )

    async def _close(self) -> None:
        if self._connected:
            self._emit(CallEnded(reason=self._reason))
        if self._network is not None:
            self._network.close()
        await self._connection.close(self._reason)

    def _record(self, path: Path) -> None:
        longest_s = self._options.record_max_s
        self._recording = recording = Recording(path, longest_s=longest_s, now=self._loop.time())
        self._connection.playout.on_pull = recording.handle_said
        self._emit(CallRecorded(longest_s=longest_s))

        async def run() -> None:
            reason = await recording.run()
            _LOG.info("recording over", extra={"call": self.call_id, "reason": reason})

        self._recorder = self._spawn(run())

    def _make_agent_call(self) -> AgentCall:
        later = self._loop.call_soon_threadsafe  # tools may run in threads

        def say(text: str) -> None:
            later(lambda: self._conversation.say(text))

        def hang_up(reason: str) -> None:
            later(lambda: self._conversation.leave(reason))

        return AgentCall(
            id=self.call_id,
            say=say,
            hang_up=hang_up,
            history=lambda: self._conversation.dialogue.entries,
        )

    async def _let_agent_begin(self, agent: Agent) -> None:
        words = None
        try:
            words = await agent.on_call(self._agent_call)
        except Exception:
            _LOG.exception("the agent failed in on_call", extra={"call": self.call_id})
        greeting = self._options.conversation.greeting if words is None else words
        if greeting and self._conversation.is_fresh:  # who has spoken already is answered, not greeted
            self._conversation.say(greeting)

    async def _tell_agent_of_end(self) -> None:
        if self._agent is None:
            return
        try:
            async with asyncio.timeout(_AGENT_GOODBYE_S):
                await self._agent.on_hang_up(self._agent_call, self._reason)
        except Exception:
            _LOG.exception("the agent failed in on_hang_up", extra={"call": self.call_id})

    async def _watch_limits(self) -> None:
        await asyncio.sleep(self._options.connect_timeout_s)
        if not self._connected:
            self.hang_up("no media connection came about")
            return
        await asyncio.sleep(max(self._options.max_call_s - self._options.connect_timeout_s, 0.0))
        self.hang_up("the call has reached its longest allowed time")

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(_STATS_EVERY_S)
            if self._connected:
                stats = self._connection.stats()
                self._emit(
                    CallStats(
                        rtt_ms=stats.rtt_ms,
                        packets_received=stats.packets_received,
                        packets_lost=stats.packets_lost,
                        concealed_pct=stats.concealed_pct,
                        jitter_ms=stats.jitter_ms,
                    )
                )

    def _spawn(self, job: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        assert self._group is not None
        task = self._group.create_task(self._guarded(job))
        # A task cancelled before its first step never touches its job, which then complains that nobody awaited it.
        task.add_done_callback(lambda _: job.close())
        return task

    async def _guarded(self, job: Coroutine[Any, Any, None]) -> None:
        try:
            await job
        except Exception:
            self._break_down()

    def _break_down(self) -> None:
        """A fault of ours ends this call, and this call only."""
        _LOG.exception("call %s broke down", self.call_id)
        if self._connected:
            self._emit(CallError(code="internal", message="Something broke on our side.", fatal=True))
        self.hang_up("internal error")

    def _handle_audio(self, frames: list[AudioFrame], now: float) -> None:
        if self._group is None or not self._connected:
            return
        try:
            if self._recording is not None:
                self._recording.handle_heard(frames, now)
            self._conversation.handle_audio(frames, now=now)
        except Exception:
            self._break_down()

    def _handle_state(self, state: ConnectionState, reason: str) -> None:
        if state == "connected" and not self._connected and self._group is not None:
            self._connected = True
            if self._network is not None:
                self._network.start()
            if self._record_to is not None:
                self._record(self._record_to)
            self._conversation.handle_connected(now=self._loop.time())
            if self._agent is not None:
                self._spawn(self._let_agent_begin(self._agent))
        elif state in {"failed", "closed"}:
            self.hang_up(reason or f"the connection has {state}")

    def _emit(self, message: CallMessage) -> None:
        self._connection.send_message(encode(message))
        if self._network is not None and self._network.control.carrier_kind != "data_channel":
            self._network.tell_event(message)
