"""Silero VAD: a small recurrent network that judges 32 ms at a time (Silero Team, v6, MIT; 16 kHz branch).

The weights are those that faster-whisper ships. They are found beside that package without importing it, because an
import costs the media process CTranslate2's start-up time and memory. One thread and bound buffers keep a judgement
near 0.1 ms and free of allocation.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime

from peer.engines.base import Samples
from peer.errors import ModelError

FRAME_SAMPLES: Final = 512
_CONTEXT_SAMPLES: Final = 64
"""The network looks this far back into the frame before."""
_STATE_SHAPE: Final = (1, 1, 128)


def find_silero_model() -> Path:
    """Return the path of Silero's ONNX file inside faster-whisper's package; raises ModelError where there is none."""
    spec = importlib.util.find_spec("faster_whisper")
    folders = spec.submodule_search_locations if spec is not None else None
    for folder in folders or ():
        for path in sorted(Path(folder, "assets").glob("silero_vad*.onnx"), reverse=True):
            return path
    raise ModelError("Silero's VAD weights are missing: install faster-whisper, which carries them")


class SileroVad:
    """`Vad` by Silero's network; one instance per stream of audio, since it carries state from frame to frame."""

    def __init__(self, model_path: Path | None = None) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.enable_cpu_mem_arena = False
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        path = model_path or find_silero_model()
        self._session: Any = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._input = np.zeros((1, _CONTEXT_SAMPLES + FRAME_SAMPLES), np.float32)
        self._probability = np.zeros(1, np.float32)
        self._states = [(np.zeros(_STATE_SHAPE, np.float32), np.zeros(_STATE_SHAPE, np.float32)) for _ in range(2)]
        # The network may not read and write one buffer, so two pairs of states take turns.
        self._bindings = [self._bind(read=0, write=1), self._bind(read=1, write=0)]
        self._turn = 0

    @property
    def frame_samples(self) -> int:
        """512 samples, 32 ms."""
        return FRAME_SAMPLES

    def probability(self, frame: Samples) -> float:
        """Return 0..1 that `frame` (int16, exactly 512 samples at 16 kHz) holds voice, given the frames before it."""
        buffer = self._input[0]
        buffer[:_CONTEXT_SAMPLES] = buffer[FRAME_SAMPLES:]
        np.multiply(frame, np.float32(1 / 32768), out=buffer[_CONTEXT_SAMPLES:], casting="unsafe")
        self._session.run_with_iobinding(self._bindings[self._turn])
        self._turn ^= 1
        return float(self._probability[0])

    def reset(self) -> None:
        """Forget all frames before, as between calls."""
        self._input.fill(0)
        self._turn = 0
        for pair in self._states:
            for state in pair:
                state.fill(0)

    def _bind(self, *, read: int, write: int) -> Any:
        binding = self._session.io_binding()
        (h_in, c_in), (h_out, c_out) = self._states[read], self._states[write]
        inputs: tuple[tuple[str, np.ndarray], ...] = (("input", self._input), ("h", h_in), ("c", c_in))
        outputs: tuple[tuple[str, np.ndarray], ...] = (
            ("speech_probs", self._probability),
            ("hn", h_out),
            ("cn", c_out),
        )
        for name, array in inputs:
            binding.bind_input(name, "cpu", 0, np.float32, array.shape, array.ctypes.data)
        for name, array in outputs:
            binding.bind_output(name, "cpu", 0, np.float32, array.shape, array.ctypes.data)
        return binding
