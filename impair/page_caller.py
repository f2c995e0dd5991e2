"""Chromium as the caller: a target's own page, driven in a browser through the relay, with NetEQ for ears."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from typing import Any, Self

import numpy as np

from impair.caller import CallRecord, Clip, Said
from impair.chromium import DevTools, chromium_page
from impair.errors import ImpairError, TargetError
from impair.hearing import RATE_HZ, Heard
from impair.measures import audible_spans
from impair.page_script import PAGE_SCRIPT
from jitter.stats import ReaderStats
from transport.messages import decode

_CONNECT_TIMEOUT_S = 30.0
_POLL_S = 0.05
_CLICK = """
async (selector) => {
  const pause = (ms) => new Promise((done) => setTimeout(done, ms));
  const find = () => [...document.querySelectorAll(selector)].find((one) => !one.disabled && one.offsetParent !== null);
  for (let n = 0; n < 150 && (document.readyState !== 'complete' || !find()); n++) await pause(100);
  for (let n = 0; n < 8; n++) {  // a button may be there before the script behind it
    const button = find();
    if (!button) break;
    const at = performance.now();
    button.click();
    for (let m = 0; m < 20; m++) {
      if (window.impair.peers.length) return at;
      await pause(100);
    }
  }
  return null;
}
"""


class PageCaller:
    """One call by a page, as an async context manager; the same manners as `impair.caller.Caller`.

    `selector` finds the button that begins the call; the first enabled, visible match is clicked.
    """

    def __init__(self, url: str, *, selector: str = "button") -> None:
        self.record = CallRecord()
        self._url = url
        self._selector = selector
        self._loop = asyncio.get_running_loop()
        self._stack = contextlib.AsyncExitStack()
        self._page: DevTools | None = None
        self._offset_s = 0.0
        """Loop time minus page time."""
        self._stats: dict[str, Any] = {}
        self._counted: dict[str, Any] = {}
        self._recorded: str | None = None
        self._began_ms: float | None = None
        self._seen_messages = 0

    async def __aenter__(self) -> Self:
        """Open the page and call; raises TargetError where no call comes about."""
        try:
            await self._dial()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Take the recording home and close the browser."""
        try:
            with contextlib.suppress(ImpairError, TimeoutError):
                await self._refresh()
                self._recorded = await self._evaluate("() => window.impair.recorded()")
                self._began_ms = await self._evaluate("() => window.impair.began")
                await self._evaluate("() => window.impair.peers.forEach((peer) => peer.close())")
        finally:
            await self._stack.aclose()

    async def _dial(self) -> None:
        self._page = await self._stack.enter_async_context(chromium_page())
        await self._page.open(self._url, before=PAGE_SCRIPT)
        before = self._loop.time()
        page_ms = float(await self._evaluate("() => performance.now()"))
        self._offset_s = (before + self._loop.time()) / 2 - page_ms / 1000
        clicked = await self._evaluate(_CLICK, self._selector)
        if clicked is None:
            raise TargetError(f"no button that {self._selector!r} finds begins a call on the page")
        self.record.began_at = self._to_loop(clicked)
        deadline = self._loop.time() + _CONNECT_TIMEOUT_S
        while self._loop.time() < deadline:
            connected = await self._evaluate("() => window.impair.connectedAt")
            if connected is not None:
                self.record.connected_at = self._to_loop(connected)
                return
            await asyncio.sleep(_POLL_S)
        raise TargetError(f"the page's call did not connect within {_CONNECT_TIMEOUT_S:g} s")

    def _to_loop(self, page_ms: float) -> float:
        return page_ms / 1000 + self._offset_s

    async def _evaluate(self, function: str, *arguments: Any) -> Any:
        assert self._page is not None
        return await self._page.evaluate(function, *arguments)

    def check(self) -> None:
        """Raise TargetError where the call is lost."""
        if self.record.lost is not None:
            raise TargetError(f"the call was lost: {self.record.lost}")

    async def say(self, clip: Clip) -> Said:
        """Speak a clip to its end."""
        data = base64.b64encode(clip.samples.astype("<i2").tobytes()).decode()
        began_at = self._to_loop(float(await self._evaluate("(data) => window.impair.say(data)", data)))
        said = Said(clip=clip, began_at=began_at, speech_ended_at=began_at + clip.speech_end_s)
        self.record.said.append(said)
        await asyncio.sleep(max(0.0, said.speech_ended_at - self._loop.time()))
        return said

    async def wait_for_sound(self, *, after: float, timeout_s: float) -> float | None:
        """When sound was first heard after this moment; None where none came in time."""
        deadline = self._loop.time() + timeout_s
        while self._loop.time() < deadline:
            audible, onset = await self._levels()
            if audible > after:
                return max(onset, after)
            await asyncio.sleep(_POLL_S)
        return None

    async def wait_for_quiet(self, *, quiet_s: float, timeout_s: float) -> bool:
        """Whether the line fell quiet for so long in time."""
        begun = self._loop.time()
        while self._loop.time() < begun + timeout_s:
            audible, _ = await self._levels()
            if self._loop.time() - max(audible, begun) > quiet_s:
                return True
            await asyncio.sleep(_POLL_S)
        return False

    async def _levels(self) -> tuple[float, float]:
        await self._refresh()
        self.check()
        audible, onset = await self._evaluate("() => [window.impair.audibleAt ?? null, window.impair.onsetAt ?? null]")
        return tuple(-np.inf if at is None else self._to_loop(at) for at in (audible, onset))  # type: ignore[return-value]

    async def _refresh(self) -> None:
        """Fetch new messages and the call's state."""
        got = await self._evaluate("(from) => window.impair.messages.slice(from)", self._seen_messages)
        self._seen_messages += len(got)
        for at_ms, text in got:
            message = decode(text)
            if message is not None:
                self.record.messages.append((self._to_loop(at_ms), message))
        stats = await self._evaluate("() => window.impair.stats()")
        if stats.get("rtt") is not None:
            self.record.rtt_ms = 1000 * float(stats["rtt"])
        if stats.get("inbound"):
            self._stats = stats["inbound"]
        if stats.get("state") in {"failed", "closed"} or not stats:
            self.record.lost = f"the page's connection is {stats.get('state', 'gone')}"

    async def words(self, selector: str) -> str:
        """What the page shows there, on one line; empty where it shows nothing."""
        found = await self._evaluate("(one) => document.querySelector(one)?.innerText ?? ''", selector)
        return " ".join(str(found).split())

    async def before_outage(self) -> None:
        """Keep the receiver's counters as they stand: an outage is counted apart."""
        await self._refresh()
        self._counted = dict(self._stats)

    async def wait_for_media(self, *, after: float, timeout_s: float) -> None:
        """Note when packets are received again after an outage's end, to 50 ms."""
        received = None
        while self._loop.time() < after + timeout_s:
            stats = await self._evaluate("() => window.impair.stats()")
            packets = (stats.get("inbound") or {}).get("packetsReceived")
            now = self._loop.time()
            if now >= after and received is not None and packets is not None and packets > received:
                self.record.recovered_at = now
                return
            if packets is not None:
                received = packets
            await asyncio.sleep(_POLL_S)

    def heard(self, *, until: float, counted_until: float) -> Heard | None:
        """What the page's remote track sounded like, with NetEQ's counters; None where there was none."""
        del until, counted_until
        if self._recorded is None or self._began_ms is None:
            return None
        samples = np.frombuffer(base64.b64decode(self._recorded), "<i2").astype(np.int16)
        if not len(samples):
            return None
        began_at = self._to_loop(self._began_ms)
        counted = self._counted or self._stats
        stats = ReaderStats(
            total_samples_received=int(counted.get("totalSamplesReceived", 0)),
            concealed_samples=int(counted.get("concealedSamples", 0)) - int(counted.get("silentConcealedSamples", 0)),
            jitter_buffer_delay=float(counted.get("jitterBufferDelay", 0)),
            jitter_buffer_emitted_count=int(counted.get("jitterBufferEmittedCount", 0)),
        )
        onsets = [began_at + begin for begin, _ in audible_spans(samples, RATE_HZ)]
        return Heard(samples=samples, began_at=began_at, onsets=onsets, stats=stats)
