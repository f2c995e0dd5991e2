"""Names on the command line become engines; a name nobody knows is a clear error."""

from __future__ import annotations

import subprocess
import sys

import pytest

from peer.engines.factory import EngineSpec, create_engines, split_name
from peer.errors import ConfigError

SCRIPTED = EngineSpec(asr="scripted", llm="scripted", tts="scripted", turn="scripted")


def test_names_split_at_the_first_colon() -> None:
    assert split_name("vllm:org/model:latest") == ("vllm", "org/model:latest")
    assert split_name("whisper") == ("whisper", None)
    assert split_name("whisper:") == ("whisper", None)
    assert split_name("faster-whisper:base") == ("whisper", "base")


async def test_scripted_engines_are_ready_at_once() -> None:
    engines = create_engines(SCRIPTED)
    await engines.start()
    assert engines.not_ready_reason is None
    assert engines.turn is not None
    await engines.aclose()


def test_an_unknown_engine_is_named_in_the_error() -> None:
    with pytest.raises(ConfigError, match="--llm gpt9"):
        create_engines(EngineSpec(asr="scripted", llm="gpt9", tts="scripted", turn="scripted"))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (EngineSpec(llm="openai:some-model"), "--llm-url"),
        (EngineSpec(llm="openai", llm_url="http://127.0.0.1:1/v1"), "needs the name of a model"),
        (EngineSpec(llm="openai:m", llm_url="127.0.0.1:8000"), "not a URL"),
        (EngineSpec(llm="vllm"), "--llm vllm:MODEL"),
        (EngineSpec(asr="none"), "--asr none: no such engine; there are: whisper"),
    ],
)
def test_options_that_make_no_sense_say_what_to_write(spec: EngineSpec, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        create_engines(spec)


async def test_the_default_engines_stand_in_one_process_that_is_not_started_yet() -> None:
    engines = create_engines(EngineSpec())
    assert engines.not_ready_reason is not None
    assert len(engines.processes) == 1
    assert engines.turn is not None
    await engines.aclose()


async def test_without_an_end_of_turn_model_there_is_none() -> None:
    assert create_engines(EngineSpec(asr="scripted", llm="scripted", tts="scripted", turn="none")).turn is None


def test_the_server_imports_no_native_engine() -> None:
    """They cost it hundreds of megabytes; they belong to the engine process."""
    code = "import sys, peer.engines.factory; print(sorted(sys.modules))"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for name in ("ctranslate2", "faster_whisper", "piper", "onnxruntime", "tokenizers", "torch", "vllm"):
        assert f"'{name}'" not in modules
