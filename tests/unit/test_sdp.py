"""Session descriptions of every kind: what is taken, what is refused and in which words, what we write."""

from __future__ import annotations

import contextlib
import random
import re

import pytest
from aiortc.sdp import SessionDescription
from hypothesis import given, settings
from hypothesis import strategies as st

from transport.errors import RemoteProtocolError
from transport.sdp import Dress, dress, read_description
from transport.sdp_candidates import parse_candidate

FINGERPRINT = "sha-256 " + ":".join(f"{n:02X}" for n in range(32))
HEAD = ["v=0", "o=- 46117 2 IN IP4 127.0.0.1", "s=-", "t=0 0", "a=group:BUNDLE 0 1 2", "a=msid-semantic: WMS s"]
TRANSPORT = [
    "a=ice-ufrag:abcd",
    "a=ice-pwd:0123456789abcdefghijkl",
    "a=ice-options:trickle",
    f"a=fingerprint:{FINGERPRINT}",
    "a=setup:actpass",
]
AUDIO = [
    "m=audio 9 UDP/TLS/RTP/SAVPF 111 63 9 0 8 13 110 126",
    "c=IN IP4 0.0.0.0",
    "a=rtcp:9 IN IP4 0.0.0.0",
    "a=candidate:1 1 udp 2122260223 192.168.1.7 50000 typ host generation 0",
    "a=candidate:2 1 tcp 1518280447 192.168.1.7 9 typ host tcptype active generation 0",
    "a=candidate:3 1 udp 2122260223 0a1b2c3d.local 50001 typ host generation 0",
    *TRANSPORT,
    "a=mid:0",
    "a=extmap:1 urn:ietf:params:rtp-hdrext:ssrc-audio-level",
    "a=extmap:3 http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01",
    "a=sendrecv",
    "a=rtcp-mux",
    "a=rtpmap:111 opus/48000/2",
    "a=rtcp-fb:111 transport-cc",
    "a=fmtp:111 minptime=10;useinbandfec=1",
    "a=rtpmap:63 red/48000/2",
    "a=fmtp:63 111/111",
    "a=rtpmap:9 G722/8000",
    "a=rtpmap:126 telephone-event/8000",
    "a=ssrc:3735928559 cname:c",
]
VIDEO = [
    "m=video 9 UDP/TLS/RTP/SAVPF 96",
    "c=IN IP4 0.0.0.0",
    *TRANSPORT,
    "a=mid:1",
    "a=rtcp-mux",
    "a=rtpmap:96 VP8/90000",
]
DATA = ["m=application 9 UDP/DTLS/SCTP webrtc-datachannel", *TRANSPORT, "a=mid:2", "a=sctp-port:5000"]


def sdp(*sections: list[str], head: list[str] = HEAD) -> str:
    return "\r\n".join(line for lines in (head, *sections) for line in lines) + "\r\n"


def without(lines: list[str], prefix: str) -> list[str]:
    return [line for line in lines if not line.startswith(prefix)]


def swapped(lines: list[str], old: str, new: str) -> list[str]:
    return [new if line == old else line for line in lines]


# aiortc's answer to the plain form of AUDIO and DATA
ANSWER = sdp(
    [
        "m=audio 40000 UDP/TLS/RTP/SAVPF 111",
        "c=IN IP4 127.0.0.1",
        "a=sendrecv",
        "a=mid:0",
        "a=rtcp-mux",
        "a=rtpmap:111 opus/48000/2",
        "a=candidate:0123456789abcdef0123456789abcdef 1 udp 2130706431 127.0.0.1 40000 typ host",
        "a=candidate:ee 1 udp 1694498815 198.51.100.3 40000 typ srflx raddr 10.0.0.1 rport 40000",
        "a=end-of-candidates",
    ],
    ["m=application 40000 UDP/DTLS/SCTP webrtc-datachannel", "c=IN IP4 127.0.0.1", "a=mid:2"],
    head=["v=0", "o=- 1 1 IN IP4 0.0.0.0", "s=-", "t=0 0", "a=group:BUNDLE 0 2"],
)


