"""The server's small parts: logs, progress, certificates, stages of an answer."""

from __future__ import annotations

import datetime as dt
import io
import logging
import stat
from pathlib import Path

import pytest
from cryptography import x509

from peer.config import ServerConfig, make_config
from peer.errors import ConfigError
from peer.idle import IdleOptions
from peer.latency import ReplyClock
from peer.logs import LogfmtFormatter
from peer.progress import ProgressPrinter
from peer.tls import generated_certificate, load_context
from signaling_server import endpoint_options, session_options, transport_config

_NOW = dt.datetime(2026, 5, 1, tzinfo=dt.UTC)


def test_a_log_record_is_one_line_with_its_extras_quoted_where_needed() -> None:
    record = logging.makeLogRecord({"name": "peer", "levelname": "INFO", "msg": "call %s", "args": ("over",)})
    record.call, record.reason, record.stages = "ab1", "hung up", {"asr": 1.5}
    line = LogfmtFormatter().format(record)
    assert line.endswith('info peer: call over call=ab1 reason="hung up" stages="{\\"asr\\": 1.5}"')
    assert "\n" not in line


def test_a_value_cannot_forge_a_second_line() -> None:
    record = logging.makeLogRecord({"msg": "x"})
    record.reason = "a\n2026 error peer: forged"
    assert "\n" not in LogfmtFormatter().format(record)


def test_progress_in_a_log_is_a_line_for_each_quarter() -> None:
    stream = io.StringIO()
    progress = ProgressPrinter(stream)
    for percent in range(101):
        progress("asr", percent / 100, "downloading")
    progress("asr", None, "loading")
    progress.close()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 6
    assert lines[0].startswith("asr: downloading")
    assert lines[-1] == "asr: loading"


def test_a_certificate_is_made_once_names_its_host_and_is_renewed_before_it_ends(tmp_path: Path) -> None:
    first, key = generated_certificate("192.0.2.7", public_address="", now=_NOW, folder=tmp_path)
    made = x509.load_pem_x509_certificate(first.read_bytes())
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "192.0.2.7" in [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    assert "localhost" in names.get_values_for_type(x509.DNSName)
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    load_context(first, key)
    generated_certificate("192.0.2.7", public_address="", now=_NOW + dt.timedelta(days=300), folder=tmp_path)
    assert x509.load_pem_x509_certificate(first.read_bytes()) == made
    generated_certificate("192.0.2.7", public_address="", now=_NOW + dt.timedelta(days=340), folder=tmp_path)
    assert x509.load_pem_x509_certificate(first.read_bytes()) != made


def test_files_that_are_no_certificate_are_named(tmp_path: Path) -> None:
    path = tmp_path / "no.pem"
    path.write_text("nothing")
    with pytest.raises(ConfigError, match=r"no\.pem"):
        load_context(path, path)


def test_the_stages_of_an_answer_add_up_to_what_was_passed() -> None:
    clock = ReplyClock(
        started_at=10.2, voice_ended_at=10.0, turn_ended_at=10.5, asr_started_at=10.1, transcribed_at=10.2
    )
    for stage, at in (("first_token_at", 10.3), ("first_token_at", 11.0), ("first_sentence_at", 10.4)):
        clock.note_first(stage, at)
    clock.first_audio_at, clock.released_at, clock.first_sent_at = 10.45, 10.5, 10.52
    assert clock.stages_ms() == {
        "begun": 200.0,
        "endpointing": 500.0,
        "asr": 100.0,
        "llm_first_token": 100.0,
        "first_sentence": 100.0,
        "tts": 50.0,
        "send": 20.0,
        "total": 520.0,
    }
    assert ReplyClock(started_at=0.0).stages_ms() == {}


@pytest.mark.parametrize("url", ["stun:h:abc", "turn:user:secret@h:abc", "http://h", "stun:"])
def test_a_bad_ice_server_ends_the_start_and_not_the_calls(url: str) -> None:
    with pytest.raises(ConfigError, match="--ice-server"):
        transport_config(ServerConfig(ice_server=(url,)))


def test_what_is_configured_reaches_the_conversation() -> None:
    config = make_config(
        {
            "hotwords": " Antiphon, Opus ",
            "speed": 1.25,
            "volume": 0.5,
            "system_prompt": "You are a parrot.",
            "greeting": "Hello.",
            "check_in_after_s": 20.0,
            "check_in": "Anybody?",
            "idle_hang_up_s": 40.0,
            "farewell": "Bye.",
            "vad_threshold": 0.3,
            "record_max_s": 60.0,
            "language": "zh",
            "asr": "whisper:base",
        }
    )
    options = session_options(config)
    talk = options.conversation
    assert (talk.hotwords, talk.system_prompt, talk.greeting) == ("Antiphon, Opus", "You are a parrot.", "Hello.")
    assert (talk.reply.tts.speed, talk.reply.tts.volume) == (1.25, 0.5)
    assert (talk.language, talk.reply.language) == ("zh", "zh")
    assert talk.idle == IdleOptions(check_in_after_s=20.0, check_in="Anybody?", hang_up_after_s=40.0, farewell="Bye.")
    assert talk.prompt_tokens == 160
    assert talk.reply.repetition_penalty > 1
    assert options.record_max_s == 60.0
    assert (endpoint_options(config).on_probability, endpoint_options(config).off_probability) == (0.3, 0.15)
    large = session_options(make_config({"llm": "openai:m", "hotwords": " "})).conversation
    assert (large.hotwords, large.prompt_tokens, large.reply.repetition_penalty) == (None, 2_000, 1.0)
    assert large.reply.language == ""
