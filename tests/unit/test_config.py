"""The options: every one on the command line and in the file, and each mistake named."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from peer.config import ServerConfig, build_parser, load_config, make_config
from peer.errors import ConfigError


def test_every_option_is_on_the_command_line() -> None:
    text = build_parser().format_help()
    for field in dataclasses.fields(ServerConfig):
        assert "--" + field.name.replace("_", "-") in text


def test_the_fixed_options_and_defaults() -> None:
    config = load_config([])
    assert (config.host, config.port, config.quic_port) == ("127.0.0.1", 8080, 4433)
    config = load_config(["--ice-server", "stun:a:1", "--ice-server", "stun:b:2", "--udp-ports", "40000-40100"])
    assert config.ice_server == ("stun:a:1", "stun:b:2")
    assert config.udp_port_range == (40_000, 40_100)


def test_every_option_can_stand_in_the_file_and_the_command_line_wins(tmp_path: Path) -> None:
    changed = ServerConfig(port=9, host="::1", log_level="debug", log_transcripts=True, ice_server=("stun:a:1",))
    lines = []
    for field in dataclasses.fields(ServerConfig):
        value = getattr(changed, field.name)
        shown = str(value).lower() if isinstance(value, bool) else list(value) if isinstance(value, tuple) else value
        text = f'"{shown}"' if isinstance(shown, str) and not isinstance(value, bool) else shown
        lines.append(f"{field.name.replace('_', '-')} = {text}")
    path = tmp_path / "antiphon.toml"
    path.write_text("\n".join(lines))
    assert load_config(["--config", str(path)]) == changed
    assert load_config(["--config", str(path), "--port", "10"]) == dataclasses.replace(changed, port=10)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("prot = 1", "no option is called 'prot'"),
        ('port = "1"', "must be of type int"),
        ("open = 1", "must be of type bool"),
        ('ice-server = "stun:a"', "must be a list of strings"),
        ("port = ", "not TOML"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "antiphon.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=complaint):
        load_config(["--config", str(path)])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_config(["--config", str(tmp_path / "none.toml")])


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"host": "0.0.0.0"}, "--access-token"),
        ({"port": 70_000}, "--port 70000"),
        ({"udp_ports": "5-4"}, "--udp-ports 5-4"),
        ({"udp_ports": "abc"}, "--udp-ports abc"),
        ({"log_level": "loud"}, "--log-level loud"),
        ({"certificate": "a.pem"}, "go together"),
        ({"max_calls": 0}, "--max-calls 0"),
        ({"silence_ms": 0}, "--silence-ms 0"),
        ({"prompt_tokens": -5}, "--prompt-tokens -5"),
        ({"prompt_tokens": 10}, "at least 48, or 0"),
        ({"reply_timeout_s": float("nan")}, "--reply-timeout-s nan"),
        ({"public_address": "not an address"}, "--public-address not an address: must be an IP address"),
        ({"language": "klingon"}, "--language klingon"),
        ({"language": "zh"}, "--asr whisper:base"),
        ({"vad_threshold": 1.5}, "--vad-threshold 1.5"),
        ({"speed": 0.1}, "--speed 0.1: must be from 0.5 to 2"),
        ({"volume": 9.0}, "--volume 9"),
        ({"noise_suppression": "much"}, "--noise-suppression much: must be one of auto, on, off"),
        ({"check_in_after_s": 30.0, "idle_hang_up_s": 20.0}, "longer than --check-in-after-s"),
        ({"check_in_after_s": 30.0, "check_in": " "}, "needs something to say"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        make_config(options)


@pytest.mark.parametrize("options", [{"access_token": "t"}, {"open": True}])
def test_another_host_needs_a_token_or_an_explicit_word(options: dict[str, object]) -> None:
    assert not make_config({"host": "0.0.0.0"} | options).is_loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_needs_neither(host: str) -> None:
    assert make_config({"host": host}).is_loopback


def test_another_language_goes_with_a_model_that_knows_it() -> None:
    assert make_config({"language": "zh", "asr": "whisper:base"}).language == "zh"


def test_the_example_of_a_file_is_one() -> None:
    config = load_config(["--config", str(Path(__file__).parents[2] / "examples" / "reception.toml")])
    assert config.greeting.startswith("Harbour Hotel")
    assert "\n" not in config.system_prompt.strip()
    assert config.idle_hang_up_s > config.check_in_after_s > 0