def test_a_browsers_offer_is_read() -> None:
    offer = read_description(sdp(AUDIO, VIDEO, DATA), "offer")
    assert (offer.opus_payload_type, offer.red_payload_type, offer.nack) == (111, 63, False)
    assert (offer.ice_ufrag, offer.setup, offer.direction, offer.ssrc) == ("abcd", "actpass", "sendrecv", 3735928559)
    assert [(c.address, c.port) for c in offer.candidates] == [("192.168.1.7", 50000)]
    assert offer.data is not None
    assert offer.data.mid == "2"


def test_the_plain_form_is_what_aiortc_reads_and_says_the_same() -> None:
    plain = SessionDescription.parse(read_description(sdp(VIDEO, DATA, AUDIO), "offer").plain())
    assert [media.kind for media in plain.media] == ["audio", "application"]
    audio = plain.media[0]
    assert [codec.mimeType for codec in audio.rtp.codecs] == ["audio/opus"]
    assert audio.rtp.codecs[0].payloadType == 111
    assert [extension.id for extension in audio.rtp.headerExtensions] == [1]
    assert audio.ice is not None
    assert audio.ice.usernameFragment == "abcd"
    assert audio.dtls is not None
    assert audio.dtls.role == "auto"
    assert audio.rtcp_mux
    assert audio.ssrc[0].ssrc == 3735928559
    assert all([candidate.ip for candidate in media.ice_candidates] == ["192.168.1.7"] for media in plain.media)


@pytest.mark.parametrize(
    ("offer", "code"),
    [
        ("", "sdp_malformed"),
        ("hello", "sdp_malformed"),
        ('{"sdp": "v=0"}', "sdp_malformed"),
        ("v=0\r\nthis is no line\r\n", "sdp_malformed"),
        ("v=0\r\nm=audio\r\n", "sdp_malformed"),
        (sdp(), "sdp_no_audio"),
        (sdp(DATA), "sdp_no_audio"),
        (sdp(VIDEO), "sdp_video_only"),
        (sdp(swapped(AUDIO, AUDIO[0], AUDIO[0].replace("audio 9", "audio 0"))), "sdp_no_audio"),
        (sdp(without(AUDIO, "a=rtpmap:111")), "sdp_no_opus"),
        (sdp(swapped(AUDIO, "a=rtpmap:111 opus/48000/2", "a=rtpmap:111 opus/8000")), "sdp_no_opus"),
        (sdp(without(AUDIO, "a=ice-ufrag")), "sdp_no_ice"),
        (sdp(without(AUDIO, "a=ice-pwd")), "sdp_no_ice"),
        (sdp(swapped(AUDIO, TRANSPORT[1], "a=ice-pwd:short")), "sdp_no_ice"),
        (sdp(without(AUDIO, "a=fingerprint")), "sdp_no_dtls"),
        (sdp(swapped(AUDIO, TRANSPORT[3], "a=fingerprint:md5 00:11")), "sdp_no_dtls"),
        (sdp(without(AUDIO, "a=setup")), "sdp_no_dtls"),
        (sdp(swapped(AUDIO, "a=setup:actpass", "a=setup:holdconn")), "sdp_no_dtls"),
        (sdp(swapped(AUDIO, AUDIO[0], AUDIO[0].replace("UDP/TLS/RTP/SAVPF", "RTP/AVP"))), "sdp_no_dtls"),
        (sdp(without(AUDIO, "a=rtcp-mux")), "sdp_no_rtcp_mux"),
        (sdp(swapped(AUDIO, "a=sendrecv", "a=recvonly")), "sdp_not_sending"),
        (sdp(swapped(AUDIO, "a=sendrecv", "a=inactive")), "sdp_not_sending"),
        (sdp(AUDIO, AUDIO), "sdp_malformed"),
        (sdp(*[VIDEO] * 40), "sdp_malformed"),
        (sdp(AUDIO) + "a=" + "x" * 70_000, "sdp_too_large"),
    ],
)
def test_a_bad_offer_is_refused_with_the_rule_it_breaks(offer: str, code: str) -> None:
    with pytest.raises(RemoteProtocolError) as refused:
        read_description(offer, "offer")
    assert refused.value.code == code
    assert len(str(refused.value)) > 10


