"""The two detectors behind the Vad Protocol."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from peer.engines.base import Vad
from peer.engines.vad_silero import SileroVad, find_silero_model
from peer.engines.vad_webrtc import WebRtcVad
from peer.errors import ModelError
from tests.speechlike import make_noise, make_voice


def answers(vad: Vad, samples: np.ndarray) -> list[float]:
    size = vad.frame_samples
    return [vad.probability(samples[at : at + size]) for at in range(0, len(samples) - size + 1, size)]


def test_silero_tells_voice_from_silence() -> None:
    vad = SileroVad()
    assert max(answers(vad, make_noise(1.0))[5:]) < 0.1
    voiced = answers(vad, make_voice(2.0))
    assert np.median(voiced) > 0.5
    assert max(answers(vad, make_noise(1.0))[5:]) < 0.1


def test_silero_gives_the_reference_answers() -> None:
    """The bound buffers must compute what plain calls of the same network compute, state and context included."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(find_silero_model()), providers=["CPUExecutionProvider"])
    samples = make_voice(1.0)
    hidden = cell = np.zeros((1, 1, 128), np.float32)
    past: np.ndarray = np.zeros(64, np.float32)
    expected = []
    for at in range(0, len(samples) - 511, 512):
        frame = samples[at : at + 512].astype(np.float32) / 32768
        given = {"input": np.concatenate([past, frame])[None], "h": hidden, "c": cell}
        probability, hidden, cell = session.run(None, given)
        past = frame[-64:]
        expected.append(float(probability[0]))
    assert answers(SileroVad(), samples) == pytest.approx(expected, abs=1e-5)


def test_reset_forgets() -> None:
    vad = SileroVad()
    first = answers(vad, make_voice(0.5))
    vad.reset()
    assert answers(vad, make_voice(0.5)) == pytest.approx(first, abs=1e-6)


def test_two_silero_streams_do_not_mix() -> None:
    alone = answers(SileroVad(), make_voice(0.5))
    one, other = SileroVad(), SileroVad()
    voice, noise = make_voice(0.5), make_noise(0.5)
    mixed = []
    for at in range(0, len(voice) - 511, 512):
        mixed.append(one.probability(voice[at : at + 512]))
        other.probability(noise[at : at + 512])
    assert mixed == pytest.approx(alone, abs=1e-6)


def test_missing_weights_are_a_model_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelError, match="faster-whisper"):
        find_silero_model()


def test_faster_whisper_is_not_imported() -> None:
    code = (
        "import sys; from peer.engines.vad_silero import SileroVad; SileroVad(); "
        "assert not {'faster_whisper', 'ctranslate2'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("frame_ms", [10, 20, 30])
def test_webrtc_tells_voice_from_zeros(frame_ms: int) -> None:
    vad = WebRtcVad(frame_ms=frame_ms)  # type: ignore[arg-type]
    assert vad.frame_samples == frame_ms * 16
    assert set(answers(vad, np.zeros(16_000, np.int16))) == {0.0}
    assert np.mean(answers(vad, make_voice(2.0))) > 0.9
    vad.reset()
    assert set(answers(vad, np.zeros(1_600, np.int16))) == {0.0}


def test_webrtc_refuses_a_frame_of_the_wrong_length() -> None:
    with pytest.raises(ValueError, match="320"):
        WebRtcVad().probability(np.zeros(100, np.int16))
