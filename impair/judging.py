"""From what was said, told and heard in a call to the figures of its result; a figure that cannot be had says why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from impair.alignment import align
from impair.caller import CallRecord, Marks, Said
from impair.hearing import RATE_HZ, Heard
from impair.measures import Samples, WordErrors, median, word_errors
from impair.results import CallResult
from impair.scorer import Scorer
from transport.messages import ReplyDone, UserTranscript

_NO_MEDIA = "no media was received"
_NO_TRANSCRIPTS = "the target tells no transcripts (OpenAI Realtime events on the data channel would)"
_SPAN_ERROR_S = 0.02
"""Sound is placed to 10 ms, and so is the voice in a recording."""


def judge(
    result: CallResult,
    record: CallRecord,
    marks: Marks,
    heard: Heard | None,
    scorer: Scorer,
    readings: Mapping[str, Samples | None],
) -> None:
    """Fill in the result's figures, turns and timeline; blocks for as long as the models need.

    `readings`: clean speech, at 48 kHz, of the texts that `replies_told` names, as far as there is a voice for it.
    """
    failed = f"the call failed: {result.failure}" if result.failure else ""
    setup = None if record.connected_at is None else (record.connected_at - record.began_at) * 1000
    result.set("setup_ms", setup, failed or "the call never connected")
    result.set("rtt_ms", record.rtt_ms, failed or "no round trip was measured in so short a call")
    result.set("missed_replies", None if failed and not record.said else marks.missing_replies, failed)
    _judge_turns(result, record, marks, heard, failed)
    _judge_words(result, record, marks, failed)
    _judge_sound(result, record, marks, heard, Ears(scorer, readings), failed)
    _judge_interruption(result, record, marks, heard, failed)
    _judge_outage(result, record, marks, failed)
    result.set("moved_ms", marks.moved_ms, failed or marks.no_move)
    result.timeline = _timeline(record, marks, heard)


def replies_told(record: CallRecord) -> list[str]:
    """The texts of the whole replies that the target says were heard, one for each thing said."""
    texts = (_reply(replies, "heard_text") for _, replies in _told(record))
    return [text for text in texts if text is not None]


class Ears:
    """Word errors of sound against a text, what the recogniser itself gets wrong of that text left out."""

    def __init__(self, scorer: Scorer, readings: Mapping[str, Samples | None]) -> None:
        self._scorer = scorer
        self._readings = readings

    def words(self, sound: Samples, reply: str) -> tuple[str | None, WordErrors, str]:
        """(what was understood, errors, reason where nothing can be understood).

        Against the text, or against what is understood in a clean reading of it, whichever is fewer: a recogniser
        that hears "Francis Paris" in every "France is Paris" says nothing of the network by it.
        """
        text, why = self._scorer.transcribe(sound, RATE_HZ)
        if text is None:
            return None, WordErrors(0, 0), why
        errors = word_errors(reply, text)
        reading = self._readings.get(reply)
        if errors.errors and reading is not None and len(reading):
            clean, _ = self._scorer.transcribe(reading, RATE_HZ)
            if clean is not None:
                errors = WordErrors(min(errors.errors, word_errors(clean, text).errors), errors.words)
        return text, errors, why

    def sound(self, sound: Samples) -> tuple[float | None, str]:
        """PLCMOS, or why not."""
        return self._scorer.plcmos(sound, RATE_HZ)


def _turn_ends(record: CallRecord, marks: Marks) -> list[tuple[Said, float]]:
    """Each thing said, with the moment at which the next began."""
    ends = [said.began_at for said in record.said[1:]] + [marks.ended_at]
    return list(zip(record.said, ends, strict=False))


def _told(record: CallRecord) -> list[tuple[list[UserTranscript], list[ReplyDone]]]:
    """For each thing said the transcripts and replies that belong to it, by the target's own turn numbers."""
    told: list[tuple[list[UserTranscript], list[ReplyDone]]] = [([], []) for _ in record.said]
    if not record.said:
        return told
    heard = [
        (at, message)
        for at, message in record.messages
        if isinstance(message, UserTranscript) and message.text and at >= record.said[0].began_at
    ]
    places = align(
        [(said.began_at, said.clip.text or "") for said in record.said], [(at, message.text) for at, message in heard]
    )
    turns: dict[int, int] = {}
    for (_, message), place in zip(heard, places, strict=True):
        told[place][0].append(message)
        turns[message.turn] = place
    for _, done in record.messages:
        if isinstance(done, ReplyDone) and done.turn in turns:
            told[turns[done.turn]][1].append(done)
    return told


def _judge_turns(result: CallResult, record: CallRecord, marks: Marks, heard: Heard | None, failed: str) -> None:
    waits: list[float] = []
    for (said, end), (transcripts, replies) in zip(_turn_ends(record, marks), _told(record), strict=True):
        first = next((at for at in heard.onsets if said.speech_ended_at < at < end), None) if heard else None
        if first is not None and _role(said, marks) == "turn":
            waits.append((first - said.speech_ended_at) * 1000)
        result.turns.append(
            {
                "said": said.clip.text or f"({said.clip.name})",
                "understood": _understood(transcripts),
                "replied": _reply(replies, "reply_text") or _cut_off(replies),
                "heard": None,
                "voice_to_voice_ms": None if first is None else round((first - said.speech_ended_at) * 1000),
                "role": _role(said, marks),
            }
        )
    result.set("voice_to_voice_ms", median(waits), failed or "no reply was heard")


def _reply(replies: list[ReplyDone], field: str) -> str | None:
    texts = [getattr(done, field) for done in replies if done.status != "interrupted"]
    return " ".join(text for text in texts if text) or None