def test_transport_attributes_may_stand_at_session_level() -> None:
    offer = read_description(sdp([line for line in AUDIO if line not in TRANSPORT], head=HEAD + TRANSPORT), "offer")
    assert (offer.ice_ufrag, offer.setup) == ("abcd", "actpass")


def test_line_endings_may_be_bare() -> None:
    assert read_description(sdp(AUDIO).replace("\r\n", "\n"), "offer").opus_payload_type == 111


def test_an_answer_may_not_leave_the_role_open() -> None:
    with pytest.raises(RemoteProtocolError) as refused:
        read_description(sdp(AUDIO), "answer")
    assert refused.value.code == "sdp_no_dtls"
    active = swapped(AUDIO, "a=setup:actpass", "a=setup:active")
    assert read_description(sdp(active), "answer").setup == "active"


def test_nack_is_read_for_opus_and_for_all() -> None:
    for payload_type, offered in (("111", True), ("*", True), ("9", False)):
        offer = read_description(sdp([*AUDIO, f"a=rtcp-fb:{payload_type} nack"]), "offer")
        assert offer.nack is offered


def test_a_data_channel_outside_the_bundle_is_left_out() -> None:
    head = swapped(HEAD, "a=group:BUNDLE 0 1 2", "a=group:BUNDLE 0 1")
    assert read_description(sdp(AUDIO, DATA, head=head), "offer").data is None


def test_candidates_of_the_bundles_first_section_serve_for_audio() -> None:
    bare = without(AUDIO, "a=candidate")
    data = [*DATA, "a=candidate:1 1 udp 1 192.0.2.1 1234 typ host"]
    assert [c.port for c in read_description(sdp(data, bare), "offer").candidates] == [1234]


def test_the_answer_refuses_video_in_its_place_and_keeps_the_rest() -> None:
    offer = read_description(sdp(VIDEO, AUDIO, DATA), "offer")
    answer = dress(ANSWER, Dress(), offer=offer)
    assert re.findall(r"^m=(\w+) (\d+)", answer, re.MULTILINE) == [
        ("video", "0"),
        ("audio", "40000"),
        ("application", "40000"),
    ]
    assert "a=group:BUNDLE 0 2\r\n" in answer
    assert "a=mid:1\r\n" in answer
    parsed = SessionDescription.parse(
        answer.replace("m=video 0 UDP/TLS/RTP/SAVPF 96", "m=video 0 UDP/TLS/RTP/SAVPF 96")
    )
    assert [media.rtp.muxId for media in parsed.media] == ["1", "0", "2"]


def test_an_answer_to_an_unbundled_offer_names_no_bundle() -> None:
    offer = read_description(sdp(AUDIO, head=without(HEAD, "a=group")), "offer")
    audio_only = ANSWER[: ANSWER.index("m=application")].replace("BUNDLE 0 2", "BUNDLE 0")
    assert "BUNDLE" not in dress(audio_only, Dress(), offer=offer)


def test_opus_is_answered_mono_with_fec() -> None:
    answer = dress(ANSWER, Dress(), offer=read_description(sdp(AUDIO, DATA), "offer"))
    fmtp = re.findall(r"^a=fmtp:111 (.*)\r$", answer, re.MULTILINE)
    assert fmtp == ["minptime=10;stereo=0;sprop-stereo=0;useinbandfec=1"]
    assert "rtcp-fb" not in answer
    assert "red/" not in answer


@pytest.mark.parametrize(("red", "formats"), [("off", "111"), ("accept", "111 63"), ("prefer", "63 111")])
def test_nack_and_red_are_written_as_browsers_read_them(red: str, formats: str) -> None:
    offer = read_description(sdp(AUDIO, DATA), "offer")
    answer = dress(ANSWER, Dress(nack=True, red=red, red_payload_type=63), offer=offer)  # type: ignore[arg-type]
    assert f"m=audio 40000 UDP/TLS/RTP/SAVPF {formats}\r\n" in answer
    assert "a=rtcp-fb:111 nack\r\n" in answer
    assert ("a=rtpmap:63 red/48000/2\r\na=fmtp:63 111/111\r\n" in answer) is (red != "off")
    read = read_description(answer.replace("a=mid:0", "a=mid:0\r\n" + "\r\n".join(TRANSPORT)), "offer")
    assert (read.nack, read.red_payload_type) == (True, None if red == "off" else 63)


