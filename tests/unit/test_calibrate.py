"""Calibration of the voice threshold."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
import soundfile

from peer.calibrate import best, judge, main, score
from tests.speechlike import make_noise, make_voice


class Ramp:
    """Says how loud a frame is, 0..1."""

    frame_samples = 512

    def probability(self, frame: np.ndarray) -> float:
        return float(np.abs(frame).max()) / 1000

    def reset(self) -> None:
        pass


def test_scores_against_hand_counts() -> None:
    result = score([0.9, 0.6, 0.4, 0.1], [True, False, True, False], 0.5)
    assert (result.precision, result.recall, result.f1) == (0.5, 0.5, 0.5)
    assert score([0.1], [True], 0.5).f1 == 0.0


def test_the_best_is_in_the_middle_of_its_equals() -> None:
    scores = [score([0.2, 0.8], [False, True], threshold) for threshold in (0.1, 0.3, 0.5, 0.7, 0.9)]
    assert best(scores).threshold == 0.5


def test_frames_across_an_edge_are_left_out() -> None:
    samples = np.concatenate([np.zeros(1000, np.int16), np.full(1048, 800, np.int16)])
    probabilities, truths = judge(Ramp(), samples, [[62.5, 128.0]])
    assert truths == [False, True, True]
    assert probabilities == [0.0, 0.8, 0.8]


def write(folder: Path, label: object) -> Path:
    sound = np.concatenate([make_noise(1.0), make_voice(2.0), make_noise(1.0, seed=2)])
    soundfile.write(folder / "a.wav", sound, 16_000)
    (folder / "a.json").write_text(json.dumps(label))
    return folder / "a.wav"


def test_the_command_finds_a_threshold_and_draws_the_curve(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, {"speech_ms": [[1000, 3000]]})
    assert main([str(path), "--plot", str(tmp_path / "curve.svg"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert report["f1"] >= 0.95
    assert report["f1"] >= report["default_f1"]
    assert 100 < report["frames"] < 126
    assert len(ET.parse(tmp_path / "curve.svg").getroot()) > 5


@pytest.mark.parametrize("label", [{}, {"speech_ms": 3}, {"speech_ms": [[1]]}, {"speech_ms": []}])
def test_a_bad_label_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str], label: object) -> None:
    assert main([str(write(tmp_path, label))]) == 2
    assert "speech" in capsys.readouterr().err


def test_a_missing_label_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, {})
    path.with_suffix(".json").unlink()
    assert main([str(path)]) == 2
    assert "a.json" in capsys.readouterr().err
