"""Session descriptions: what a peer may send us, and what we add to and rewrite in aiortc's. Pure.

Nothing a peer wrote reaches aiortc's parser: `read_description` checks each line that matters and `Description.plain`
writes a new, small description from them (one audio section first, then the data channel). `dress` turns aiortc's own
answer or offer into what we send: Opus settings, NACK and RED, refused sections in their places. JSEP is RFC 8829,
BUNDLE RFC 8843, Opus in RTP RFC 7587, RED RFC 2198.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Literal

from transport.errors import RemoteProtocolError
from transport.sdp_candidates import Candidate, parse_candidate

MAX_SDP_CHARS = 64 * 1024
MAX_SECTIONS = 32
MAX_CANDIDATES = 64
RED_PAYLOAD_TYPE = 63
"""What browsers use for audio/red; we offer the same."""
OPUS_PARAMETERS = "minptime=10;stereo=0;sprop-stereo=0;useinbandfec=1"
KNOWN_EXTENSIONS = ("urn:ietf:params:rtp-hdrext:sdes:mid", "urn:ietf:params:rtp-hdrext:ssrc-audio-level")

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`{|}~-]{1,64}")
_ICE_UFRAG = re.compile(r"[A-Za-z0-9+/=_-]{4,256}")
_ICE_PWD = re.compile(r"[A-Za-z0-9+/=_-]{22,256}")
_FINGERPRINT = re.compile(r"(sha-256|sha-384|sha-512) ((?:[0-9A-Fa-f]{2}:){31,63}[0-9A-Fa-f]{2})", re.IGNORECASE)
_MEDIA = re.compile(r"m=([a-z]+) (\d{1,5})(?:/\d+)? ([A-Za-z/]+)((?: [A-Za-z0-9-]+)+)")
_RTPMAP = re.compile(r"(\d{1,3}) ([A-Za-z0-9-]+)/(\d+)(?:/(\d+))?")
_EXTMAP = re.compile(r"(\d{1,2})(?:/[a-z]+)? (\S+)")
_SETUPS = {"actpass", "active", "passive"}
_DIRECTIONS = ("sendrecv", "sendonly", "recvonly", "inactive")


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One m-section: its first line and its attributes, `name → values`."""

    kind: str
    port: int
    profile: str
    formats: tuple[str, ...]
    attributes: dict[str, list[str]]
    mid: str

    def first(self, name: str) -> str | None:
        """Return the first value of attribute `name`, None where there is none."""
        values = self.attributes.get(name)
        return values[0] if values else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """A peer's offer or answer, checked; everything in it may be trusted to be well formed."""

    sections: tuple[Section, ...]
    audio: Section
    data: Section | None
    bundled: bool
    opus_payload_type: int
    red_payload_type: int | None
    nack: bool
    ice_ufrag: str
    ice_pwd: str
    ice_lite: bool
    fingerprints: tuple[str, ...]
    setup: str
    direction: str
    ssrc: int | None
    candidates: tuple[Candidate, ...]

    def plain(self, *, data_mid: str | None = None) -> str:
        """Return the same, written for aiortc: audio first, then the data channel, and nothing else.

        `data_mid` is the data section that aiortc expects in an answer, even where the peer has refused it.
        """
        data_mid = self.data.mid if self.data else data_mid
        mids = [self.audio.mid] + ([data_mid] if data_mid else [])
        lines = ["v=0", "o=- 1 1 IN IP4 0.0.0.0", "s=-", "t=0 0"]
        if self.ice_lite:
            lines.append("a=ice-lite")
        lines += [f"a=group:BUNDLE {' '.join(mids)}", "a=msid-semantic:WMS *"]
        common = [f"a=ice-ufrag:{self.ice_ufrag}", f"a=ice-pwd:{self.ice_pwd}", f"a=setup:{self.setup}"]
        common += [f"a=fingerprint:{fingerprint}" for fingerprint in self.fingerprints]
        # In every section: of sections that share a transport, aiortc reads the candidates of the last alone.
        common += [f"a=candidate:{candidate.to_sdp()}" for candidate in self.candidates]
        lines += [
            f"m=audio 9 UDP/TLS/RTP/SAVPF {self.opus_payload_type}",
            "c=IN IP4 0.0.0.0",
            f"a=mid:{self.audio.mid}",
            f"a={self.direction}",
            "a=rtcp:9 IN IP4 0.0.0.0",
            "a=rtcp-mux",
            f"a=rtpmap:{self.opus_payload_type} opus/48000/2",
            *(f"a=extmap:{number} {uri}" for number, uri in _extensions(self.audio)),
        ]
        if self.ssrc is not None:
            lines.append(f"a=ssrc:{self.ssrc} cname:peer")
        lines += common
        if data_mid:
            port = (self.data and self.data.first("sctp-port")) or "5000"
            size = (self.data and self.data.first("max-message-size")) or "65536"
            lines += [
                "m=application 9 UDP/DTLS/SCTP webrtc-datachannel",
                "c=IN IP4 0.0.0.0",
                f"a=mid:{data_mid}",
                f"a=sctp-port:{port}",
                f"a=max-message-size:{size}",
                *common,
            ]
        return "\r\n".join(lines) + "\r\n"


