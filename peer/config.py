"""Every option of the server, once: the command line and the TOML file are both read from the fields of `ServerConfig`.

A file is a flat table whose keys are the long options without their dashes (`udp-ports = "40000-40100"`); what stands
on the command line wins over the file.
"""

from __future__ import annotations

import argparse
import dataclasses
import ipaddress
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peer.errors import ConfigError

VERSION = "0.1.0"
DEFAULT_SYSTEM_PROMPT = (
    "You are a friendly assistant on a phone call. Answer in one or two short plain sentences, without lists or markup."
)
_LOG_LEVELS = ("debug", "info", "warning", "error")
_NOISE_SUPPRESSION = ("auto", "on", "off")
_LEAST_PROMPT_TOKENS = 48
"""Less holds no system prompt and a turn."""
_RANGES: Mapping[str, tuple[float, float]] = {
    "port": (0, 65_535),
    "quic_port": (0, 65_535),
    "prompt_tokens": (0, 1_000_000),
    "reply_tokens": (1, 100_000),
    "reply_timeout_s": (0.1, 3_600),
    "silence_ms": (50, 10_000),
    "vad_threshold": (0.05, 0.95),
    "speed": (0.5, 2.0),
    "volume": (0.0, 1.4),
    "check_in_after_s": (0, 86_400),
    "idle_hang_up_s": (0, 86_400),
    "record_max_s": (1, 86_400),
    "max_calls": (1, 100_000),
    "max_call_s": (0.1, 31_536_000),
    "max_body_bytes": (1, 1 << 30),
    "connect_timeout_s": (0.1, 3_600),
}
"""Least and largest value of each number."""
_LANGUAGES = (
    "af am ar as az ba be bg bn bo br bs ca cs cy da de el en es et eu fa fi fo fr gl gu ha haw he hi hr ht hu hy id "
    "is it ja jw ka kk km kn ko la lb ln lo lt lv mg mi mk ml mn mr ms mt my ne nl nn no oc pa pl ps pt ro ru sa sd si "
    "sk sl sn so sq sr su sv sw ta te tg th tk tl tr tt uk ur uz vi yi yo yue zh"
)
"""What Whisper can be told to expect."""


