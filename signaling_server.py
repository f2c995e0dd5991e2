"""Composition root: engines, calls, the HTTP API, its command line, and the page in web/."""

from __future__ import annotations

import signal

if (
    __name__ == "__main__"
):  # until `serve` takes over Ctrl-C just ends the process, without a traceback out of an import
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import asyncio
import contextlib
import datetime as dt
import errno
import logging
import os
import socket
import ssl
import sys
import time
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from aiohttp import web

from peer.agent import load_agent
from peer.agent_llm import check_agent
from peer.calls import Calls
from peer.config import ServerConfig, load_config
from peer.conversation_parts import ConversationOptions
from peer.end_of_turn import EndOfTurnOptions
from peer.endpointing import Endpointer, EndpointOptions
from peer.engines.base import TtsOptions
from peer.engines.factory import EngineSet, EngineSpec, create_engines, split_name
from peer.engines.vad_silero import SileroVad
from peer.engines.vad_webrtc import WebRtcVad
from peer.errors import ConfigError
from peer.http_api import ApiOptions, HttpApi
from peer.idle import IdleOptions
from peer.logs import configure_logs
from peer.loop_lag import LoopLag
from peer.noise import NoiseReducer
from peer.progress import ProgressPrinter
from peer.reply import ReplyOptions
from peer.session import CallSession, SessionOptions
from peer.tls import generated_certificate, load_context
from transport import ice
from transport.call_network import CallNetwork
from transport.config import IceServer, TransportConfig
from transport.errors import AntiphonError, LocalProtocolError
from transport.peer_connection import PeerConnection
from transport.quic_server import ControlServer

_LOG = logging.getLogger("antiphon")
_PAGE_FOLDER: Final = Path(__file__).parent / "web"
SMALL_MODEL_TOKENS: Final = 160
"""Window of the dialogue for the embedded model, whose first token waits 0.5 ms for every token of its prompt."""
_SMALL_MODEL_PENALTY: Final = 1.15
"""Without it SmolLM2 repeats half a sentence until its tokens are used up; from 1.3 on it avoids names it is told."""
_LARGE_MODEL_TOKENS: Final = 2_000


def engine_spec(config: ServerConfig) -> EngineSpec:
    """Return the engines that `config` names."""
    return EngineSpec(
        asr=config.asr,
        llm=config.llm,
        tts=config.tts,
        turn=config.turn,
        language=config.language or None,
        llm_url=config.llm_url or None,
        vllm_python=config.vllm_python,
    )


def session_options(config: ServerConfig) -> SessionOptions:
    """Return how each call is held."""
    small = split_name(config.llm)[0] == "ct2"
    conversation = ConversationOptions(
        system_prompt=config.system_prompt,
        greeting=config.greeting,
        idle=IdleOptions(
            check_in_after_s=config.check_in_after_s,
            check_in=config.check_in,
            hang_up_after_s=config.idle_hang_up_s,
            farewell=config.farewell,
        ),
        language=config.language or None,
        hotwords=config.hotwords.strip() or None,
        prompt_tokens=config.prompt_tokens or (SMALL_MODEL_TOKENS if small else _LARGE_MODEL_TOKENS),
        end_of_turn=EndOfTurnOptions().scaled_to(config.silence_ms),
        reply=ReplyOptions(
            max_tokens=config.reply_tokens,
            token_timeout_s=config.reply_timeout_s,
            language=config.language,
            repetition_penalty=_SMALL_MODEL_PENALTY if small else 1.0,
            apology=config.apology,
            tts=TtsOptions(speed=config.speed, volume=config.volume),
        ),
    )
    return SessionOptions(
        conversation=conversation,
        connect_timeout_s=config.connect_timeout_s,
        max_call_s=config.max_call_s,
        log_transcripts=config.log_transcripts,
        record_max_s=config.record_max_s,
    )


def endpoint_options(config: ServerConfig) -> EndpointOptions:
    """Return what counts as voice."""
    return EndpointOptions(on_probability=config.vad_threshold, off_probability=config.vad_threshold / 2)


