"""A call in Chinese, in virtual time: pieces, spoken forms, a stable prefix, and what was heard of a cut reply."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import AsyncGenerator, Sequence

import numpy as np

from peer.engines.base import LLM_DEFAULTS, TTS_DEFAULTS, ChatMessage, LlmOptions, Samples, TtsOptions
from peer.engines.scripted import ScriptedAsr, ScriptedLlm, ScriptedTts, Step
from tests.sim.line import call, talk_options
from transport.messages import ReplyDelta, ReplyDone, UserTranscriptDelta

_ASKED = "请问北京今天的天气怎么样？"
_REPLY = "北京今天是晴天。气温25°C，适合出门。要记得多喝水。"
_OPTIONS = dataclasses.replace(
    talk_options(), reply=dataclasses.replace(talk_options().reply, language="zh"), language="zh"
)


class Characters(ScriptedLlm):
    """Streams its reply a character at a time, as models do with Chinese."""

    async def generate(
        self, messages: Sequence[ChatMessage], *, options: LlmOptions = LLM_DEFAULTS
    ) -> AsyncGenerator[str, None]:
        for char in _REPLY:
            await asyncio.sleep(0.01)
            yield char


class Syllables(ScriptedTts):
    """Takes 0.2 s for each character."""

    async def synthesize(self, text: str, *, options: TtsOptions = TTS_DEFAULTS) -> AsyncGenerator[Samples, None]:
        self.requests.append(text)
        count = sum(char.isalnum() for char in text)
        yield np.full(round(count * 0.2 * self.sample_rate_hz), 3_000, np.int16)


def test_a_chinese_reply_is_cut_spoken_and_remembered() -> None:
    tts = Syllables()
    heard = call(
        voice=[(1.0, 2.5)], seconds=15.0, asr=ScriptedAsr([_ASKED]), llm=Characters(), tts=tts, options=_OPTIONS
    )
    assert [delta.text for delta in heard.of(ReplyDelta)] == [
        "北京今天是晴天。",
        "气温25°C，适合出门。",
        "要记得多喝水。",
    ]
    assert tts.requests[1] == "气温二十五摄氏度，适合出门。"
    assert heard.said() == [("user", _ASKED), ("assistant", _REPLY)], "without spaces between the pieces"


def test_of_a_reply_cut_in_mid_sentence_the_characters_heard_are_kept() -> None:
    asr = ScriptedAsr([_ASKED, "等一下，我想问别的。"])
    heard = call(
        voice=[(1.0, 2.5), (4.4, 6.0)], seconds=15.0, asr=asr, llm=Characters(), tts=Syllables(), options=_OPTIONS
    )
    cut = heard.of(ReplyDone)[0]
    assert cut.status == "interrupted"
    # From 3.0 to about 4.4 s, a character every 0.2 s.
    assert cut.heard_text == _REPLY[: len(cut.heard_text)]
    assert 5 <= len(cut.heard_text) <= 8
    assert heard.said()[1] == ("assistant", cut.heard_text)


def test_the_chinese_transcript_grows_by_characters_and_its_stable_part_holds() -> None:
    def hear(samples: Samples) -> Step:
        count = min(len(_ASKED), len(samples) // 2_400)
        text = _ASKED[:count]
        return Step(text=text[:-1] + "吧" if count % 2 and count < len(_ASKED) else text, delay_s=0.05)

    options = dataclasses.replace(_OPTIONS, follow_speech=True)
    heard = call(voice=[(1.0, 3.2)], asr=ScriptedAsr(hear), llm=Characters(), tts=Syllables(), options=options)
    deltas = heard.of(UserTranscriptDelta)
    stable = [delta.text[: delta.stable_chars] for delta in deltas]
    assert len(deltas) >= 5
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(stable))
    assert len(stable[-1]) >= 6
    assert all(_ASKED.startswith(text) for text in stable)


def test_a_chinese_listening_sound_over_the_reply_does_not_end_it() -> None:
    asr = ScriptedAsr([_ASKED, Step(text="嗯。", delay_s=0.1)])
    heard = call(
        voice=[(1.0, 2.5), (4.4, 4.65)], seconds=15.0, asr=asr, llm=Characters(), tts=Syllables(), options=_OPTIONS
    )
    assert [(done.status, done.heard_text) for done in heard.of(ReplyDone)] == [("completed", _REPLY)]
