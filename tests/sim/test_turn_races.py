"""Callers who speak whenever they like, against engines that fail: no word is lost, no two voices, nobody is stuck."""

from __future__ import annotations

import asyncio
import itertools
import re
from dataclasses import dataclass
from typing import Final

import numpy as np
import pytest

from peer.conversation_parts import ConversationOptions
from peer.end_of_turn import EndOfTurnOptions
from peer.engines.base import ChatMessage, Samples
from peer.engines.scripted import ScriptedAsr, ScriptedLlm, ScriptedTts, Step
from peer.errors import EngineError
from peer.reply import ReplyOptions
from peer.turn import State
from tests.sim.line import Heard, Line, call
from transport.messages import CallError, ReplyDone, SpeechStarted, UserTranscript

_WORD_S: Final = 0.3
_BLOCK: Final = 80
_STEP_LEVEL: Final = 600
_QUIET: Final = 3
_BROKEN: Final = EngineError("it broke", retryable=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Utterance:
    """Words from `first` on, said from a time on, a word every 0.3 s."""

    start: float
    first: int
    words: int

    @property
    def end(self) -> float:
        return self.start + self.words * _WORD_S


class WordLine(Line):
    """A caller whose words can be told by their loudness: word n is a square wave of level 600 (n + 1)."""

    def __init__(self, utterances: list[Utterance]) -> None:
        super().__init__([(utterance.start, utterance.end) for utterance in utterances])
        self.utterances = utterances

    def capture(self, start: float) -> Samples:
        wave = np.tile(np.array([1, -1], np.int16), 160)
        for utterance in self.utterances:
            if utterance.start <= start < utterance.end - 1e-9:
                word = utterance.first + int((start - utterance.start) / _WORD_S + 1e-9)
                return np.asarray(wave * (_STEP_LEVEL * (word + 1)), np.int16)
        return np.asarray(wave * _QUIET, np.int16)


def hear_words(samples: Samples) -> list[int]:
    """Return the words of which a third and more is in the audio."""
    blocks = np.abs(samples[: len(samples) // _BLOCK * _BLOCK].astype(np.int32)).reshape(-1, _BLOCK)
    levels = np.median(blocks, axis=1).astype(int) // _STEP_LEVEL - 1
    runs = [(level, sum(1 for _ in run)) for level, run in itertools.groupby(levels.tolist())]
    return [level for level, length in runs if level >= 0 and length * _BLOCK >= _WORD_S / 3 * 16_000]


@dataclass(slots=True)
class Fault:
    """What fails, once: the request from which on it is due, and the time after which it is not."""

    kind: str
    at: int
    until: float
    _requests: int = 0

    def due(self, kind: str, times: int = 1) -> bool:
        """Return whether a request that may fail in this way does."""
        if kind != self.kind or asyncio.get_running_loop().time() > self.until:
            return False
        self._requests += 1
        return self.at < self._requests <= self.at + times


def ears(fault: Fault) -> ScriptedAsr:
    """Return a recogniser of the words, which may be late or fail twice."""

    def hear(samples: Samples) -> Step:
        text = " ".join(f"word{word}" for word in hear_words(samples))
        error = _BROKEN if fault.due("asr error", times=2) else None
        return Step(
            text=text and f"{text.capitalize()}.", delay_s=1.2 if fault.kind == "asr late" else 0.1, error=error
        )

    return ScriptedAsr(hear)


def mind(fault: Fault) -> ScriptedLlm:
    """Return a model that repeats the last word it was told, unless a fault is due."""

    def reply(messages: tuple[ChatMessage, ...]) -> Step:
        if fault.due("llm error", times=2):
            return Step(error=_BROKEN)
        if fault.due("llm timeout"):
            return Step(hang=True)
        if fault.due("llm empty"):
            return Step(text="")
        if fault.due("llm trickles"):
            return Step(text="well so this goes on and on", piece_delay_s=0.6)
        last = messages[-1].content.split()[-1] if messages and messages[-1].content else "nothing"
        text = f"You ended with {last} And that is all that there is to say about it, I should think."
        return Step(text=text, delay_s=1.5 if fault.kind == "llm slow" else 0.3, piece_delay_s=0.03)

    return ScriptedLlm(reply)


def voice(fault: Fault) -> ScriptedTts:
    """Return a voice that may fail."""
    return ScriptedTts(lambda _: Step(error=_BROKEN) if fault.due("tts error") else Step(delay_s=0.05))


FAULTS: Final = (
    "none",
    "asr late",
    "asr error",
    "llm slow",
    "llm error",
    "llm timeout",
    "llm empty",
    "llm trickles",
    "tts error",
)


def make_utterances(rng: np.random.Generator) -> list[Utterance]:
    """Return three utterances at any distance, and a last one long after them."""
    utterances: list[Utterance] = []
    at, word = 1.0, 0
    for number in range(4):
        words = int(rng.integers(2, 6))
        utterances.append(Utterance(start=round(at, 2), first=word, words=words))
        word += words
        at = utterances[-1].end + (float(rng.uniform(0.2, 4.0)) if number < 2 else 14.0)
    return utterances


def check(heard: Heard, utterances: list[Utterance], fault: str) -> None:
    """Check what must hold whatever is said and whatever fails."""
    assert heard.state is State.LISTENING
    said = [
        int(word) for role, text in heard.said() if role == "user" for word in re.findall(r"word(\d+)", text.lower())
    ]
    everything = list(range(utterances[-1].first + utterances[-1].words))
    if fault == "asr error":
        assert said == sorted(set(said))
        assert len(said) == len(everything) or [message.code for message in heard.of(CallError)] == ["asr_failed"]
    else:
        assert said == everything
    last = [word for word in everything if word >= utterances[-1].first]
    assert said[-len(last) :] == last
    assert heard.of(ReplyDone)[-1].status == "completed"
    assert f"word{last[-1]}" in heard.entries[-1].text
    turns = {message.turn for message in heard.of(SpeechStarted)}
    assert turns == {message.turn for message in heard.of(UserTranscript)}
    if fault not in {"tts error", "asr error"}:
        roles = [entry.role for entry in heard.entries]
        assert roles == ["user", "assistant"] * (len(roles) // 2)
    for utterance in utterances:
        over = [at for at in heard.sound_at if utterance.start + 0.2 < at < utterance.end]
        assert not over, f"sound over the caller at {over}"


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", FAULTS)
def test_whatever_is_said_at_any_time_is_heard_once_and_answered(kind: str, seed: int) -> None:
    run_race(kind, seed)


def run_race(kind: str, seed: int) -> None:
    """Hold one call from a seed and check it."""
    rng = np.random.default_rng([seed, *kind.encode()])
    utterances = make_utterances(rng)
    fault = Fault(kind=kind, at=int(rng.integers(0, 5)), until=utterances[-1].start)
    reply = ReplyOptions(apology="Sorry, that went wrong.", token_timeout_s=3.0)
    heard = call(
        line=WordLine(utterances),
        seconds=utterances[-1].end + 9.0,
        asr=ears(fault),
        llm=mind(fault),
        tts=voice(fault),
        options=ConversationOptions(reply=reply, follow_speech=bool(rng.integers(2))),
    )
    check(heard, utterances, kind)


def lone_words_misheard(rng: np.random.Generator) -> ScriptedAsr:
    """Return a recogniser that makes out no word by itself: at first a wrong one or none, then none."""
    seen: set[int] = set()

    def hear(samples: Samples) -> Step:
        words = hear_words(samples)
        text = " ".join(f"word{word}" for word in words).capitalize()
        if len(words) == 1 and words[0] > 1:
            text = "" if words[0] in seen else str(rng.choice(["", "Yes", "And", "Lock"]))
            seen.add(words[0])
        return Step(text=text and f"{text}.", delay_s=0.1)

    return ScriptedAsr(hear)


@pytest.mark.parametrize("seed", range(24))
def test_who_speaks_word_by_word_over_the_reply_loses_no_word_though_none_is_understood_alone(seed: int) -> None:
    rng = np.random.default_rng(seed)
    utterances = [Utterance(start=1.0, first=0, words=2)]
    at = 4.0
    for number in range(int(rng.integers(1, 4))):
        utterances.append(Utterance(start=round(at, 2), first=2 + number, words=1))
        at += _WORD_S + float(rng.uniform(0.3, 1.3))
    utterances.append(Utterance(start=round(at, 2), first=utterances[-1].first + 1, words=5))
    text = "So it is and so it goes on for as long as anybody cares to hear of it "
    heard = call(
        line=WordLine(utterances),
        seconds=at + 16.0,
        asr=lone_words_misheard(rng),
        llm=ScriptedLlm(lambda _: Step(text=text * 3, delay_s=0.3, piece_delay_s=0.03)),
        options=ConversationOptions(follow_speech=bool(rng.integers(2))),
    )
    said = " ".join(text.lower() for role, text in heard.said() if role == "user")
    assert re.findall(r"word(\d+)", said) == [str(word) for word in range(utterances[-1].first + 5)]


@pytest.mark.parametrize("begin", [3.0, 3.6])
@pytest.mark.parametrize("gap", [0.26, 0.3, 0.34, 0.38])
def test_a_second_word_does_not_make_the_first_forgotten_while_that_is_being_judged(begin: float, gap: float) -> None:
    second = round(begin + _WORD_S + gap, 2)
    utterances = [
        Utterance(start=1.0, first=0, words=2),
        Utterance(start=begin, first=2, words=1),
        Utterance(start=second, first=3, words=1),
        Utterance(start=round(second + 1.4, 2), first=4, words=5),
    ]

    def hear(samples: Samples) -> Step:
        return Step(text=" ".join(f"word{word}" for word in hear_words(samples)), delay_s=0.45)

    text = "So it is and so it goes on for as long as anybody cares to hear of it "
    heard = call(
        line=WordLine(utterances),
        seconds=24.0,
        asr=ScriptedAsr(hear),
        llm=ScriptedLlm(lambda _: Step(text=text * 2, delay_s=0.1, piece_delay_s=0.03)),
        options=ConversationOptions(follow_speech=False, end_of_turn=EndOfTurnOptions(open_ms=240.0)),
    )
    said = " ".join(text.lower() for role, text in heard.said() if role == "user")
    assert re.findall(r"word(\d+)", said) == [str(word) for word in range(9)]