def transport_config(config: ServerConfig) -> TransportConfig:
    """Return how media reaches this machine: on every interface, even where HTTP keeps to loopback.

    Firefox pairs no loopback candidate with its own, so a page on localhost would have no sound; each socket lives for
    one call and answers nobody without that call's ICE password.
    """
    transport = TransportConfig(
        udp_ports=config.udp_port_range,
        public_address=config.public_address or None,
        ice_servers=tuple(parse_ice_server(url) for url in config.ice_server),
    )
    try:
        ice.servers(transport)
    except LocalProtocolError as error:
        raise ConfigError(f"--ice-server: {error}") from error
    return transport


def parse_ice_server(url: str) -> IceServer:
    """Return the server of `stun:HOST:PORT` or `turn:USER:PASSWORD@HOST:PORT`; raises ConfigError."""
    scheme, _, rest = url.partition(":")
    credentials, at, address = rest.rpartition("@")
    if scheme not in {"stun", "stuns", "turn", "turns"} or not address:
        raise ConfigError(f"--ice-server {url}: write it as stun:HOST:PORT or turn:USER:PASSWORD@HOST:PORT")
    username, _, password = credentials.partition(":")
    return IceServer(url=f"{scheme}:{address}", username=username or None, credential=password if at else None)


def make_calls(config: ServerConfig, engines: EngineSet, control: ControlServer | None = None) -> Calls:
    """Return the calls of a server with these engines, whose control channels are opened at `control`.

    Raises ConfigError for an agent that cannot be had.
    """
    options, transport = session_options(config), transport_config(config)
    agent_class = load_agent(config.agent) if config.agent else None
    if agent_class is not None:
        check_agent(agent_class, engines.llm, config.llm)
    folder = recording_folder(config.record) if config.record else None

    def make_session(call_id: str) -> CallSession:
        connection = PeerConnection(transport)
        network = CallNetwork(connection, call_id=call_id)
        if control is not None:
            control.register(network.control, send_out_of_band=network.send_out_of_band)
            network.on_close = partial(control.unregister, call_id)
        return CallSession(
            call_id=call_id,
            connection=connection,
            network=network,
            engines=engines,
            endpointer=Endpointer(gate=WebRtcVad(), judge=SileroVad(), options=endpoint_options(config)),
            options=options,
            noise=None
            if config.noise_suppression == "off"
            else NoiseReducer(automatic=config.noise_suppression == "auto"),
            agent=agent_class() if agent_class is not None else None,
            record_to=recording_path(folder, call_id, now=dt.datetime.now(tz=dt.UTC)) if folder else None,
        )

    return Calls(make_session=make_session, max_calls=config.max_calls)


def recording_folder(name: str) -> Path:
    """Return the folder of recordings, made if need be, for its owner alone; raises ConfigError."""
    folder = Path(name).expanduser()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK | os.X_OK)
    except OSError as error:
        raise ConfigError(f"--record {name}: {error.strerror or error}") from error
    if not writable:
        raise ConfigError(f"--record {name}: cannot be written to")
    return folder


def recording_path(folder: Path, call_id: str, *, now: dt.datetime) -> Path:
    """Return the file of a call that begins now."""
    return folder / f"{now:%Y%m%dT%H%M%SZ}-{call_id}.wav"


def tls_context(config: ServerConfig) -> ssl.SSLContext | None:
    """Return the TLS context of the page, None for plain HTTP; raises ConfigError."""
    if config.certificate:
        return load_context(Path(config.certificate), Path(config.key))
    if config.is_loopback or config.plain_http:
        return None
    files = generated_certificate(config.host, public_address=config.public_address, now=dt.datetime.now(tz=dt.UTC))
    return load_context(*files)


