"""The server as a process, called by the softphone as a process: the way people use both."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from peer.logs import configure_logs
from peer.softphone_audio import SEND_RATE_HZ
from peer.softphone_call import CUT_OFF, REFUSED, CallOptions, SoftphoneCall, SoftphoneError
from signaling_server import main
from tests.loopback.local_server import ROOT, SCRIPTED, local_server, server_process, utterance
from tests.loopback.pairs import wait_for


async def _softphone(*arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "peer.softphone",
        *arguments,
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "in.wav"
    soundfile.write(path, utterance(1.0), SEND_RATE_HZ)
    return path


async def test_a_recording_is_spoken_answered_recorded_and_reported(recording: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.wav"
    async with server_process() as (url, _):
        code, text, err = await _softphone(
            url, "--play", str(recording), "--record", str(out), "--turns", "2", "--json"
        )
    assert code == 0, err
    report: dict[str, Any] = json.loads(text.splitlines()[-1])
    assert {"connected_ms", "turns", "rtt_ms", "lost", "concealed_pct"} <= report.keys()
    assert len(report["turns"]) == 2
    for turn in report["turns"]:
        assert {"user_text", "reply_text", "heard_text", "interrupted", "voice_to_voice_ms"} <= turn.keys()
        assert turn["reply_text"] == turn["heard_text"] != ""
        assert not turn["interrupted"]
        assert turn["voice_to_voice_ms"] == pytest.approx(turn["latency_ms"]["total"], abs=250)
    assert report["lost"] == 0
    # Fifteen words of a quarter second a turn, heard in full and in their place.
    samples, rate = soundfile.read(out, dtype="int16")
    loud = np.abs(samples.reshape(-1)[: len(samples) // 160 * 160].reshape(-1, 160)).max(axis=1) > 500
    first_word_s = float(np.flatnonzero(loud)[0]) * 160 / rate
    words = sum(len(turn["heard_text"].split()) for turn in report["turns"])
    assert loud.sum() * 160 / rate == pytest.approx(words * 0.25, rel=0.15)
    assert first_word_s > 1.3


async def test_ctrl_c_hangs_up_and_still_reports(tmp_path: Path) -> None:
    path = tmp_path / "in.wav"
    soundfile.write(path, utterance(30.0), SEND_RATE_HZ)
    async with local_server() as server:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "peer.softphone", server.url, "--play", str(path), "--json"),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        await wait_for(lambda: len(server.calls) == 1)
        await asyncio.sleep(2.0)
        process.send_signal(signal.SIGINT)
        out, err = await process.communicate()
        await wait_for(lambda: len(server.calls) == 0)
    assert process.returncode == 130, err
    assert err == b""
    assert json.loads(out.splitlines()[-1])["stopped"]


async def test_people_get_a_report_in_words(recording: Path) -> None:
    async with server_process() as (url, _):
        code, text, err = await _softphone(url, "--play", str(recording))
    assert code == 0, err
    assert "you:  I spoke for" in text
    assert "peer: You said" in text
    assert "answered after" in text


async def test_sigterm_ends_every_call_with_a_word_and_the_server_with_zero() -> None:
    async with server_process() as (url, process):
        async with SoftphoneCall(CallOptions(url=url)) as call:
            async with asyncio.timeout(10):
                while call.log.state != "listening":
                    await asyncio.sleep(0.02)
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(10):
                while call.is_up:
                    await asyncio.sleep(0.02)
            assert call.log.ended == "the server is shutting down"
        async with asyncio.timeout(10):
            assert await process.wait() == 0


async def test_a_server_that_dies_is_noticed_and_said_so() -> None:
    async with server_process() as (url, process), SoftphoneCall(CallOptions(url=url, lost_after_s=2.0)) as call:
        voice = utterance(1.0)
        playing = asyncio.create_task(call.play(voice, speech_ends_ms=[1300], labelled=False, first=True))
        await asyncio.sleep(1.0)
        process.kill()
        with pytest.raises(SoftphoneError, match="the call was lost: nothing heard") as lost:
            await playing
    assert lost.value.exit_code == CUT_OFF


async def test_a_token_is_asked_for_and_taken(recording: Path) -> None:
    async with local_server(access_token="secret") as server:
        code, _, err = await _softphone(server.url, "--play", str(recording))
        assert (code, "401" in err, "Bearer" in err) == (REFUSED, True, True)
        code, _, err = await _softphone(server.url, "--play", str(recording), "--access-token", "secret")
        assert code == 0, err


async def test_a_server_that_is_not_there_is_named() -> None:
    code, _, err = await _softphone("http://127.0.0.1:9", "--play", str(ROOT / "README.md"))
    assert code == 2
    assert "README.md: not a WAV or FLAC file" in err
    with pytest.raises(SoftphoneError, match=r"cannot call http://127.0.0.1:9: Connect call failed|refused"):
        async with SoftphoneCall(CallOptions(url="http://127.0.0.1:9")):
            pass


async def test_health_tells_of_calls_and_of_the_loop() -> None:
    async with server_process() as (url, _), SoftphoneCall(CallOptions(url=url)) as call:
        await asyncio.sleep(0.5)
        async with call._http.get(f"{url}/healthz") as response:
            health = await response.json()
    assert health["status"] == "alive"
    assert health["calls"] == 1
    assert health["loop_lag_p99_ms"] >= 0


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "signaling_server.py", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_port_in_use_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = _run("--port", port, *SCRIPTED)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"signaling_server.py: port {port} on 127.0.0.1 is taken: stop what uses it, or give another --port"
    ]


@pytest.mark.parametrize(
    ("option", "complaint"),
    [
        (("--tts", "piper:nobody"), "--tts piper:nobody: no such voice; there are: en_US-joe-medium"),
        (("--llm", "ct2:nobody"), "--llm ct2:nobody: no such model; there are: smollm2-135m-instruct"),
    ],
)
def test_a_model_that_cannot_be_had_is_one_line_and_status_1(option: tuple[str, str], complaint: str) -> None:
    done = _run("--port", "0", "--quic-port", "0", *SCRIPTED, *option)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert complaint in last
    assert "whisper" not in last
    assert "Traceback" not in done.stderr


def test_ctrl_c_while_python_still_imports_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "aiohttp.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    done = subprocess.run(
        [sys.executable, "signaling_server.py"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == -signal.SIGINT
    assert done.stderr == ""


async def test_what_is_no_http_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    configure_logs("info")
    logging.getLogger().addHandler(caplog.handler)
    async with local_server() as server:
        host, _, port = server.url.removeprefix("http://").partition(":")
        for words in (
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            b"GET / HTTP/1.1\r\nHost: a\r\nX\x00: 1\r\n\r\n",
        ):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(words)
            assert b"400" in await reader.read()
            writer.close()
    told = [record for record in caplog.records if record.name == "aiohttp.server"]
    assert [record.levelname for record in told] == ["INFO"]
    assert told[0].getMessage().startswith("not HTTP: ")
    assert told[0].exc_info is None


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--host", "0.0.0.0"], "--access-token TOKEN, or --open"),
        (["--config", "none.toml"], "none.toml"),
        (["--asr", "nobody"], "no such engine"),
        (["--host", "203.0.113.9", "--open"], "--host 203.0.113.9: this machine has no such address"),
        (["--host", "no such host", "--open"], "--host no such host: this machine has no such address"),
        (["--ice-server", "example.org"], "write it as stun:HOST:PORT"),
        (["--certificate", "none.pem", "--key", "none.pem"], "none.pem: no such file"),
    ],
)
def test_options_that_make_no_sense_are_one_line(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SCRIPTED, *arguments]) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert len(error.splitlines()) == 1


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("antiphon ")


async def test_another_host_gets_https_with_a_certificate_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    async with local_server(host="0.0.0.0", open=True) as server:
        assert server.url.startswith("https://0.0.0.0:")
        url = server.url.replace("0.0.0.0", "127.0.0.1")
        with pytest.raises(SoftphoneError, match="--insecure takes it"):
            async with SoftphoneCall(CallOptions(url=url)):
                pass
        async with SoftphoneCall(CallOptions(url=url, insecure=True)) as call:
            assert call.is_up
    kept = list(tmp_path.rglob("*.key"))
    assert len(kept) == 1
    assert kept[0].stat().st_mode & 0o077 == 0
