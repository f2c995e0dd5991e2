"""Where the time of an answer goes, stage by stage, in the words of `ReplyDone.latency_ms`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class ReplyClock:
    """When each stage of a reply was passed, seconds; None until then.

    Stages of a reply that was begun in the pause overlap its end of turn, so they do not add up to `total`.
    """

    started_at: float
    voice_ended_at: float | None = None
    endpoint_at: float | None = None
    """When the silence had lasted long enough, transcript or not."""
    turn_ended_at: float | None = None
    asr_started_at: float | None = None
    transcribed_at: float | None = None
    first_token_at: float | None = None
    first_sentence_at: float | None = None
    first_audio_at: float | None = None
    released_at: float | None = None
    first_sent_at: float | None = None

    def note_first(self, stage: str, now: float) -> None:
        """Set `stage` to `now` unless it was passed before."""
        if getattr(self, stage) is None:
            setattr(self, stage, now)

    def stages_ms(self) -> dict[str, float]:
        """Return the length of every stage that was passed.

        begun: end of voice to the reply's beginning in the pause. endpointing: end of voice to end of turn. final: end
        of the wait to the final transcript. asr: its start to the transcript. llm_first_token: the reply's start to the
        first token. first_sentence: from there to the first piece to speak. tts: from there to its first sound. send:
        from that sound, or the release if later, to the first packet. total: end of voice to the first packet.
        """
        sendable = None if self.first_audio_at is None else max(self.first_audio_at, self.released_at or 0.0)
        spans = {
            "begun": (self.voice_ended_at, self.started_at),
            "endpointing": (self.voice_ended_at, self.turn_ended_at),
            "final": (self.endpoint_at, self.turn_ended_at),
            "asr": (self.asr_started_at, self.transcribed_at),
            "llm_first_token": (self.started_at, self.first_token_at),
            "first_sentence": (self.first_token_at, self.first_sentence_at),
            "tts": (self.first_sentence_at, self.first_audio_at),
            "send": (sendable, self.first_sent_at),
            "total": (self.voice_ended_at, self.first_sent_at),
        }
        return {
            name: round((end - start) * 1000, 1)
            for name, (start, end) in spans.items()
            if start is not None and end is not None
        }
