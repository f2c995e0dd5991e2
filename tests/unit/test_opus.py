"""libopus by ctypes: what goes in comes out, FEC is there when promised, bad bytes never raise."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sounds import rms, speech_like, tone
from transport import libopus
from transport.errors import LocalProtocolError, OpusError
from transport.opus import OpusDecoder, OpusEncoder, duration_samples, has_lbrr, is_dtx

SPEECH = speech_like(6.0)


def encode_all(encoder: OpusEncoder, samples: np.ndarray) -> list[bytes]:
    return [encoder.encode(samples[i : i + 960]) for i in range(0, len(samples) - 959, 960)]


def test_the_library_is_the_wheels_and_new_enough_to_know_lbrr() -> None:
    assert "av.libs" in libopus.find_libopus()[0] or ".dylibs" in libopus.find_libopus()[0]
    assert hasattr(libopus.load(), "opus_packet_has_lbrr")


def test_speech_comes_out_at_16_khz_with_its_length_and_its_sound() -> None:
    decoder = OpusDecoder()
    heard = np.concatenate([decoder.decode(packet) for packet in encode_all(OpusEncoder(), SPEECH)])
    assert len(heard) == len(SPEECH) // 3
    said = SPEECH[::3].astype(np.float64)
    # Opus delays by a few milliseconds: the best alignment within 20 ms must correlate strongly.
    correlations = [np.corrcoef(said[: -400 or None], np.roll(heard, -lag)[:-400])[0, 1] for lag in range(0, 320, 4)]
    assert max(correlations) > 0.9
    assert rms(heard) == pytest.approx(rms(SPEECH), rel=0.15)


@pytest.mark.parametrize("bitrate_bps", [24_000, 28_000, 32_000, 40_000, 48_000, 64_000])
@pytest.mark.parametrize("expected_loss_pct", [0, 1, 5, 10, 20, 40, 100])
def test_active_frames_carry_lbrr_at_every_bitrate_and_loss(bitrate_bps: int, expected_loss_pct: int) -> None:
    encoder = OpusEncoder(bitrate_bps=bitrate_bps, fec=True, expected_loss_pct=expected_loss_pct)
    packets = encode_all(encoder, SPEECH[:144_000])
    loud = [rms(SPEECH[i : i + 960]) > 500 for i in range(0, 144_000, 960)]
    native = libopus.load().opus_packet_has_lbrr
    active = [packet for n, packet in enumerate(packets) if n and loud[n] and loud[n - 1]]
    assert len(active) > 50
    assert sum(native(packet, len(packet)) == 1 for packet in active) >= 0.9 * len(active)


def test_fec_off_carries_none_and_can_be_turned_on_in_mid_stream() -> None:
    encoder = OpusEncoder(fec=False)
    assert not any(map(has_lbrr, encode_all(encoder, SPEECH[:48_000])))
    encoder.set_fec(True)
    assert sum(map(has_lbrr, encode_all(encoder, SPEECH[48_000:96_000]))) > 20
    encoder.set_fec(False)
    assert not any(map(has_lbrr, encode_all(encoder, SPEECH[:48_000])[1:]))


def test_bitrate_changes_in_mid_stream() -> None:
    encoder = OpusEncoder(bitrate_bps=24_000)
    low = sum(map(len, encode_all(encoder, SPEECH[:96_000])))
    encoder.set_bitrate(64_000)
    assert sum(map(len, encode_all(encoder, SPEECH[:96_000]))) > 1.8 * low


def test_has_lbrr_agrees_with_libopus_on_every_kind_of_packet() -> None:
    native = libopus.load().opus_packet_has_lbrr
    rng = np.random.default_rng(3)
    seen = set()
    for _ in range(20_000):
        body = rng.integers(0, 256, int(rng.integers(3, 40)), dtype=np.uint8).tobytes()
        if duration_samples(body, 48_000) == 0 or len(OpusDecoder._decode(PROBE, body, 5760, fec=0)) == 0:
            continue
        expected = native(body, len(body))
        if expected >= 0:
            assert has_lbrr(body) == bool(expected), body.hex()
            seen.add((body[0] >> 3, body[0] & 7, bool(expected)))
    assert len(seen) > 200


PROBE = OpusDecoder(48_000)


def test_fec_recovers_a_lost_frame_and_concealment_does_less_well() -> None:
    packets = encode_all(OpusEncoder(bitrate_bps=32_000, expected_loss_pct=20), SPEECH)
    clean = OpusDecoder()
    reference = [clean.decode(packet) for packet in packets]
    fec_error = plc_error = 0.0
    recovered = 0
    for lost in range(20, len(packets) - 1, 7):
        if not has_lbrr(packets[lost + 1]) or rms(reference[lost]) < 500:
            continue
        repairs = []
        for use_fec in (True, False):
            decoder = OpusDecoder()
            for packet in packets[lost - 20 : lost]:
                decoder.decode(packet)
            repairs.append(decoder.recover_fec(packets[lost + 1], 320) if use_fec else decoder.conceal(320))
        assert [len(repair) for repair in repairs] == [320, 320]
        recovered += 1
        fec_error += float(np.sum((repairs[0].astype(float) - reference[lost]) ** 2))
        plc_error += float(np.sum((repairs[1].astype(float) - reference[lost]) ** 2))
    assert recovered >= 10
    assert fec_error < 0.5 * plc_error


@pytest.mark.parametrize("samples", [0, 1, 40, 100, 320, 321, 960, 1920, 5000, 16_000])
def test_repairs_give_exactly_the_samples_asked_for(samples: int) -> None:
    packets = encode_all(OpusEncoder(), SPEECH[:48_000])
    decoder = OpusDecoder()
    decoder.decode(packets[10])
    assert decoder.conceal(samples).shape == (samples,)
    assert decoder.recover_fec(packets[20], samples).shape == (samples,)
    assert decoder.recover_fec(b"\xff\xff\xff", samples).shape == (samples,)


def test_concealment_fades_to_silence() -> None:
    decoder = OpusDecoder()
    for packet in encode_all(OpusEncoder(), SPEECH[9600:38_400]):
        decoder.decode(packet)
    hole = decoder.conceal(16_000)
    assert rms(hole[:320]) > 100
    assert rms(hole[-1600:]) < 0.1 * rms(hole[:320])


def test_dtx_shrinks_silence_to_bytes_with_a_refresh_every_400_ms() -> None:
    encoder = OpusEncoder(dtx=True)
    encode_all(encoder, SPEECH[:48_000])
    silent = encode_all(encoder, np.zeros(3 * 48_000, dtype=np.int16))[25:]
    whole = [n for n, packet in enumerate(silent) if not is_dtx(packet)]
    assert 0 < len(whole) < 0.1 * len(silent)
    assert set(np.diff(whole)) == {21} or set(np.diff(whole)) == {20}
    decoder = OpusDecoder()
    assert all(len(decoder.decode(packet)) == 320 for packet in silent)


def test_bytes_that_are_no_opus_decode_to_nothing_and_the_next_packet_still_plays() -> None:
    decoder = OpusDecoder()
    good = encode_all(OpusEncoder(), SPEECH[9600:48_000])
    rng = np.random.default_rng(5)
    for n in range(2000):
        junk = rng.integers(0, 256, int(rng.integers(0, 200)), dtype=np.uint8).tobytes()
        out = decoder.decode(junk)
        assert out.dtype == np.int16
        assert len(out) in (0, decoder.duration_samples(junk))
        decoder.has_fec(junk)
        if n % 100 == 0:
            assert len(decoder.decode(good[10])) == 320
    assert decoder.decode(b"").shape == (0,)
    assert decoder.duration_samples(b"") == 0


@pytest.mark.parametrize(
    ("rate", "frame_ms", "samples"), [(48_000, 20, 960), (48_000, 60, 2880), (16_000, 20, 320), (16_000, 10, 160)]
)
def test_duration_is_known_without_decoding(rate: int, frame_ms: int, samples: int) -> None:
    packet = OpusEncoder().encode(tone(frame_ms / 1000, 300))
    assert duration_samples(packet, rate) == samples


def test_results_do_not_share_the_decoders_buffer() -> None:
    decoder = OpusDecoder()
    packets = encode_all(OpusEncoder(), SPEECH[9600:48_000])
    first = decoder.decode(packets[5])
    kept = first.copy()
    decoder.decode(packets[6])
    assert np.array_equal(first, kept)


def test_reset_makes_a_decoder_new() -> None:
    packets = encode_all(OpusEncoder(), SPEECH[9600:48_000])
    used, new = OpusDecoder(), OpusDecoder()
    for packet in packets[:10]:
        used.decode(packet)
    used.reset()
    assert np.array_equal(used.decode(packets[20]), new.decode(packets[20]))


def test_senseless_settings_are_refused_in_words() -> None:
    encoder = OpusEncoder()
    for call in (
        lambda: OpusEncoder(44_100),
        lambda: OpusDecoder(44_100),
        lambda: encoder.set_bitrate(8000),
        lambda: encoder.set_expected_loss(101),
        lambda: encoder.encode(np.zeros(961, dtype=np.int16)),
    ):
        with pytest.raises(LocalProtocolError, match=r"\d"):
            call()


def test_a_machine_without_libopus_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libopus, "find_libopus", list)
    libopus.load.cache_clear()
    try:
        with pytest.raises(OpusError, match="libopus0"):
            OpusDecoder()
    finally:
        libopus.load.cache_clear()