def read_description(text: str, kind: Literal["offer", "answer"]) -> Description:
    """Return what `text` offers or answers; raises RemoteProtocolError with a code that begins with `sdp_`."""
    session, sections = _split(text)
    audio = _audio_section(sections)
    opus, red = _payload_types(audio)
    bundle = _bundle(session)
    data = _data_section(sections, audio, bundle)
    ufrag = audio.first("ice-ufrag") or _first(session, "ice-ufrag")
    password = audio.first("ice-pwd") or _first(session, "ice-pwd")
    if not ufrag or not _ICE_UFRAG.fullmatch(ufrag) or not password or not _ICE_PWD.fullmatch(password):
        raise RemoteProtocolError("sdp_no_ice", "the audio section has no valid ice-ufrag and ice-pwd")
    fingerprints = audio.attributes.get("fingerprint") or session.get("fingerprint", [])
    known = tuple(value.strip() for value in fingerprints if _FINGERPRINT.fullmatch(value.strip()))
    setup = audio.first("setup") or _first(session, "setup") or ""
    if not known or setup not in _SETUPS or (kind == "answer" and setup == "actpass"):
        raise RemoteProtocolError("sdp_no_dtls", "the audio section has no valid fingerprint (SHA-2) and setup")
    if "rtcp-mux" not in audio.attributes:
        raise RemoteProtocolError("sdp_no_rtcp_mux", "the audio section must offer rtcp-mux")
    direction = next((name for name in _DIRECTIONS if name in audio.attributes), "sendrecv")
    if kind == "offer" and direction in ("recvonly", "inactive"):
        raise RemoteProtocolError("sdp_not_sending", f"the audio section is {direction}: nothing would be heard")
    return Description(
        sections=sections,
        audio=audio,
        data=data,
        bundled=bool(bundle),
        opus_payload_type=opus,
        red_payload_type=red,
        nack=any(f"{pt} nack" in audio.attributes.get("rtcp-fb", []) for pt in (str(opus), "*")),
        ice_ufrag=ufrag,
        ice_pwd=password,
        ice_lite="ice-lite" in session,
        fingerprints=known,
        setup=setup,
        direction=direction,
        ssrc=_ssrc(audio),
        candidates=_candidates(sections, audio, bundle),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Dress:
    """What we add to aiortc's description."""

    nack: bool = False
    """Say that lost audio may be asked for again and will be."""
    red: Literal["off", "accept", "prefer"] = "off"
    """Say that audio/red may come; `prefer` puts it first, so that a browser sends it at once."""
    red_payload_type: int = RED_PAYLOAD_TYPE
    public_address: str | None = None
    """An address to name beside each host candidate's own, as where the peer's machine is behind a one-to-one NAT."""


def dress(text: str, options: Dress, *, offer: Description | None = None) -> str:
    """Return aiortc's description as we send it; `offer` is what it answers, None where it is our offer."""
    head, sections = _raw_sections(text)
    dressed = [_dress_audio(lines, options) if lines[0].startswith("m=audio") else lines for lines in sections]
    if options.public_address:
        dressed = [_with_public_address(lines, options.public_address) for lines in dressed]
    if offer is not None:
        by_mid = {_mid_of(lines): lines for lines in dressed}
        dressed = [by_mid.get(section.mid) or _refused(section) for section in offer.sections]
        accepted = [section.mid for section in offer.sections if section.mid in by_mid]
        group = f"a=group:BUNDLE {' '.join(accepted)}"
        head = [group if line.startswith("a=group:BUNDLE") else line for line in head]
        if not offer.bundled:
            head.remove(group)
    return "\r\n".join([*head, *(line for lines in dressed for line in lines)]) + "\r\n"


def _dress_audio(lines: list[str], options: Dress) -> list[str]:
    opus = next(line for line in lines if re.match(r"a=rtpmap:\d+ opus/", line)).split(":")[1].split(" ")[0]
    dropped = re.compile(rf"a=(rtpmap|fmtp|rtcp-fb):(?!{opus} )")
    formats = {"off": [opus], "accept": [opus, str(options.red_payload_type)]}.get(
        options.red, [str(options.red_payload_type), opus]
    )
    media = " ".join([*lines[0].split(" ")[:3], *formats])
    dressed = [media, *(line for line in lines[1:] if not dropped.match(line) and not line.startswith("a=fmtp:"))]
    at = 1 + next(i for i, line in enumerate(dressed) if line.startswith(f"a=rtpmap:{opus} "))
    extra = [f"a=fmtp:{opus} {OPUS_PARAMETERS}"]
    if options.nack:
        extra.append(f"a=rtcp-fb:{opus} nack")
    if options.red != "off":
        red = options.red_payload_type
        extra += [f"a=rtpmap:{red} red/48000/2", f"a=fmtp:{red} {opus}/{opus}"]
    return [*dressed[:at], *extra, "a=ptime:20", *dressed[at:]]


def _with_public_address(lines: list[str], address: str) -> list[str]:
    """Name `address` beside each host candidate of its family; beside loopback's only where there is no other."""
    hosts = [line.split(" ") for line in lines if line.startswith("a=candidate:") and line.split(" ")[7] == "host"]
    alike = [bits for bits in hosts if (":" in bits[4]) == (":" in address)]
    outward = [bits for bits in alike if not ipaddress.ip_address(bits[4]).is_loopback] or alike
    public = [" ".join([bits[0][: len("a=candidate:") + 31] + "p", *bits[1:4], address, *bits[5:]]) for bits in outward]
    connection = f"c=IN IP{6 if ':' in address else 4} {address}"
    rest = [connection if line.startswith("c=IN") else line for line in lines]
    at = next((i for i, line in enumerate(rest) if line.startswith("a=candidate:")), len(rest))
    return [*rest[:at], *public, *rest[at:]]


def _refused(section: Section) -> list[str]:
    """Return `section` with port 0, which refuses it (RFC 3264 §6)."""
    lines = [f"m={section.kind} 0 {section.profile} {' '.join(section.formats)}", "c=IN IP4 0.0.0.0", "a=inactive"]
    return [*lines, f"a=mid:{section.mid}"] if "mid" in section.attributes else lines


def _malformed(message: str) -> RemoteProtocolError:
    return RemoteProtocolError("sdp_malformed", message)


def _split(text: str) -> tuple[dict[str, list[str]], tuple[Section, ...]]:
    if len(text) > MAX_SDP_CHARS:
        raise RemoteProtocolError("sdp_too_large", f"a session description is at most {MAX_SDP_CHARS} characters")
    if not text.startswith("v=0"):
        raise _malformed("a session description begins with v=0")
    head, raw = _raw_sections(text)
    if len(raw) > MAX_SECTIONS:
        raise _malformed(f"more than {MAX_SECTIONS} media sections")
    for line in (line for lines in (head, *raw) for line in lines):
        if not re.fullmatch(r"[a-z]=[^\x00-\x08\x0a-\x1f]*", line):
            raise _malformed("a line that is not letter=value")
    return _attributes(head), tuple(_section(lines, index) for index, lines in enumerate(raw))


def _raw_sections(text: str) -> tuple[list[str], list[list[str]]]:
    head: list[str] = []
    sections: list[list[str]] = []
    for line in re.split(r"\r\n|\n|\r", text.strip("\r\n")):
        if line.startswith("m="):
            sections.append([line])
        else:
            (sections[-1] if sections else head).append(line)
    return head, sections


def _section(lines: list[str], index: int) -> Section:
    match = _MEDIA.fullmatch(lines[0])
    if match is None:
        raise _malformed("a media line that is not kind, port, profile and formats")
    attributes = _attributes(lines[1:])
    mid = (attributes.get("mid") or [f"_{index}"])[0]
    if not _TOKEN.fullmatch(mid):
        raise _malformed("a mid that is no token")
    return Section(
        kind=match[1],
        port=int(match[2]),
        profile=match[3],
        formats=tuple(match[4].split()),
        attributes=attributes,
        mid=mid,
    )


def _attributes(lines: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in lines:
        if line.startswith("a="):
            name, _, value = line[2:].partition(":")
            found.setdefault(name, []).append(value)
    return found


def _first(attributes: dict[str, list[str]], name: str) -> str | None:
    values = attributes.get(name)
    return values[0] if values else None


def _bundle(session: dict[str, list[str]]) -> tuple[str, ...]:
    for group in session.get("group", []):
        kind, *mids = group.split()[:MAX_SECTIONS] or [""]
        if kind == "BUNDLE":
            return tuple(mids)
    return ()


def _audio_section(sections: tuple[Section, ...]) -> Section:
    # Bundled sections after the first may have port 0 and say a=bundle-only (RFC 8843 §6).
    alive = [section for section in sections if section.port or "bundle-only" in section.attributes]
    audio = [section for section in alive if section.kind == "audio"]
    if not audio:
        if any(section.kind == "video" for section in alive):
            raise RemoteProtocolError("sdp_video_only", "there is video but no audio; a call needs an audio section")
        raise RemoteProtocolError("sdp_no_audio", "there is no audio section")
    usable = [section for section in audio if section.profile in ("UDP/TLS/RTP/SAVPF", "UDP/TLS/RTP/SAVP")]
    if not usable:
        raise RemoteProtocolError("sdp_no_dtls", "audio must be offered as UDP/TLS/RTP/SAVPF")
    if len({section.mid for section in sections}) != len(sections):
        raise _malformed("two sections have one mid")
    return usable[0]


def _payload_types(audio: Section) -> tuple[int, int | None]:
    opus: int | None = None
    red: int | None = None
    for value in audio.attributes.get("rtpmap", []):
        match = _RTPMAP.fullmatch(value.strip())
        if match is None or match[1] not in audio.formats or match[3] != "48000":
            continue
        name, number = match[2].lower(), int(match[1])
        if name == "opus" and opus is None and 96 <= number < 128:
            opus = number
        elif name == "red" and red is None and 35 <= number < 128 and not 64 <= number < 96:
            red = number
    if opus is None:
        raise RemoteProtocolError("sdp_no_opus", "the audio section does not offer opus/48000/2")
    return opus, red


def _data_section(sections: tuple[Section, ...], audio: Section, bundle: tuple[str, ...]) -> Section | None:
    for section in sections:
        if (
            section.kind == "application"
            and (section.port or "bundle-only" in section.attributes)
            and section.profile == "UDP/DTLS/SCTP"
            and section.formats == ("webrtc-datachannel",)
            and audio.mid in bundle
            and section.mid in bundle
            and re.fullmatch(r"\d{1,5}", section.first("sctp-port") or "5000")
            and re.fullmatch(r"\d{1,10}", section.first("max-message-size") or "65536")
        ):
            return section
    return None


def _extensions(audio: Section) -> list[tuple[int, str]]:
    found = []
    for value in audio.attributes.get("extmap", []):
        match = _EXTMAP.fullmatch(value.strip())
        if match is not None and 1 <= int(match[1]) <= 14 and match[2] in KNOWN_EXTENSIONS:
            found.append((int(match[1]), match[2]))
    return found


def _ssrc(audio: Section) -> int | None:
    for value in audio.attributes.get("ssrc", []):
        number = value.split(" ")[0]
        if number.isascii() and number.isdigit() and int(number) < 2**32:
            return int(number)
    return None


def _candidates(sections: tuple[Section, ...], audio: Section, bundle: tuple[str, ...]) -> tuple[Candidate, ...]:
    # Where audio is not the first of its bundle, its candidates may stand in another section of it.
    others = [section for section in sections if section.mid in bundle and audio.mid in bundle]
    for section in (audio, *others):
        values = section.attributes.get("candidate", [])[:MAX_CANDIDATES]
        if values:
            return tuple(candidate for value in values if (candidate := parse_candidate(value)) is not None)
    return ()


def _mid_of(lines: list[str]) -> str:
    return next((line[6:] for line in lines if line.startswith("a=mid:")), "")
