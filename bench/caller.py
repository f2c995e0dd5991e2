"""What the benchmarks' callers say: sentences by Piper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import soxr

from peer.engines.base import Samples
from peer.models import ModelStore
from peer.softphone_audio import SEND_RATE_HZ, FaintNoise, speech_end_ms

PLAIN = (
    "What is the capital of France?",
    "Can you tell me a short story about a dog?",
    "How many days are there in a week?",
    "Please tell me something about the moon.",
    "What should I cook for dinner tonight?",
    "Who wrote the play Romeo and Juliet?",
    "Do you know a good book about history?",
    "I would like to learn how to swim.",
    "Which animal is the biggest on earth?",
    "What can you do for me today?",
    "Tell me why the sky is blue.",
    "How do I get to the train station?",
    "What is the best time to visit Italy?",
    "Could you help me with my homework?",
)
"""Whole sentences without a pause inside."""
_VOICE = "piper-en_US-joe-medium"
_SILENCE_S = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Utterance:
    """One thing to say, and where in it the speech ends."""

    name: str
    samples: Samples
    """int16 at 48 kHz."""
    speech_end_ms: float


def synthetic(sentences: Sequence[str]) -> list[Utterance]:
    """Return the sentences in Piper's voice, with a little quiet before and after each."""
    from piper import PiperVoice

    voice = PiperVoice.load(next(ModelStore().path(_VOICE).glob("*.onnx")))
    rate = voice.config.sample_rate
    noise = FaintNoise(seed=7)
    utterances = []
    for sentence in sentences:
        speech = np.concatenate([chunk.audio_int16_array for chunk in voice.synthesize(sentence)])
        samples = np.asarray(soxr.resample(speech, rate, SEND_RATE_HZ), np.int16)
        quiet = round(_SILENCE_S * SEND_RATE_HZ)
        samples = np.concatenate([noise.take(quiet), samples, noise.take(quiet)])
        end_ms = speech_end_ms(samples, SEND_RATE_HZ)
        utterances.append(Utterance(name=sentence, samples=samples, speech_end_ms=end_ms))
    return utterances
