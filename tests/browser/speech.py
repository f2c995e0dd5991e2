"""Speech for the browsers' microphones, and ears for what they received: the real voice and the real recogniser."""

from __future__ import annotations

import io
import wave
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np
import soundfile
import soxr
from faster_whisper import WhisperModel
from numpy.typing import NDArray
from piper import PiperVoice

from peer.models import ModelStore

LEAD_S = 3.0
"""Silence before the speech, in which the call connects."""
RECORDINGS = Path(__file__).parents[3] / "shared" / "speech"
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Speech:
    """A file to play as the microphone: silence, then `text` spoken until `ends_s`, then silence."""

    path: Path
    text: str
    ends_s: float


def synthesize(text: str, folder: Path) -> Speech:
    """Speak `text` with Piper."""
    [model] = ModelStore().path("piper-en_US-joe-medium").glob("*.onnx")
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        PiperVoice.load(model).synthesize_wav(text, file)
    buffer.seek(0)
    samples, rate_hz = soundfile.read(buffer, dtype="float32")
    return _write(folder / "microphone.wav", text, samples, rate_hz)


def recording(name: str, text: str, folder: Path) -> Speech | None:
    """Return a recording of a person, or None where it is not at hand."""
    path = RECORDINGS / name
    if not path.exists():
        return None
    samples, rate_hz = soundfile.read(path, dtype="float32", always_2d=True)
    return _write(folder / "microphone.wav", text, samples.mean(axis=1), rate_hz)


def transcribe(samples: Floats) -> str:
    """Return what is said in `samples` (16 kHz)."""
    model = WhisperModel(str(ModelStore().path("whisper-tiny.en")), device="cpu", compute_type="int8", cpu_threads=2)
    segments, _ = model.transcribe(samples, language="en", beam_size=5, condition_on_previous_text=False)
    return " ".join(segment.text.strip() for segment in segments)


def decode(container: bytes) -> Floats:
    """Return the sound of a browser's recording (WebM or Ogg), mono, 16 kHz."""
    resampler = av.AudioResampler(format="flt", layout="mono", rate=16_000)
    with av.open(io.BytesIO(container), "r") as file:
        frames = [resampled for frame in file.decode(audio=0) for resampled in resampler.resample(frame)]
    return np.concatenate([frame.to_ndarray().reshape(-1) for frame in frames])


def _write(path: Path, text: str, samples: Floats, rate_hz: int) -> Speech:
    """Write `samples` at 48 kHz, loud, between the lead and a second of silence."""
    loud = soxr.resample(samples / max(1e-6, float(np.abs(samples).max())) * 0.5, rate_hz, 48_000)
    lead = np.zeros(round(LEAD_S * 48_000), np.float32)
    soundfile.write(path, np.concatenate([lead, loud, np.zeros(48_000, np.float32)]), 48_000, subtype="PCM_16")
    return Speech(path=path, text=text, ends_s=LEAD_S + len(loud) / 48_000)
