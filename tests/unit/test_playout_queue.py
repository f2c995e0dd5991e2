"""The outbound queue: exact frames, the text that was heard, and what a barge-in does to both."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sounds import rms, tone
from transport.errors import LocalProtocolError
from transport.playout_queue import FRAME_SAMPLES, MAX_QUEUED_SAMPLES, PlayoutQueue


def drain(queue: PlayoutQueue, frames: int | None = None) -> np.ndarray:
    out: list[np.ndarray] = []
    while frames is None or len(out) < frames:
        frame = queue.pull(now=0.0)
        if frame is None:
            break
        out.append(frame)
    return np.concatenate(out) if out else np.zeros(0, dtype=np.int16)


def four_words(gap_samples: int = 2400) -> np.ndarray:
    """Four bursts of tone of 0.25 s with 50 ms between them: a "sentence" of four equal words."""
    gap = np.zeros(gap_samples, dtype=np.int16)
    return np.concatenate([part for n in range(4) for part in (tone(0.25, 300 + 100 * n), gap)])


def test_pieces_of_any_length_come_out_as_whole_frames_in_order() -> None:
    queue = PlayoutQueue()
    sound = np.arange(20_000, dtype=np.int16)
    rng = np.random.default_rng(1)
    position = 0
    while position < len(sound):
        step = int(rng.integers(1, 3000))
        queue.capture_frame(sound[position : position + step])
        position += step
    queue.flush()
    out = drain(queue)
    assert len(out) == -(-20_000 // 960) * 960
    assert np.array_equal(out[:20_000], sound)
    assert not out[20_000:].any()


def test_a_part_of_a_frame_waits_for_the_rest_or_for_flush() -> None:
    queue = PlayoutQueue()
    queue.capture_frame(tone(0.019, 300))
    assert queue.pull(now=0.0) is None
    assert queue.queued_ms == pytest.approx(19.0)
    queue.flush()
    assert queue.playing is True
    assert drain(queue).shape == (960,)
    assert queue.queued_ms == 0
    queue.flush()
    assert queue.pull(now=0.0) is None


def test_a_long_stream_stays_in_order_while_the_buffer_moves_and_grows() -> None:
    queue = PlayoutQueue()
    sound = np.random.default_rng(2).integers(-9000, 9000, 60 * 48_000).astype(np.int16)
    heard = []
    for n, at in enumerate(range(0, len(sound), 48_000)):
        queue.capture_frame(sound[at : at + 48_000])
        heard.append(drain(queue, 20 if n < 10 else 80))
    heard.append(drain(queue))
    assert np.array_equal(np.concatenate(heard), sound)
    assert len(queue._buffer) < 64 * 48_000


def test_text_is_heard_once_its_sound_has_been_pulled() -> None:
    queue = PlayoutQueue()
    queue.capture_frame(four_words(), text="One two.")
    queue.capture_frame(four_words(), text="Three four.")
    queue.flush()
    assert queue.position.heard_text == ""
    drain(queue, 60)
    assert queue.position.heard_text == "One two."
    drain(queue)
    assert queue.clear_buffer(now=0.0).heard_text == "One two. Three four."
    assert queue.clear_buffer(now=0.0).samples == 0


def test_interrupted_text_is_cut_at_the_word_that_was_heard() -> None:
    for words, frames in ((0, 5), (1, 15), (2, 29), (3, 45), (4, 60)):
        queue = PlayoutQueue()
        queue.capture_frame(four_words(), text="abcd efgh ijkl mnop")
        queue.flush()
        drain(queue, frames)
        position = queue.clear_buffer(now=0.0)
        assert position.heard_text == " ".join(["abcd", "efgh", "ijkl", "mnop"][:words])
        assert position.samples == frames * 960
        assert queue.queued_ms == 0


def test_silence_around_a_text_voices_no_word() -> None:
    queue = PlayoutQueue()
    silence = np.zeros(48_000, dtype=np.int16)
    queue.capture_frame(np.concatenate([silence, four_words(), silence]), text="abcd efgh ijkl mnop")
    queue.flush()
    drain(queue, 50)
    assert queue.position.heard_text == ""
    drain(queue, 60)
    assert queue.position.heard_text == "abcd efgh ijkl mnop"


def test_a_text_whose_sound_is_still_being_made_is_not_counted_as_said() -> None:
    queue = PlayoutQueue()
    text = "a sentence of about forty five characters in all"
    queue.capture_frame(tone(0.5, 300), text=text)
    drain(queue)
    heard = queue.position.heard_text
    assert text.startswith(heard)
    assert 0 < len(heard) < 12
    queue.capture_frame(tone(2.5, 300))
    queue.flush()
    drain(queue)
    assert queue.position.heard_text == text


def test_clear_stops_the_sound_with_a_short_fade_and_the_next_reply_starts_clean() -> None:
    queue = PlayoutQueue()
    queue.capture_frame(tone(2.0, 300), text="old")
    drain(queue, 10)
    queue.clear_buffer(now=0.0)
    last = queue.pull(now=0.0)
    assert last is not None
    assert not last[240:].any()
    assert abs(int(last[230])) < 0.2 * 8000
    assert queue.pull(now=0.0) is None
    new = tone(0.02, 700)
    queue.capture_frame(new, text="new")
    assert np.array_equal(drain(queue), new)
    assert queue.position.heard_text in ("", "new")


def test_clear_before_the_first_sound_sends_nothing() -> None:
    queue = PlayoutQueue()
    queue.capture_frame(tone(1.0, 300), text="never said")
    assert queue.clear_buffer(now=0.0).heard_text == ""
    assert queue.pull(now=0.0) is None


def test_duck_holds_and_restore_goes_on_from_the_ducked_word() -> None:
    queue = PlayoutQueue()
    sound = four_words()
    queue.capture_frame(sound, text="abcd efgh ijkl mnop")
    queue.flush()
    drain(queue, 20)  # 400 ms: in the second word, which starts at 300 ms
    queue.duck(now=0.0)
    assert queue.ducked
    assert not queue.playing
    faded = queue.pull(now=0.0)
    assert faded is not None
    assert not faded[240:].any()
    assert queue.pull(now=0.0) is None
    assert queue.queued_ms > 700
    queue.restore(now=0.0)
    rest = drain(queue)
    # It starts in the pause before the second word and holds that word whole.
    starts = [n for n in range(12_000, 14_401) if np.array_equal(rest[240 : len(sound) - n], sound[n + 240 :])]
    assert len(starts) == 1
    assert len(rest) == -(-(len(sound) - starts[0]) // FRAME_SAMPLES) * FRAME_SAMPLES
    assert queue.position.heard_text == "abcd efgh ijkl mnop"


def test_what_was_heard_before_a_duck_stays_heard_after_restore() -> None:
    queue = PlayoutQueue()
    queue.capture_frame(four_words(), text="abcd efgh ijkl mnop")
    queue.flush()
    drain(queue, 29)
    before = queue.position
    queue.duck(now=0.0)
    queue.restore(now=0.0)
    assert queue.position == before
    assert queue.clear_buffer(now=0.0) == before


def test_duck_then_clear_tells_the_position_of_the_duck() -> None:
    queue = PlayoutQueue()
    queue.capture_frame(four_words(), text="abcd efgh ijkl mnop")
    drain(queue, 29)
    queue.duck(now=0.0)
    drain(queue)
    position = queue.clear_buffer(now=0.0)
    assert position.samples == 29 * 960
    assert not queue.ducked


def test_restore_without_duck_and_duck_of_silence_change_nothing() -> None:
    queue = PlayoutQueue()
    sound = tone(0.4, 300)
    queue.capture_frame(sound)
    drain(queue, 5)
    queue.restore(now=0.0)
    assert np.array_equal(drain(queue), sound[5 * 960 :])
    queue.duck(now=0.0)
    assert queue.pull(now=0.0) is None
    queue.capture_frame(sound)
    assert queue.pull(now=0.0) is None
    queue.restore(now=0.0)
    assert len(drain(queue)) == len(sound)


def test_callbacks_tell_of_the_first_sound_and_of_the_last() -> None:
    queue = PlayoutQueue()
    log: list[str] = []
    queue.on_capture = lambda: log.append("sound")
    queue.on_drained = lambda now: log.append(f"drained {now}")
    queue.capture_frame(tone(0.01, 300))
    assert log == []
    queue.capture_frame(tone(0.05, 300))
    queue.capture_frame(tone(0.02, 300))
    assert log == ["sound"]
    while queue.pull(now=7.0) is not None:
        pass
    assert log == ["sound", "drained 7.0"]
    queue.capture_frame(tone(0.02, 300))
    queue.clear_buffer(now=8.0)
    assert log == ["sound", "drained 7.0", "sound", "drained 8.0"]


def test_a_runaway_voice_is_refused() -> None:
    queue = PlayoutQueue()
    with pytest.raises(LocalProtocolError):
        queue.capture_frame(np.zeros(MAX_QUEUED_SAMPLES + 1, dtype=np.int16))


def test_a_restored_voice_fades_in() -> None:
    queue = PlayoutQueue()
    queue.capture_frame(tone(1.0, 300), text="word")
    drain(queue, 10)
    queue.duck(now=0.0)
    queue.restore(now=0.0)
    first = queue.pull(now=0.0)
    assert first is not None
    assert rms(first[:40]) < 0.2 * rms(first[480:])