@contextlib.asynccontextmanager
async def listening(config: ServerConfig, app: web.Application) -> AsyncIterator[str]:
    """Serve `app` and yield the page's address; raises ConfigError where the port cannot be had."""
    context = tls_context(config)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=2.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, config.host, config.port, ssl_context=context)
        try:
            await site.start()
        except OSError as error:
            raise ConfigError(why_no_port(error, config.host, config.port, "--port")) from error
        port = runner.addresses[0][1]
        host = f"[{config.host}]" if ":" in config.host else config.host
        yield f"{'https' if context else 'http'}://{host}:{port}"
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def controlling(config: ServerConfig, control: ControlServer) -> AsyncIterator[None]:
    """Serve the control channels; raises ConfigError where the port cannot be had."""
    try:
        await control.start()
    except OSError as error:
        raise ConfigError(why_no_port(error, config.host, config.quic_port, "--quic-port")) from error
    try:
        yield
    finally:
        await control.aclose()


def why_no_port(error: OSError, host: str, port: int, option: str) -> str:
    """Return in a line why `port` cannot be served on `host`, and which option mends it."""
    kind = "UDP port" if option == "--quic-port" else "port"
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return f"--host {host}: this machine has no such address; give one of its own, or 0.0.0.0 for all"
    if error.errno == errno.EADDRINUSE:
        return f"{kind} {port} on {host} is taken: stop what uses it, or give another {option}"
    if error.errno in {errno.EACCES, errno.EPERM}:
        return f"{kind} {port} on {host} needs rights that this user has not: give another {option}"
    return f"cannot listen on {host} {kind} {port}: {error.strerror or error}"


def _numeric(host: str) -> str:
    """A browser may try `localhost` as ::1 first, where nothing listens."""
    return "127.0.0.1" if host == "localhost" else host


async def serve(config: ServerConfig) -> None:
    """Serve until SIGINT or SIGTERM, then end every call; raises AntiphonError where it cannot."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    progress = ProgressPrinter()
    engines = create_engines(engine_spec(config), on_progress=progress)
    control = ControlServer(host=config.host, port=config.quic_port, unix_time=time.time)
    calls = make_calls(config, engines, control)
    lag = LoopLag()
    api = HttpApi(
        calls=calls,
        not_ready_reason=lambda: engines.not_ready_reason,
        options=ApiOptions(
            access_token=config.access_token,
            max_body_bytes=config.max_body_bytes,
            page_folder=_PAGE_FOLDER,
            control=lambda call_id, host: control.describe(call_id, config.public_address or _numeric(host)),
            recorded=bool(config.record),
            health=lambda: {"loop_lag_p99_ms": lag.quantile_ms(0.99)},
        ),
    )
    async with controlling(config, control), listening(config, api.make_application()) as address:
        measuring = asyncio.create_task(lag.run())
        starting = asyncio.create_task(engines.start())
        stopping = asyncio.create_task(stopped.wait())
        try:
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                await starting
                progress.close()
                announce(config, address)
                await stopping
            _LOG.info("shutting down", extra={"calls": len(calls)})
        finally:
            for task in (measuring, starting, stopping):
                task.cancel()
            await asyncio.gather(measuring, starting, stopping, return_exceptions=True)
            await calls.aclose("the server is shutting down")
            await engines.aclose()


def announce(config: ServerConfig, address: str) -> None:
    """Say where the page is, and what a browser will want there."""
    print(f"ready: {address}", flush=True)
    if config.record:
        print(f"calls are recorded into {config.record}, and callers are told so", flush=True)
    if config.is_loopback:
        return
    if address.startswith("https") and not config.certificate:
        print("browsers give a page the microphone only over HTTPS; this server's certificate is its own,", flush=True)
        print("so the browser will warn once. --certificate and --key name a better one.", flush=True)
    elif not address.startswith("https"):
        print("plain HTTP: browsers give the page no microphone unless a proxy adds HTTPS.", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the server; returns the exit status: 0, 1 where it failed, 2 for options that make no sense."""
    try:
        config = load_config(arguments)
        configure_logs(config.log_level)
        asyncio.run(serve(config))
    except ConfigError as error:
        print(f"signaling_server.py: {error}", file=sys.stderr)
        return 2
    except AntiphonError as error:
        print(f"signaling_server.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
