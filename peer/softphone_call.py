"""The softphone's call: signalling over HTTP, media over WebRTC, and recordings played into it turn by turn."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import urljoin, urlsplit

import aiohttp

from jitter.frame import AudioFrame
from peer.engines.base import Samples
from peer.softphone_audio import SEND_RATE_HZ, FaintNoise, LineRecorder
from peer.softphone_channel import SoftphoneChannel
from peer.softphone_log import CallLog, assign_voice_to_voice
from transport.config import TransportConfig
from transport.errors import AntiphonError, RemoteProtocolError
from transport.messages import CallMessage, decode
from transport.outbound_stream import OutboundPacket
from transport.peer_connection import PeerConnection, State
from transport.playout_queue import FRAME_SAMPLES

_AHEAD_MS: Final = 200.0
"""Sound kept ready to send; small, so that a recording begins when it is told to."""
_FEED_S: Final = 0.05
_POLL_S: Final = 0.05
_QUIET_S: Final = 0.6
"""The call must have been settled for so long before the last reply counts as ended."""
_NOTICE_S: Final = 1.5
"""By then the server has told of the last speech in a recording."""
_GREETING_S: Final = 0.5


class SoftphoneError(AntiphonError):
    """A call that did not go as it should; `exit_code` is the command's."""

    def __init__(self, exit_code: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code


REFUSED, NO_MEDIA, NO_REPLY, CUT_OFF = 3, 4, 5, 6
"""Exit codes: the server refuses or is not there; no media; no reply in time; the call ended early."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions:
    """How to reach the server, and how long to wait."""

    url: str
    access_token: str = ""
    insecure: bool = False
    """Take the server's certificate whoever signed it."""
    connect_timeout_s: float = 20.0
    reply_timeout_s: float = 60.0
    """From the end of a recording to the end of the last reply."""
    lost_after_s: float = 15.0
    """A call in which the server's side has been silent for so long, even to our checks, is lost."""
    receive_rate_hz: int = 16_000
    for_ears: bool = False
    """The connection's `get_audio` is asked for sound every 10 ms, instead of a recorder being told of it."""
    feed_noise: bool = True
    """Send faint noise where nothing else is sent."""


class SoftphoneCall:
    """One call to a server, as an async context manager: connected inside, hung up and closed behind."""

    def __init__(self, options: CallOptions) -> None:
        self.log: Final = CallLog()
        self.recorder: Final = LineRecorder()
        self.connected_ms: float | None = None
        self.on_message: Callable[[CallMessage], None] | None = None
        """Each message of the server, after the log has it."""
        self._options: Final = options
        self._loop: Final = asyncio.get_running_loop()
        self._connected: Final = asyncio.Event()
        self._lost = ""
        self._location = ""
        self._noise: Final = FaintNoise()
        self._feeder: asyncio.Task[None] | None = None
        self.channel: SoftphoneChannel | None = None
        """The control channel, once the server has answered."""
        self._channel_task: asyncio.Task[None] | None = None
        self._sent_at: Final[list[float]] = []
        """When each frame of sound left since the recording began."""
        headers = {"Authorization": f"Bearer {options.access_token}"} if options.access_token else {}
        self._http: Final = aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=30.0))
        local = _is_loopback(urlsplit(options.url).hostname or "")
        self.connection: Final = PeerConnection(
            TransportConfig(
                hosts=("127.0.0.1",) if local else (),
                receive_rate_hz=options.receive_rate_hz,
                reader="playout" if options.for_ears else "listen",
                failed_after_s=options.lost_after_s,
            )
        )
        self.connection.on_message = self._handle_message
        self.connection.on_state = self._handle_state
        self.connection.on_audio = self._handle_audio
        self.connection.on_packet_sent = self._handle_sent

    @property
    def is_up(self) -> bool:
        """Whether the call stands."""
        return self._connected.is_set() and not self._lost and self.log.ended is None

    async def __aenter__(self) -> Self:
        """Call; raises SoftphoneError."""
        try:
            await self._dial()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Hang up and close."""
        await self._close()

    async def _dial(self) -> None:
        started_at = self._loop.time()
        offer = await self.connection.offer()
        answer = await self._post(offer)
        try:
            await self.connection.accept(answer)
        except RemoteProtocolError as error:
            raise SoftphoneError(REFUSED, f"the server's answer makes no sense: {error}") from error
        if self.channel is not None:
            self._channel_task = self._loop.create_task(self.channel.run())
        try:
            async with asyncio.timeout(self._options.connect_timeout_s):
                await self._connected.wait()
        except TimeoutError:
            raise SoftphoneError(NO_MEDIA, "no media connection came about; is UDP let through?") from None
        self._raise_if_over()
        self.connected_ms = round((self._loop.time() - started_at) * 1000, 1)

    async def _post(self, offer: str) -> str:
        url = urljoin(self._options.url.rstrip("/") + "/", "calls")
        try:
            async with self._http.post(
                url, json={"sdp": offer, "type": "offer"}, ssl=not self._options.insecure
            ) as response:
                if response.status != 201:
                    raise SoftphoneError(REFUSED, await _why_refused(response))
                self._location = urljoin(url, response.headers["Location"])
                body = await response.json()
                self.channel = SoftphoneChannel(
                    self.connection, call_id=str(body["call_id"]), offer=body.get("control")
                )
                return str(body["sdp"])
        except (aiohttp.ClientError, TimeoutError, ValueError, KeyError) as error:
            problem = f"cannot call {self._options.url}: {_why_unreachable(error)}"
            raise SoftphoneError(REFUSED, problem) from error

    async def play(self, samples: Samples, *, speech_ends_ms: Sequence[float], labelled: bool, first: bool) -> None:
        """Play a recording (48 kHz), wait for the last reply to end, and note each turn's voice-to-voice time.

        `first`: the record begins with this playing. Raises SoftphoneError.
        """
        await self._wait_until_free()
        turns_before = len(self.log.turns)
        onset_count = len(self.recorder.onsets)
        began_at = await self._start_sending(samples)
        if first:
            self.recorder.begin(began_at)
        frames = math.ceil(len(samples) / FRAME_SAMPLES)
        late_at = began_at + 2 * len(samples) / SEND_RATE_HZ + 5.0
        while len(self._sent_at) < frames:
            self._raise_if_over()
            if self._loop.time() > late_at:
                raise SoftphoneError(CUT_OFF, "the recording does not get out; this machine is too busy")
            await asyncio.sleep(_POLL_S)
        await self._wait_for_reply(turns_before, self._sent_at[frames - 1])
        assign_voice_to_voice(
            self.log.turns_since(turns_before),
            speech_ends=[self._left_at(end) for end in speech_ends_ms],
            labelled=labelled,
            onsets=self.recorder.onsets[onset_count:],
        )

    async def send(self, samples: Samples) -> float:
        """Send a recording (48 kHz) at once, whatever the server is doing; return when its first sample left, seconds.

        Raises SoftphoneError.
        """
        return await self._start_sending(samples)

    def left_at(self, position_ms: float) -> float:
        """Return when the sound at a position of the last recording left, seconds; slots that were missed count."""
        return self._left_at(position_ms)

    async def _start_sending(self, samples: Samples) -> float:
        """Put a recording at the head of what is sent; return when its first sample left, in seconds."""
        began: asyncio.Future[float] = self._loop.create_future()
        playout = self.connection.playout

        def begin(now: float) -> None:
            if not began.done():
                self._sent_at.clear()
                began.set_result(now)

        playout.on_first_pull = begin
        playout.clear_buffer(now=self._loop.time())
        playout.capture_frame(samples)
        try:
            async with asyncio.timeout(2.0):
                return await began
        except TimeoutError:
            raise SoftphoneError(CUT_OFF, "the line takes no sound") from None
        finally:
            playout.on_first_pull = None

    def _left_at(self, position_ms: float) -> float:
        """Return when the sound at a position of the recording left, seconds; slots that were missed count."""
        frame_ms = FRAME_SAMPLES * 1000 / SEND_RATE_HZ
        frame = min(int(position_ms / frame_ms), len(self._sent_at) - 1)
        return self._sent_at[frame] + (position_ms - frame * frame_ms) / 1000

    async def _wait_until_free(self) -> None:
        """Wait for the server to listen, and for a greeting to end."""
        deadline = self._loop.time() + self._options.reply_timeout_s
        quiet_at = self._loop.time()
        while self._loop.time() - quiet_at < _GREETING_S:
            self._raise_if_over()
            if not self.log.settled:
                quiet_at = self._loop.time()
            if self._loop.time() > deadline:
                raise SoftphoneError(NO_REPLY, f"the server never listened; it is {self.log.state}")
            await asyncio.sleep(_POLL_S)

    async def _wait_for_reply(self, turns_before: int, ends_at: float) -> None:
        deadline = ends_at + self._options.reply_timeout_s
        settled_at: float | None = None
        while True:
            now = self._loop.time()
            self._raise_if_over()
            quiet = self.log.settled and now - self.recorder.last_sound_at > _QUIET_S
            if not quiet:
                settled_at = None
            elif settled_at is None:
                settled_at = now
            answered = len(self.log.turns) > turns_before and self.log.turns[-1].reply_text
            long_enough = settled_at is not None and now - settled_at > _QUIET_S and now > ends_at + _NOTICE_S
            if answered and long_enough:
                return
            if now > deadline or (long_enough and now > ends_at + 6 * _NOTICE_S):
                raise SoftphoneError(NO_REPLY, f"no reply came; the server is {self.log.state}")
            await asyncio.sleep(_POLL_S)

    async def _feed(self) -> None:
        """Keep faint noise behind whatever is being sent, so that the line never falls silent."""
        while True:
            playout = self.connection.playout
            missing_ms = _AHEAD_MS - playout.queued_ms
            if missing_ms > 0:
                playout.capture_frame(self._noise.take(round(missing_ms * SEND_RATE_HZ / 1000)))
            await asyncio.sleep(_FEED_S)

    def _raise_if_over(self) -> None:
        if self.log.ended is not None:
            raise SoftphoneError(CUT_OFF, f"the server ended the call: {self.log.ended}")
        if self._lost:
            raise SoftphoneError(CUT_OFF if self.connected_ms else NO_MEDIA, f"the call was lost: {self._lost}")

    def _handle_message(self, text: str) -> None:
        if self.channel is not None and self.channel.handle_text(text):
            return
        message = decode(text)
        if message is not None:
            self.log.handle_message(message)
            if self.on_message is not None:
                self.on_message(message)

    def _handle_audio(self, frames: list[AudioFrame], now: float) -> None:
        for frame in frames:
            self.recorder.add(frame.samples, arrival=now if frame.arrival is None else frame.arrival)

    def _handle_sent(self, packet: OutboundPacket, now: float) -> None:
        if packet.is_speech:
            self._sent_at.append(now)

    def _handle_state(self, state: State, reason: str) -> None:
        if state == "connected" and not self._connected.is_set():
            if self._options.feed_noise:
                self._feeder = self._loop.create_task(self._feed())
            if self.channel is not None:
                self.channel.start()
            self._connected.set()
        elif state in {"failed", "closed"}:
            self._lost = reason or state
            self._connected.set()

    async def _close(self) -> None:
        if self.channel is not None:
            self.channel.close()
        tasks = [task for task in (self._feeder, self._channel_task) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._location and self.log.ended is None and not self._lost:
            # Where this fails the server still learns of it, by BYE.
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                async with self._http.delete(self._location, ssl=not self._options.insecure):
                    pass
        await self._http.close()
        await self.connection.close("the caller hung up")


def _why_unreachable(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "its certificate is signed by nobody known here; --insecure takes it"
    if isinstance(error, aiohttp.ClientConnectorError):
        return error.os_error.strerror or "it cannot be reached"
    return str(error) or "it does not answer"


async def _why_refused(response: aiohttp.ClientResponse) -> str:
    try:
        reason = str((await response.json(content_type=None))["error"])
    except (aiohttp.ClientError, ValueError, KeyError, TypeError):
        reason = response.reason or "no reason given"
    return f"the server refuses the call ({response.status}): {reason}"


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
