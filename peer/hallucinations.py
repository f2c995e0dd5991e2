"""What a Whisper-like model writes that nobody said, taken out of its transcripts. Pure.

Such models repeat themselves where a short encoder window ends in little silence, write subtitles' phrases over
silence, and describe sounds in brackets. Each filter needs evidence from the model's own figures or from the length of
the audio, so that a caller who does say "thank you" is heard.
"""

from __future__ import annotations

import re
from typing import Final

from peer.engines.base import Transcript
from peer.words import normalize, split_units

_SOUNDS: Final = (
    "music|applause|laughter|noise|silence|inaudible|beep|sigh|cough|coughing|laughing|clicking|static|wind"
)
_ANNOTATION: Final = re.compile(rf"\[[^\]]*\]|\([^()]*\b(?:{_SOUNDS})\b[^()]*\)|[♪♫*]+[^♪♫*]*[♪♫*]+|[♪♫]")
_PHANTOMS: Final = frozenset({
    "you", "thankyou", "thanks", "thanksforwatching", "thankyouforwatching", "thankyouverymuch", "bye", "byebye",
    "pleasesubscribe", "so", "oh", "theend", "i'msorry", "subtitlesbytheamaraorgcommunity", "谢谢",
    "谢谢观看", "谢谢大家",
    "字幕由amaraorg社区提供",
})  # fmt: skip
"""Phrases of film subtitles that stand for silence in the models' training data; spaces left out."""
_SURE_NO_SPEECH: Final = 0.6
_LIKELY_NO_SPEECH: Final = 0.25
_GUESS: Final = -0.8
"""Average log probability below which a transcript is a guess."""
_MOST_UNITS_PER_S: Final = 7.0
"""Nobody speaks more words a second, or half as many again characters of Chinese."""
_SHORT_MS: Final = 600.0
_SENTENCE_ENDS: Final = (".", "?", "!", "。", "？", "！", "…")


def clean_transcript(transcript: Transcript, *, audio_ms: float) -> str:
    """Return the text of `transcript` without what `audio_ms` of audio cannot have held; "" where it held no speech."""
    text = _ANNOTATION.sub(" ", transcript.text)
    text = re.sub(r"\s+", " ", text).strip()
    if not any(char.isalnum() for char in text):
        return ""
    guess = transcript.average_log_probability < _GUESS
    if transcript.no_speech_probability > _SURE_NO_SPEECH and guess:
        return ""
    weak = guess or transcript.no_speech_probability > _LIKELY_NO_SPEECH or audio_ms < _SHORT_MS
    if weak and normalize(text.replace(" ", "")) in _PHANTOMS:
        return ""
    return _bound(cut_loop(text), audio_ms)


def cut_loop(text: str) -> str:
    """Return `text` up to where it begins to repeat itself to its very end.

    Two kinds of loop are known: the text starts over from one of its sentences once it is complete, and one phrase is
    said three times or more.
    """
    units = split_units(text)
    words = [normalize(unit) for unit in units]
    for cut in range(3, len(units)):
        tail = words[cut:]
        if not units[cut - 1].rstrip().endswith(_SENTENCE_ENDS):
            # Without a sentence's end before it, only a long copy of the very beginning is a loop.
            if len(tail) >= 3 and cut >= 4 and tail == words[: len(tail)]:
                return "".join(units[:cut]).rstrip()
            continue
        starts = [0, *(at for at in range(1, cut) if units[at - 1].rstrip().endswith(_SENTENCE_ENDS))]
        copies = any(_goes_round(words[start:cut], tail) for start in starts)
        unfinished = not units[-1].rstrip().endswith(_SENTENCE_ENDS)
        if copies and (unfinished or len(tail) >= 3):
            return "".join(units[:cut]).rstrip()
    return _cut_repeated_phrase(units, words)


def _goes_round(words: list[str], tail: list[str]) -> bool:
    """Return whether `tail` is `words` over again, as often as it likes."""
    return all(word == words[at % len(words)] for at, word in enumerate(tail))


def _cut_repeated_phrase(units: list[str], words: list[str]) -> str:
    for length in range(1, len(words) // 3 + 1):
        phrase = words[-length:]
        times = 1
        while words[len(words) - length * (times + 1) : len(words) - length * times] == phrase:
            times += 1
        if times >= (4 if length == 1 else 3):
            return "".join(units[: len(units) - length * (times - 1)]).rstrip()
    return "".join(units).rstrip()


def _bound(text: str, audio_ms: float) -> str:
    units = split_units(text)
    wide = sum(not unit.isascii() for unit in units) * 2 > len(units)
    most = int(audio_ms / 1000 * _MOST_UNITS_PER_S * (1.5 if wide else 1.0)) + 3
    return "".join(units[:most]).rstrip()