def test_a_public_address_stands_beside_each_host_candidate() -> None:
    answer = dress(ANSWER, Dress(public_address="203.0.113.9"), offer=read_description(sdp(AUDIO, DATA), "offer"))
    candidates = [parse_candidate(value) for value in re.findall(r"^a=(candidate:.*)\r$", answer, re.MULTILINE)]
    assert [(c.address, c.type) for c in candidates if c] == [
        ("203.0.113.9", "host"),
        ("127.0.0.1", "host"),
        ("198.51.100.3", "srflx"),
    ]
    assert "c=IN IP4 203.0.113.9" in answer


def test_a_public_address_does_not_stand_for_loopback_where_there_is_an_interface() -> None:
    interface = "a=candidate:0123 1 udp 2130706431 10.0.0.5 40001 typ host"
    answer = dress(
        ANSWER.replace("a=end-of-candidates", f"{interface}\r\na=end-of-candidates"),
        Dress(public_address="203.0.113.9"),
        offer=read_description(sdp(AUDIO, DATA), "offer"),
    )
    assert re.findall(r"203\.0\.113\.9 (\d+) typ", answer) == ["40001"]


@pytest.mark.parametrize(
    "text",
    [
        "candidate:1 1 tcp 1 192.0.2.1 9 typ host tcptype active",
        "candidate:1 2 udp 1 192.0.2.1 5000 typ host",
        "candidate:1 1 udp 1 name.local 5000 typ host",
        "candidate:1 1 udp 1 192.0.2.1 0 typ host",
        "candidate:1 1 udp 1 192.0.2.1 70000 typ host",
        "candidate:1 1 udp 1 192.0.2.999 5000 typ host",
        "candidate:1 1 udp 9999999999 192.0.2.1 5000 typ host",
        "candidate:1 1 udp 1 192.0.2.1 5000 typ magic",
        "",
        "candidate:",
    ],
)
def test_candidates_of_no_use_are_passed_over(text: str) -> None:
    assert parse_candidate(text) is None


def test_ipv6_candidates_are_read() -> None:
    candidate = parse_candidate("candidate:1 1 UDP 77 2001:db8::1 5000 typ srflx raddr :: rport 9")
    assert candidate is not None
    assert candidate.to_sdp() == "1 1 udp 77 2001:db8::1 5000 typ srflx"


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=400))
def test_no_text_does_more_than_be_refused(text: str) -> None:
    for candidate in (text, "v=0\r\n" + text, sdp(AUDIO) + text):
        with contextlib.suppress(RemoteProtocolError):
            read_description(candidate, "offer").plain()


def test_ten_thousand_damaged_offers_are_refused_or_read_to_something_aiortc_takes() -> None:
    rng = random.Random(11)
    whole = sdp(AUDIO, VIDEO, DATA)
    taken = 0
    for _ in range(10_000):
        damaged = list(whole)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(damaged))
            action = rng.randrange(4)
            if action == 0:
                del damaged[at : at + rng.randint(1, 60)]
            elif action == 1:
                damaged[at:at] = damaged[rng.randrange(len(damaged)) :][: rng.randint(1, 80)]
            elif action == 2:
                damaged[at] = rng.choice("\x00\r\n :=-/19az\ud800é\U0001f600")
            else:
                damaged[at:at] = rng.choice(["\r\na=", "99999999999999", " ", "m=audio 9 UDP/TLS/RTP/SAVPF 111\r\n"])
        try:
            description = read_description("".join(damaged), "offer")
        except RemoteProtocolError:
            continue
        taken += 1
        media = SessionDescription.parse(description.plain()).media
        assert media[0].kind == "audio"
        assert media[0].ice is not None
        assert media[0].dtls is not None
    assert taken > 1000