def _cut_off(replies: list[ReplyDone]) -> str | None:
    """How far a reply came that was interrupted, as the report tells it."""
    cut = next((done for done in replies if done.status == "interrupted"), None)
    return None if cut is None else f"(cut off) {cut.heard_text}".strip()


def _role(said: Said, marks: Marks) -> str:
    if said is marks.interruption:
        return "interrupting"
    return "after the outage" if said is marks.after_outage else "turn"


def _understood(transcripts: list[UserTranscript]) -> str | None:
    return " ".join(message.text for message in transcripts) or None


def _judge_words(result: CallResult, record: CallRecord, marks: Marks, failed: str) -> None:
    tells = any(isinstance(message, UserTranscript) for _, message in record.messages)
    total, after = WordErrors(0, 0), WordErrors(0, 0)
    for said, (transcripts, _) in zip(record.said, _told(record), strict=True):
        if said.clip.text is None or said is marks.interruption:
            continue  # what is said over a reply is another question than what the network does to words
        errors = word_errors(said.clip.text, _understood(transcripts) or "")
        if said is marks.after_outage:
            after += errors
        else:
            total += errors
    unknown = "the recordings have no text beside them (NAME.txt)"
    why = failed or (_NO_TRANSCRIPTS if not tells else unknown)
    result.set("uplink_wer", _percent(total) if tells else None, why)
    result.set("after_outage_wer", _percent(after) if tells else None, why)


def _percent(errors: WordErrors) -> float | None:
    return None if errors.rate is None else 100 * errors.rate


def _judge_sound(
    result: CallResult, record: CallRecord, marks: Marks, heard: Heard | None, ears: Ears, failed: str
) -> None:
    result.set("effective_loss_pct", heard.concealed_pct if heard else None, failed or _NO_MEDIA)
    result.set("delay_ms", heard.delay_ms if heard else None, failed or _NO_MEDIA)
    if heard is None:
        result.set("downlink_wer", None, failed or _NO_MEDIA)
        result.set("plcmos", None, failed or _NO_MEDIA)
        return
    errors, scores, why_words, why_score = WordErrors(0, 0), [], "", ""
    told = zip(_turn_ends(record, marks), _told(record), result.turns, strict=True)
    for (said, end), (_, replies), turn in told:
        if said is marks.after_outage or _was_interrupted(said, record, marks):
            continue
        sound = heard.sound_between(said.speech_ended_at, end)
        score, why_score = ears.sound(sound)
        scores += [score] if score is not None else []
        reply = _reply(replies, "heard_text")
        if reply is None:
            why_words = "the target tells no text of its replies"
            continue
        turn["heard"], wrong, why_words = ears.words(sound, reply)
        errors += wrong
    result.set("plcmos", median(scores), failed or why_score or "no whole reply was heard")
    result.set("downlink_wer", _percent(errors), failed or why_words or "no whole reply was heard")


def _was_interrupted(said: Said, record: CallRecord, marks: Marks) -> bool:
    index = record.said.index(said)
    return index + 1 < len(record.said) and record.said[index + 1] is marks.interruption


def came_to_its_end(record: CallRecord, question: Said) -> bool:
    """Whether the target says that its reply to this was not cut off; False where it says nothing."""
    ends = (done for at, done in record.messages if isinstance(done, ReplyDone) and at > question.speech_ended_at)
    first = next(ends, None)
    return first is not None and first.status == "completed"


def _judge_interruption(result: CallResult, record: CallRecord, marks: Marks, heard: Heard | None, failed: str) -> None:
    said = marks.interruption
    if said is None or heard is None:
        result.set("barge_in_ms", None, failed or marks.no_interruption)
        return
    began_at = said.speech_began_at
    span = next(((a, b) for a, b in heard.spans() if a < began_at < b + _SPAN_ERROR_S), None)
    stopped = None if span is None else max(0.0, span[1] - began_at) * 1000
    why = marks.no_interruption if "over" in marks.no_interruption else "no reply was sounding when the caller spoke"
    if stopped is not None and said.speech_ended_at - began_at < stopped / 1000:
        stopped, why = None, "the reply went on to its end: the target does not let itself be interrupted"
    index = record.said.index(said)
    if stopped is not None and index and came_to_its_end(record, record.said[index - 1]):
        stopped, why = None, "the reply came to its own end as the caller spoke"
    result.set("barge_in_ms", stopped, failed or why)


def _judge_outage(result: CallResult, record: CallRecord, marks: Marks, failed: str) -> None:
    if marks.outage is None:
        result.set("recovery_ms", None, failed or "the call ended before the outage")
        return
    end = marks.outage[1]
    back = min((packet.arrival for packet in record.packets if packet.arrival >= end), default=record.recovered_at)
    result.set("recovery_ms", None if back is None else (back - end) * 1000, failed or "no packet came after it")


def _timeline(record: CallRecord, marks: Marks, heard: Heard | None) -> dict[str, Any]:
    """Spans for the report's plot, seconds since the call began."""
    zero = record.began_at
    return {
        "said": [[said.began_at - zero, said.speech_ended_at - zero] for said in record.said],
        "heard": [[a - zero, b - zero] for a, b in heard.spans()] if heard else [],
        "outage": [at - zero for at in marks.outage] if marks.outage else None,
        "interruption": None if marks.interruption is None else marks.interruption.speech_began_at - zero,
        "moved_at": None if marks.moved_at is None else marks.moved_at - zero,
        "arrivals": [[round(packet.arrival - zero, 3), packet.sequence_number] for packet in record.packets[::5]],
        "ended": marks.ended_at - zero,
    }
