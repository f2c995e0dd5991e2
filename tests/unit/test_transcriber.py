"""Streaming transcription, with an engine that knows which words stand at which position."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

from peer.agreement import Partial
from peer.audio_history import AudioHistory
from peer.engines.base import AsrOptions, Samples, Transcript, Word
from peer.errors import EngineError
from peer.transcriber import TranscriberOptions, TurnTranscriber
from tests.sim.virtual_time import run_virtual

MS = 16
WORD_MS = 300


@dataclass
class WordEngine:
    """Hears word n wherever the samples say n+1; takes `cost_s` a request; a torn word is heard wrongly."""

    cost_s: float = 0.08
    requests: list[tuple[int, AsrOptions]] = field(default_factory=list)
    fail: bool = False

    async def transcribe(self, samples: Samples, *, options: AsrOptions = AsrOptions()) -> Transcript:  # noqa: B008
        self.requests.append((len(samples), options))
        await asyncio.sleep(self.cost_s)
        if self.fail:
            raise EngineError("broken")
        numbers, counts = np.unique(samples[samples > 0], return_counts=True)
        words = tuple(
            Word(
                text=f"w{number - 1}" if count >= WORD_MS * MS * 0.6 else "torn",
                start_ms=float(np.argmax(samples == number)) / MS,
                end_ms=float(np.argmax(samples == number) + count) / MS,
            )
            for number, count in zip(numbers.tolist(), counts.tolist(), strict=True)
        )
        return Transcript(text=" ".join(word.text for word in words), words=words, language="en")


class Line:
    """Feeds words and pauses into a history at the pace of speech."""

    def __init__(
        self,
        engine: WordEngine,
        options: TranscriberOptions | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.history = AudioHistory()
        self.partials: list[tuple[float, Partial]] = []
        self.words = 0
        self.transcriber = TurnTranscriber(
            engine=engine,
            history=self.history,
            start_samples=0,
            options=options,
            on_partial=self._take,
            clock=clock,
        )

    def _take(self, partial: Partial) -> None:
        self.partials.append((asyncio.get_running_loop().time(), partial))

    async def feed(self, value: int, ms: int) -> None:
        for _ in range(ms // 20):
            await asyncio.sleep(0.02)
            samples = np.full(20 * MS, value, np.int16)
            self.history.append(samples, position_samples=self.history.end_samples)
            self.transcriber.handle_audio()

    async def say(self, count: int) -> None:
        for _ in range(count):
            self.words += 1
            await self.feed(self.words, WORD_MS)

    async def talk(self, count: int) -> int:
        """Say words with the transcriber at work, and return where the voice ended."""
        following = asyncio.create_task(self.transcriber.follow())
        await self.say(count)
        end = self.history.end_samples
        await self.feed(0, 100)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        return end


def said(first: int, last: int) -> str:
    return " ".join(f"w{number}" for number in range(first, last))


def test_partials_grow_and_their_stable_part_never_changes() -> None:
    line_partials = []

    async def run() -> None:
        line = Line(WordEngine())
        await line.talk(12)
        line_partials.extend(line.partials)

    run_virtual(run())
    stable = [partial.stable_text for _, partial in line_partials]
    assert len(line_partials) >= 12
    assert all(said(0, 12).startswith(text) for text in stable), "a torn word never became stable"
    assert len(stable[-1].split()) >= 9


def test_finish_needs_no_more_work_where_a_hypothesis_covers_the_voice() -> None:
    async def run() -> None:
        engine = WordEngine()
        line = Line(engine)
        end = await line.talk(6)
        line.transcriber.handle_audio()
        first = await line.transcriber.finish(end)
        asked = len(engine.requests)
        again = await line.transcriber.finish(end)
        assert first.text == again.text == said(0, 6)
        assert len(engine.requests) == asked

    run_virtual(run())


def test_finish_waits_for_the_hypothesis_at_work_rather_than_doubling_it() -> None:
    async def run() -> None:
        engine = WordEngine(cost_s=0.15)
        line = Line(engine)
        following = asyncio.create_task(line.transcriber.follow())
        await line.say(4)
        end = line.history.end_samples
        await line.feed(0, 60)
        transcript = await line.transcriber.finish(end)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        assert transcript.text == said(0, 4)

    run_virtual(run())


def test_a_turn_that_goes_on_after_a_pause_is_one_transcript() -> None:
    async def run() -> None:
        line = Line(WordEngine())
        await line.transcriber.finish(await line.talk(4))
        await line.feed(0, 300)
        transcript = await line.transcriber.finish(await line.talk(4))
        assert transcript.text == said(0, 8)

    run_virtual(run())


def test_windows_are_short_with_silence_behind_the_voice() -> None:
    async def run() -> None:
        engine = WordEngine()
        line = Line(engine)
        await line.talk(5)
        for samples, options in engine.requests:
            assert options.window_ms == samples // MS + 4000

    run_virtual(run())


def test_the_models_own_window_where_short_ones_are_not_wanted() -> None:
    async def run() -> None:
        engine = WordEngine()
        line = Line(engine, TranscriberOptions(short_windows=False, hotwords="Antiphon"))
        await line.talk(3)
        assert {options.window_ms for _, options in engine.requests} == {None}
        assert {options.hotwords for _, options in engine.requests} == {"Antiphon"}

    run_virtual(run())


def test_a_long_turn_is_settled_at_its_pauses() -> None:
    async def run() -> None:
        engine = WordEngine()
        line = Line(engine)
        for _ in range(10):
            transcript = await line.transcriber.finish(await line.talk(12))
            await line.feed(0, 200)
        assert transcript.text == said(0, 120)
        assert max(samples for samples, _ in engine.requests) <= 16_000 * MS, (
            "36 s of speech, never more than 16 at once"
        )
        assert not any(options.word_times for _, options in engine.requests)
        stable = [partial.stable_text for _, partial in line.partials]
        assert all(text.startswith(before) for before, text in itertools.pairwise(stable))

    run_virtual(run())


def test_a_long_turn_without_a_pause_is_cut_at_a_word() -> None:
    async def run() -> None:
        engine = WordEngine()
        line = Line(engine)
        transcript = await line.transcriber.finish(await line.talk(150))
        assert transcript.text == said(0, 150)
        assert max(samples for samples, _ in engine.requests) <= 26_000 * MS

    run_virtual(run())


def test_a_language_heard_twice_is_kept_for_the_turn() -> None:
    async def run() -> None:
        engine = WordEngine()
        line = Line(engine)
        await line.talk(6)
        assert [options.language for _, options in engine.requests][:4] == [None, None, "en", "en"]

    run_virtual(run())


def test_an_engine_failure_reaches_the_caller_and_the_next_try_works() -> None:
    async def run() -> None:
        engine = WordEngine(fail=True)
        line = Line(engine)
        await line.say(3)
        end = line.history.end_samples
        with pytest.raises(EngineError):
            await line.transcriber.follow()
        with pytest.raises(EngineError):
            await line.transcriber.finish(end)
        engine.fail = False
        assert (await line.transcriber.finish(end)).text == said(0, 3)

    run_virtual(run())


def test_a_slow_engine_is_given_as_much_rest_as_work() -> None:
    async def run() -> None:
        engine = WordEngine(cost_s=0.5)
        line = Line(engine, clock=asyncio.get_running_loop().time)
        await line.talk(20)
        assert len(engine.requests) <= 7, "6 s of speech, half a second each, and as much between them"

    run_virtual(run())


def test_a_hypothesis_begun_as_the_sound_fades_saves_the_one_at_the_pause() -> None:
    async def run() -> None:
        engine = WordEngine()
        line = Line(engine)
        following = asyncio.create_task(line.transcriber.follow())
        await line.say(4)
        end = line.history.end_samples
        await line.feed(0, 40)
        line.transcriber.handle_audio(at_pause=True)
        await line.feed(0, 100)
        asked = len(engine.requests)
        assert engine.requests[-1][0] >= end, "the last hypothesis covers the voice"
        assert (await line.transcriber.finish(end)).text == said(0, 4)
        assert len(engine.requests) == asked
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    run_virtual(run())
