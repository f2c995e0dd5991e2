"""What a peer connection needs to know before it starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class IceServer:
    """A STUN or TURN server, as `stun:host:port` or `turn:host:port?transport=udp`."""

    url: str
    username: str | None = None
    credential: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportConfig:
    """Settings of one `PeerConnection`; the defaults suit a server that browsers on any network call."""

    hosts: tuple[str, ...] = ()
    """Local addresses to receive media on; empty means every interface of the machine, and loopback."""
    udp_ports: tuple[int, int] | None = None
    """First and last port that media may use; None lets the system choose."""
    public_address: str | None = None
    """Address to name beside our own, where a one-to-one NAT stands before this machine."""
    ice_servers: tuple[IceServer, ...] = ()
    """One STUN and one TURN server are used, the first of each."""
    reader: Literal["listen", "playout"] = "listen"
    """Who hears the audio received: a machine (`on_audio`, at once and in order) or ears (`get_audio`, every 10 ms)."""
    receive_rate_hz: int = 16_000
    """Sample rate of the audio received: 16 000 for recognition, 48 000 for ears."""
    policy: str = "auto"
    """Who sizes the buffer of `reader="playout"`: auto, or for comparisons quantile, formula, fixed:MS."""
    bitrate_bps: int = 28_000
    """Opus bit rate of what we send, FEC included."""
    expected_loss_pct: int = 5
    """Loss the encoder expects; it sizes in-band FEC."""
    fec: bool = True
    """Send in-band FEC."""
    nack: bool = True
    """Agree to retransmission where the peer offers it; we offer it."""
    red: Literal["off", "accept", "prefer"] = "accept"
    """Agree to audio/red where the peer offers it: `prefer` makes browsers send it from the start."""
    connect_timeout_s: float = 20.0
    """From the answer to the first packet; then the state is `failed`."""
    disconnected_after_s: float = 4.0
    """Nothing heard, not even answers to our checks: the state is `disconnected`."""
    failed_after_s: float = 15.0
    """Still nothing heard: the state is `failed`."""
