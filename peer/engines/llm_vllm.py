"""A chat model on vLLM's AsyncLLM; runs in an engine process under the interpreter of vLLM's own environment."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vllm import SamplingParams
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.exceptions import VLLMValidationError
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM

from peer.engines.base import LLM_DEFAULTS, ChatMessage, LlmOptions
from peer.engines.host import Report
from peer.engines.llm_files import ensure_converted
from peer.errors import EngineError
from peer.model_manifest import MODELS
from peer.models import ModelStore

_CONTEXT_TOKENS = 2048
_WARM_UP = (ChatMessage(role="user", content="Hello."),)


class VllmLlm:
    """vLLM behind the LlmEngine protocol; its prefix cache keeps the system prompt and the dialogue so far."""

    def __init__(self, engine: Any, tokenizer: Any) -> None:
        self._engine = engine
        self._tokenizer = tokenizer
        self._request_ids = itertools.count()

    async def generate(
        self, messages: Sequence[ChatMessage], *, options: LlmOptions = LLM_DEFAULTS
    ) -> AsyncGenerator[str, None]:
        """Yield the reply as its tokens are decoded; closing the generator aborts the request in vLLM."""
        parameters = SamplingParams(
            max_tokens=options.max_tokens,
            temperature=options.temperature,
            top_p=options.top_p,
            repetition_penalty=options.repetition_penalty,
            stop=list(options.stop) or None,
            output_kind=RequestOutputKind.DELTA,
        )
        prompt = {"prompt_token_ids": self._encode(messages)}
        outputs = self._engine.generate(prompt, parameters, request_id=f"antiphon-{next(self._request_ids)}")
        try:
            async for output in outputs:
                if text := output.outputs[0].text:
                    yield text
        except (ValueError, VLLMValidationError) as error:
            raise EngineError(f"vLLM cannot take this request: {error}", retryable=False) from error
        except RuntimeError as error:
            raise EngineError(f"vLLM failed: {error}") from error
        finally:
            await outputs.aclose()

    async def count_tokens(self, messages: Sequence[ChatMessage]) -> int:
        """Return the exact length of the prompt that `messages` make."""
        return len(self._encode(messages))

    async def aclose(self) -> None:
        """End vLLM's own processes."""
        self._engine.shutdown()

    def _encode(self, messages: Sequence[ChatMessage]) -> list[int]:
        dialogue = [{"role": message.role, "content": message.content} for message in messages]
        text = self._tokenizer.apply_chat_template(dialogue, tokenize=False, add_generation_prompt=True)
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids


def find_model(options: Mapping[str, Any], report: Report) -> str:
    """Return what vLLM is to load: a model of our store as a Hugging Face folder, else the name itself."""
    name: str = options["model"]
    if name not in MODELS and not name.endswith(".gguf"):
        return name
    store = ModelStore(Path(options["cache_dir"]) if options.get("cache_dir") else None)
    return str(ensure_converted(store, name, "hf", report, python=options.get("converter_python", sys.executable)))


async def create(options: Mapping[str, Any], report: Report) -> VllmLlm:
    """Start vLLM and warm it: `model` is a name in the store, a folder or a hub id; takes tens of seconds."""
    source = await asyncio.to_thread(find_model, options, report)
    report(None, f"vLLM is loading {options['model']}, which takes up to a minute or two")
    arguments = AsyncEngineArgs(
        model=source,
        max_model_len=options.get("max_model_len", _CONTEXT_TOKENS),
        enforce_eager=options.get("enforce_eager", True),
        enable_prefix_caching=True,
        **options.get("engine_args", {}),
    )
    try:
        engine = await asyncio.to_thread(AsyncLLM.from_engine_args, arguments)
        tokenizer = await _get_tokenizer(engine)
    except Exception as error:
        raise EngineError(f"vLLM cannot load {options['model']}: {error}", retryable=False) from error
    llm = VllmLlm(engine, tokenizer)
    report(None, "warming up")
    async for _ in llm.generate(_WARM_UP, options=LlmOptions(max_tokens=2)):
        pass
    return llm


async def _get_tokenizer(engine: Any) -> Any:
    found = engine.get_tokenizer()
    return await found if hasattr(found, "__await__") else found
