"""A call that is recorded: both sides in the file, each at its time, and the caller is told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from peer.engines.scripted import ScriptedTts
from peer.softphone_call import CallOptions, SoftphoneCall
from signaling_server import main
from tests.loopback.local_server import SCRIPTED, local_server, utterance


async def test_a_recorded_call_has_both_sides_in_their_time(tmp_path: Path) -> None:
    folder = tmp_path / "calls"
    voice = ScriptedTts(word_s=0.2, record=False)
    async with (
        local_server(tts=voice, record=str(folder)) as server,
        SoftphoneCall(CallOptions(url=server.url)) as call,
    ):
        await call.play(utterance(1.0), speech_ends_ms=[1300], labelled=False, first=True)
    assert call.log.recorded
    (turn,) = call.log.turns
    (path,) = folder.iterdir()
    samples, rate = soundfile.read(path, dtype="int16")
    assert (rate, samples.shape[1]) == (16_000, 2)
    loud = [np.flatnonzero(np.abs(samples[:, side].astype(int)) > 800) / rate for side in (0, 1)]
    heard_from, heard_to = loud[0][[0, -1]]
    said_from, said_to = loud[1][[0, -1]]
    assert heard_to - heard_from == pytest.approx(1.0, abs=0.15)
    assert said_to - said_from == pytest.approx(len(turn.heard_text.split()) * 0.2, abs=0.1)
    # The reply begins as long after the voice as the server itself has measured; the scripted voice fades at its end.
    assert (said_from - heard_to) * 1000 == pytest.approx(turn.latency_ms["total"], abs=200)
    assert path.stat().st_mode & 0o077 == 0


def test_a_folder_that_cannot_be_had_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    arguments = [*SCRIPTED, "--port", "0", "--quic-port", "0", "--record", str(tmp_path / "file" / "calls")]
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert f"--record {tmp_path / 'file' / 'calls'}" in error
    assert len(error.splitlines()) == 1
