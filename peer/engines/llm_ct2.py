"""A small chat model on CTranslate2: SmolLM2-135M-Instruct in int8, no torch.

The state of the system prompt is kept by CTranslate2 from one reply to the next, so that only the dialogue is
computed. It never frees such a state (57 MB for 400 tokens), hence the bound on how many are kept.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ctranslate2
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from peer.engines.base import LLM_DEFAULTS, ChatMessage, LlmOptions
from peer.engines.chatml import END, START, StopFilter, render_prompt
from peer.engines.host import Report
from peer.engines.llm_files import ensure_converted
from peer.errors import EngineError, ModelError
from peer.models import ModelStore

DEFAULT_MODEL = "smollm2-135m-instruct"
_STATIC_PROMPTS = 4
_STATIC_PROMPT_TOKENS = 512


class Ct2Llm:
    """A CTranslate2 generator behind the LlmEngine protocol."""

    def __init__(self, generator: ctranslate2.Generator, tokenizer: Tokenizer, *, workers: int = 1) -> None:
        self._generator = generator
        self._tokenizer = tokenizer
        self._executor = ThreadPoolExecutor(workers, thread_name_prefix="llm")
        self._static_prompts: set[str] = set()

    async def generate(
        self, messages: Sequence[ChatMessage], *, options: LlmOptions = LLM_DEFAULTS
    ) -> AsyncGenerator[str, None]:
        """Yield the reply as its tokens are decoded; closing the generator stops it at the next token."""
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[str | None] = asyncio.Queue()
        stop = threading.Event()

        def put(piece: str | None) -> None:
            # Called in CTranslate2's own thread, where an exception would end the process: a loop may be gone already.
            try:
                loop.call_soon_threadsafe(pieces.put_nowait, piece)
            except RuntimeError:
                stop.set()

        work = loop.run_in_executor(self._executor, self._generate_now, tuple(messages), options, put, stop)
        try:
            while (piece := await pieces.get()) is not None:
                yield piece
            await work
        except (RuntimeError, ValueError) as error:
            raise EngineError(f"the language model failed: {error}") from error
        finally:
            stop.set()
            work.cancel()

    async def count_tokens(self, messages: Sequence[ChatMessage]) -> int:
        """Return the exact length of the prompt that `messages` make."""
        return len(self._encode("".join(render_prompt(messages))))

    async def aclose(self) -> None:
        """Let no further request begin, and wait for the one that runs: its generator must outlive it."""
        await asyncio.to_thread(self._executor.shutdown, wait=True, cancel_futures=True)

    def _encode(self, text: str) -> list[str]:
        tokens: list[str] = self._tokenizer.encode(text, add_special_tokens=False).tokens
        return tokens

    def _static_part(self, system: str) -> str | None:
        """Return the beginning of a rendered system message whose state is kept, None where none may be.

        What a message adds behind a system prompt that was seen before, such as what is known from before the window,
        changes from turn to turn; the prompt itself does not.
        """
        body = system.removesuffix(f"{END}\n")
        known = [kept for kept in self._static_prompts if body == kept or body.startswith(f"{kept} ")]
        if known:
            return max(known, key=len)
        if len(self._static_prompts) >= _STATIC_PROMPTS or len(self._encode(body)) > _STATIC_PROMPT_TOKENS:
            return None
        self._static_prompts.add(body)
        return body

    def _generate_now(
        self, messages: tuple[ChatMessage, ...], options: LlmOptions, put: Any, stop: threading.Event
    ) -> None:
        decode = DecodeStream(skip_special_tokens=True)
        filtered = StopFilter(options.stop)

        def handle_token(step: ctranslate2.GenerationStepResult) -> bool:
            text = decode.step(self._tokenizer, step.token_id)
            if text and (ready := filtered.feed(text)):
                put(ready)
            return stop.is_set() or filtered.stopped

        try:
            if not stop.is_set():
                self._run(messages, options, handle_token)
            if rest := filtered.flush():
                put(rest)
        finally:
            put(None)

    def _run(self, messages: tuple[ChatMessage, ...], options: LlmOptions, handle_token: Any) -> None:
        system, rest = render_prompt(messages)
        static = self._static_part(system)
        # Cut before a space or a control token, so that the tokens are those of the whole.
        prompt = self._encode(system[len(static or "") :] + rest)
        self._generator.generate_batch(
            [prompt],
            max_length=options.max_tokens,
            sampling_topk=0 if options.temperature else 1,
            sampling_topp=options.top_p,
            sampling_temperature=options.temperature or 1.0,
            repetition_penalty=options.repetition_penalty,
            end_token=[END, START],
            include_prompt_in_result=False,
            static_prompt=self._encode(static) if static else None,
            cache_static_prompt=static is not None,
            callback=handle_token,
        )


def create(options: Mapping[str, Any], report: Report) -> Ct2Llm:
    """Load and warm a model: `model` is a name in the store, a .gguf file or a folder of a converted model."""
    name = options.get("model") or DEFAULT_MODEL
    store = ModelStore(Path(options["cache_dir"]) if options.get("cache_dir") else None)
    compute_type = options.get("compute_type", "int8")
    folder = Path(name) if Path(name).is_dir() else ensure_converted(store, name, compute_type, report)
    report(None, f"loading {name}")
    workers = options.get("workers", 1)
    try:
        generator = ctranslate2.Generator(
            str(folder),
            device=options.get("device", "cpu"),
            compute_type=compute_type,
            inter_threads=workers,
            intra_threads=options.get("threads", 1),
        )
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as error:
        raise EngineError(f"cannot load the language model {name}: {error}", retryable=False) from error
    if tokenizer.token_to_id(START) is None:
        raise ModelError(f"{name} does not speak ChatML")
    engine = Ct2Llm(generator, tokenizer, workers=workers)
    report(None, "warming up")
    warm = (ChatMessage(role="system", content="."), ChatMessage(role="user", content="Hello."))
    engine._run(warm, LlmOptions(max_tokens=2), lambda _step: False)
    return engine
