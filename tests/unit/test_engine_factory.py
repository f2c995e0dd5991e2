"""Names on the command line become engines; a name nobody knows is a clear error."""

from __future__ import annotations

import pytest

from peer.engines.factory import EngineSpec, create_engines, split_name
from peer.errors import ConfigError

SCRIPTED = EngineSpec(asr="scripted", llm="scripted", tts="scripted", turn="scripted")


def test_names_split_at_the_first_colon() -> None:
    assert split_name("vllm:org/model:latest") == ("vllm", "org/model:latest")
    assert split_name("whisper") == ("whisper", None)
    assert split_name("whisper:") == ("whisper", None)


async def test_scripted_engines_are_ready_at_once() -> None:
    engines = create_engines(SCRIPTED)
    await engines.start()
    assert engines.not_ready_reason is None
    assert engines.turn is not None
    await engines.aclose()


def test_an_unknown_engine_is_named_in_the_error() -> None:
    with pytest.raises(ConfigError, match="--llm gpt9"):
        create_engines(EngineSpec(asr="scripted", llm="gpt9", tts="scripted", turn="scripted"))