def _option(default: Any, help_text: str, *, metavar: str | None = None) -> Any:
    factory: dict[str, Any] = (
        {"default_factory": lambda: default} if isinstance(default, tuple) else {"default": default}
    )
    return dataclasses.field(metadata={"help": help_text, "metavar": metavar}, **factory)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """What the server does; every field is an option of the same name."""

    host: str = _option("127.0.0.1", "address to listen on; any but a loopback one needs --access-token or --open")
    port: int = _option(8080, "TCP port of the page and of signalling; 0 takes a free one")
    quic_port: int = _option(4433, "UDP port of the QUIC control channel; 0 takes a free one")
    public_address: str = _option("", "address that callers reach this machine by, when it stands behind a 1:1 NAT")
    udp_ports: str = _option("", "range of UDP ports for media; any free port when not given", metavar="A-B")
    ice_server: tuple[str, ...] = _option(
        (), "STUN or TURN server (stun:HOST:PORT, turn:USER:PASSWORD@HOST:PORT); repeatable", metavar="URL"
    )

    access_token: str = _option("", "callers must send it as 'Authorization: Bearer TOKEN'", metavar="TOKEN")
    open: bool = _option(False, "let anyone who reaches this address call")
    certificate: str = _option(
        "", "certificate chain (PEM) for HTTPS; one is generated for a host that is not loopback", metavar="FILE"
    )
    key: str = _option("", "private key (PEM) of --certificate", metavar="FILE")
    plain_http: bool = _option(False, "no HTTPS even on a host that is not loopback, as behind a proxy that adds it")

    asr: str = _option("whisper:tiny.en", "speech recognition engine", metavar="NAME[:MODEL]")
    llm: str = _option("ct2:smollm2-135m-instruct", "language model engine", metavar="NAME[:MODEL]")
    llm_url: str = _option("", "base URL of an OpenAI-compatible server, for --llm openai:MODEL", metavar="URL")
    tts: str = _option("piper:en_US-joe-medium", "speech synthesis engine", metavar="NAME[:VOICE]")
    turn: str = _option("smart-turn", "end-of-turn engine; 'none' leaves it to silence alone", metavar="NAME[:MODEL]")
    vllm_python: str = _option(
        ".venv-vllm/bin/python", "interpreter that has vLLM, for --llm vllm:MODEL", metavar="PATH"
    )

    agent: str = _option(
        "", "your own agent, a Python file with a subclass of peer.agent.Agent", metavar="FILE[:CLASS]"
    )
    system_prompt: str = _option(DEFAULT_SYSTEM_PROMPT, "who the peer is and how it answers", metavar="TEXT")
    greeting: str = _option("", "what the peer says when a call begins; nothing when empty", metavar="TEXT")
    apology: str = _option(
        "Sorry, I could not find an answer to that.", "what the peer says when its language model fails", metavar="TEXT"
    )
    check_in: str = _option(
        "Are you still there?",
        "what the peer asks after --check-in-after-s of silence",
        metavar="TEXT",
    )
    check_in_after_s: float = _option(0.0, "silence after which the peer asks --check-in; 0 never asks")
    idle_hang_up_s: float = _option(0.0, "silence after which the peer hangs up; 0 never does")
    farewell: str = _option("", "what the peer says before it hangs up a silent call", metavar="TEXT")

    language: str = _option(
        "", "language of the callers (ISO 639-1); a multilingual model detects it when empty", metavar="CODE"
    )
    hotwords: str = _option("", "words of the domain that speech recognition should expect", metavar="WORDS")
    noise_suppression: str = _option(
        "auto",
        "clean what the recogniser hears: on, off, or auto, in a loud hum",
        metavar="WHEN",
    )
    vad_threshold: float = _option(0.5, "probability from which sound is voice; python -m peer.calibrate finds it")
    speed: float = _option(1.0, "how fast the voice speaks")
    volume: float = _option(1.0, "how loud the voice speaks")
    prompt_tokens: int = _option(0, "window of the dialogue the language model is shown; 0 suits the engine")
    reply_tokens: int = _option(60, "longest reply, in tokens of the language model")
    reply_timeout_s: float = _option(15.0, "longest wait for the language model's next token")
    silence_ms: int = _option(500, "silence that ends a turn")

    record: str = _option("", "keep each call as a WAV file in this folder, and say so on the page", metavar="FOLDER")
    record_max_s: float = _option(1800.0, "longest recording of a call")

    max_calls: int = _option(16, "calls at once; more are refused")
    max_call_s: float = _option(3600.0, "longest call")
    max_body_bytes: int = _option(65_536, "largest request body")
    connect_timeout_s: float = _option(30.0, "a call without media for this long ends")

    log_level: str = _option("info", "one of " + ", ".join(_LOG_LEVELS), metavar="LEVEL")
    log_transcripts: bool = _option(False, "write what was said into the log")

    @property
    def udp_port_range(self) -> tuple[int, int] | None:
        """The lowest and highest UDP port for media, or None for any."""
        return parse_port_range(self.udp_ports) if self.udp_ports else None

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_port_range(text: str) -> tuple[int, int]:
    """Return (low, high) of `A-B`; raises ConfigError."""
    low, _, high = text.partition("-")
    if not (low.isdecimal() and high.isdecimal() and 0 < int(low) <= int(high) < 65_536):
        raise ConfigError(f"--udp-ports {text}: write it as A-B, two ports with A not above B, such as 40000-40100")
    return int(low), int(high)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def build_parser() -> argparse.ArgumentParser:
    """Return the server's command line; options not given are absent from its result."""
    parser = argparse.ArgumentParser(
        prog="signaling_server.py",
        description="Antiphon: a self-hosted voice peer. Opens a call page and answers WebRTC calls.",
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("--config", metavar="FILE", help="TOML file with any of these options, names without dashes")
    parser.add_argument("--version", action="version", version=f"antiphon {VERSION}")
    for field in dataclasses.fields(ServerConfig):
        default = _default(field)
        shown = f" (default: {default})" if default not in {"", (), False} else ""
        arguments: dict[str, Any] = {"help": (field.metadata["help"] + shown).replace("%", "%%")}
        if isinstance(default, bool):
            arguments["action"] = "store_true"
        elif isinstance(default, tuple):
            arguments |= {"action": "append", "metavar": field.metadata["metavar"]}
        else:
            arguments |= {"type": type(default), "metavar": field.metadata["metavar"]}
        parser.add_argument(_flag(field.name), **arguments)
    return parser


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def read_config_file(path: Path) -> dict[str, Any]:
    """Return the options in the TOML file at `path`; raises ConfigError naming what is wrong."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"--config {path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config {path}: not TOML: {error}") from error
    fields = {field.name: field for field in dataclasses.fields(ServerConfig)}
    options: dict[str, Any] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in fields:
            raise ConfigError(f"--config {path}: no option is called {key!r}")
        options[name] = _checked(f"--config {path}: {key}", value, _default(fields[name]))
    return options


def _checked(where: str, value: Any, default: Any) -> Any:
    if isinstance(default, tuple):
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ConfigError(f"{where}: must be a list of strings")
        return tuple(value)
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not type(default):
        raise ConfigError(f"{where}: must be of type {type(default).__name__}, not {type(value).__name__}")
    return value


def load_config(arguments: Sequence[str] | None = None) -> ServerConfig:
    """Return the checked options of a command line and its file; raises ConfigError, or exits for bad syntax."""
    given: dict[str, Any] = vars(build_parser().parse_args(arguments))
    path = given.pop("config", None)
    options = read_config_file(Path(path)) if path else {}
    if "ice_server" in given:
        given["ice_server"] = tuple(given["ice_server"])
    return make_config(options | given)


def make_config(options: Mapping[str, Any]) -> ServerConfig:
    """Return a config with `options`, checked as a whole; raises ConfigError."""
    config = ServerConfig(**options)
    _check_ranges(config)
    _check_words(config)
    if config.udp_ports:
        parse_port_range(config.udp_ports)
    if bool(config.certificate) != bool(config.key):
        raise ConfigError("--certificate and --key go together: give both, or neither to have one generated")
    if config.certificate and config.plain_http:
        raise ConfigError("--plain-http and --certificate contradict each other: leave one out")
    if not config.is_loopback and not config.access_token and not config.open:
        raise ConfigError(
            f"--host {config.host} can be reached from other machines: give --access-token TOKEN, "
            "or --open to let anyone call"
        )
    return config


def _check_ranges(config: ServerConfig) -> None:
    for name, (low, high) in _RANGES.items():
        value = getattr(config, name)
        if not low <= value <= high:
            raise ConfigError(f"{_flag(name)} {value}: must be from {low:g} to {high:g}")
    if 0 < config.prompt_tokens < _LEAST_PROMPT_TOKENS:
        raise ConfigError(
            f"--prompt-tokens {config.prompt_tokens}: must be at least {_LEAST_PROMPT_TOKENS}, or 0 to suit the engine"
        )
    if 0 < config.idle_hang_up_s <= config.check_in_after_s:
        raise ConfigError("--idle-hang-up-s must be longer than --check-in-after-s, or nobody has time to answer")


def _check_words(config: ServerConfig) -> None:
    for name, allowed in (("log_level", _LOG_LEVELS), ("noise_suppression", _NOISE_SUPPRESSION)):
        if getattr(config, name) not in allowed:
            raise ConfigError(f"{_flag(name)} {getattr(config, name)}: must be one of {', '.join(allowed)}")
    if config.public_address:
        try:
            ipaddress.ip_address(config.public_address)
        except ValueError:
            raise ConfigError(f"--public-address {config.public_address}: must be an IP address") from None
    if config.language:
        if config.language not in _LANGUAGES.split():
            raise ConfigError(f"--language {config.language}: write it as ISO 639-1 has it, such as en, de or zh")
        if config.language != "en" and config.asr.endswith(".en"):
            raise ConfigError(
                f"--language {config.language}: --asr {config.asr} knows English alone; take --asr whisper:base"
            )
    if config.llm.strip() == "none" and not config.agent:
        raise ConfigError("--llm none: nothing would answer; it goes with an --agent that needs no language model")
    if config.check_in_after_s and not config.check_in.strip():
        raise ConfigError("--check-in-after-s needs something to say in --check-in")
