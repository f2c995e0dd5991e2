"""The embedded language model: right prompt, right tokens, streams, stops, and what int8 costs."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator
from pathlib import Path

import ctranslate2
import numpy as np
import pytest
from tokenizers import Tokenizer

from peer.dialogue import Dialogue
from peer.engines.base import ChatMessage, LlmOptions
from peer.engines.chatml import render_prompt
from peer.engines.llm_ct2 import Ct2Llm, create
from peer.engines.llm_files import ensure_converted, find_gguf
from peer.errors import ModelError
from peer.models import ModelStore
from tests.engines.llama_reference import LlamaReference

pytestmark = pytest.mark.timeout(600)  # the reference computes 20 prompts in numpy, which other work slows down a lot

NAME = "smollm2-135m-instruct"
SYSTEM = "You are a voice assistant. Answer in one or two short spoken sentences."
QUESTIONS = [
    "What is the capital of France?",
    "Who wrote Romeo and Juliet?",
    "What is two plus two?",
    "Tell me a fact about the moon.",
    "How do I boil an egg?",
    "Why is the sky blue?",
    "What should I wear when it rains?",
    "Name three kinds of fruit.",
    "Can you say hello in Spanish?",
    "What do bees make?",
    "How far away is the sun?",
    "Give me a tip for sleeping better.",
    "What is a haiku?",
    "Which animal is the fastest on land?",
    "What is the opposite of cold?",
    "Book a table for 2 at 7:30, please.",
    "My name is Zoë and I'm from Köln.",
    "And so my fellow Americans, ask not what your country can do for you.",
    "What's the difference between a lake & a sea?",
    "你好，你会说中文吗？",
]
REPLY_TOKENS = 16


def ask(question: str) -> tuple[ChatMessage, ...]:
    return ChatMessage(role="system", content=SYSTEM), ChatMessage(role="user", content=question)


def converted(form: str) -> Path:
    return ensure_converted(ModelStore(), NAME, form, lambda *_: None)


def greedy(generator: ctranslate2.Generator, tokens: list[str]) -> list[int]:
    result = generator.generate_batch(
        [tokens], max_length=REPLY_TOKENS, sampling_topk=1, include_prompt_in_result=False, end_token=["<|im_end|>"]
    )
    ids: list[int] = result[0].sequences_ids[0]
    return ids


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(converted("int8") / "tokenizer.json"))


@pytest.fixture(scope="module")
def reference() -> LlamaReference:
    return LlamaReference(find_gguf(ModelStore(), NAME, lambda *_: None))


@pytest.fixture(scope="module")
def exact() -> ctranslate2.Generator:
    return ctranslate2.Generator(str(converted("float32")), compute_type="float32", intra_threads=2)


@pytest.fixture(scope="module")
def exact_replies(tokenizer: Tokenizer, exact: ctranslate2.Generator) -> list[tuple[list[int], list[int]]]:
    """Prompt and greedy float32 reply to each question, as token ids."""
    prompts = [tokenizer.encode("".join(render_prompt(ask(text))), add_special_tokens=False) for text in QUESTIONS]
    return [(prompt.ids, greedy(exact, prompt.tokens)) for prompt in prompts]


@pytest.fixture
async def llm() -> AsyncIterator[Ct2Llm]:
    engine = create({"threads": 2}, lambda *_: None)
    yield engine
    await engine.aclose()


def test_float32_is_the_reference_token_for_token(
    exact_replies: list[tuple[list[int], list[int]]], reference: LlamaReference
) -> None:
    """A greedy reply is the reference's own when each of its tokens is the reference's best after those before."""
    assert len(exact_replies) == 20
    for prompt, reply in exact_replies:
        best = reference.logits(prompt + reply, last=len(reply) + 1).argmax(axis=1)
        assert reply == best[: len(reply)].tolist()
        assert len(reply) == REPLY_TOKENS or best[-1] == 2, "ends where the reference says <|im_end|>"


def test_what_int8_costs(
    tokenizer: Tokenizer, exact: ctranslate2.Generator, exact_replies: list[tuple[list[int], list[int]]]
) -> None:
    """Agreement of the best next token and perplexity on the float32 replies; printed, and bounded loosely."""
    coarse = ctranslate2.Generator(str(converted("int8")), compute_type="int8", intra_threads=2)
    agreed = scored = 0
    losses: dict[str, list[float]] = {"float32": [], "int8": []}
    for prompt, reply in exact_replies:
        tokens = [tokenizer.id_to_token(token) for token in prompt + reply]
        rows = {}
        for name, generator in (("float32", exact), ("int8", coarse)):
            logits = np.asarray(generator.forward_batch([tokens]))[0, len(prompt) - 1 : -1].astype(np.float64)
            logits -= logits.max(axis=1, keepdims=True)
            rows[name] = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
            losses[name] += (-rows[name][np.arange(len(reply)), reply]).tolist()
        agreed += int((rows["float32"].argmax(axis=1) == rows["int8"].argmax(axis=1)).sum())
        scored += len(reply)
    perplexity = {name: round(math.exp(float(np.mean(values))), 3) for name, values in losses.items()}
    print(f"int8: same best token {100 * agreed / scored:.1f} % of {scored}; perplexity {perplexity}")
    assert agreed / scored > 0.8
    assert perplexity["int8"] / perplexity["float32"] < 1.3


def test_the_tokenizer_gives_back_what_it_took(tokenizer: Tokenizer) -> None:
    for text in (*QUESTIONS, "12345 apples,\n\ttabs — and 🎉!", "<|im_start|>user"):
        assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text
    assert tokenizer.encode("1234").tokens == ["1", "2", "3", "4"]
    assert tokenizer.encode("<|im_end|>\n").ids == [2, 198]


async def test_pieces_join_to_the_greedy_reply_with_and_without_the_kept_state(
    llm: Ct2Llm, tokenizer: Tokenizer
) -> None:
    messages = ask("Tell me a fact about the moon.")
    generator = ctranslate2.Generator(str(converted("int8")), compute_type="int8", intra_threads=2)
    prompt = tokenizer.encode("".join(render_prompt(messages)), add_special_tokens=False).tokens
    expected = tokenizer.decode(greedy(generator, prompt))
    for _ in range(2):
        pieces = [piece async for piece in llm.generate(messages, options=LlmOptions(max_tokens=REPLY_TOKENS))]
        assert "".join(pieces) == expected
        assert len(pieces) > 5


async def test_no_control_token_comes_through_and_the_reply_ends(llm: Ct2Llm) -> None:
    reply = "".join(
        [piece async for piece in llm.generate(ask("What do bees make?"), options=LlmOptions(max_tokens=200))]
    )
    assert reply
    assert "<|" not in reply


async def test_a_stop_string_ends_the_reply_before_it(llm: Ct2Llm) -> None:
    whole = "".join([p async for p in llm.generate(ask("What is a haiku?"), options=LlmOptions(max_tokens=40))])
    stop = whole[12:18]
    options = LlmOptions(max_tokens=40, stop=(stop,))
    assert (
        "".join([p async for p in llm.generate(ask("What is a haiku?"), options=options)]) == whole[: whole.index(stop)]
    )


async def test_closing_stops_the_work_at_once(llm: Ct2Llm) -> None:
    async with contextlib.aclosing(
        llm.generate(ask("Tell me a story."), options=LlmOptions(max_tokens=2_000))
    ) as reply:
        await anext(reply)
    async with asyncio.timeout(10):
        assert [p async for p in llm.generate(ask("Hi."), options=LlmOptions(max_tokens=1))]


async def test_count_tokens_counts_the_prompt(llm: Ct2Llm, tokenizer: Tokenizer) -> None:
    messages = ask("What is the capital of France?")
    assert await llm.count_tokens(messages) == len(tokenizer.encode("".join(render_prompt(messages))).ids)


async def test_few_system_prompts_are_kept(llm: Ct2Llm) -> None:
    for number in range(7):
        messages = (
            ChatMessage(role="system", content=f"Be assistant {number}."),
            ChatMessage(role="user", content="Hi."),
        )
        assert [p async for p in llm.generate(messages, options=LlmOptions(max_tokens=3))]
    assert len(llm._static_prompts) == 4


async def test_temperature_samples(llm: Ct2Llm) -> None:
    options = LlmOptions(max_tokens=16, temperature=1.5, top_p=0.95)
    replies = {"".join([p async for p in llm.generate(ask("Tell me a story."), options=options)]) for _ in range(4)}
    assert len(replies) > 1


def test_a_missing_file_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no file"):
        create({"model": str(tmp_path / "nothing.gguf")}, lambda *_: None)
    (tmp_path / "broken.gguf").write_bytes(b"not a model")
    with pytest.raises(ModelError, match="not a GGUF file"):
        create({"model": str(tmp_path / "broken.gguf"), "cache_dir": str(tmp_path)}, lambda *_: None)


MENTIONED = [
    ("Is there a restaurant called Blue Door?", "What was the name of that restaurant?", "Blue Door"),
    ("I stayed at a hotel called Golden Lion.", "What was the name of that hotel?", "Golden Lion"),
    ("We want to see a museum called Old Harbour.", "What was the name of that museum?", "Old Harbour"),
    ("There is a shop called Green Apple.", "What is that shop called?", "Green Apple"),
]


def long_after(mentioned: str, question: str) -> Dialogue:
    """Return a dialogue in which five other things were spoken of since."""
    dialogue = Dialogue(SYSTEM)
    dialogue.add_user(mentioned)
    dialogue.add_assistant("That is good to know.")
    for subject in ("penguins", "thunder", "the moon", "violins", "boats"):
        dialogue.add_user(f"Tell me something about {subject}.")
        dialogue.add_assistant(f"There is much to be said about {subject}, and I could go on for a long time.")
    dialogue.add_user(question)
    return dialogue


async def test_what_is_added_to_a_system_prompt_leaves_its_state_in_use_and_changes_no_token() -> None:
    llm, fresh = create({"threads": 2}, lambda *_: None), create({"threads": 2}, lambda *_: None)
    try:
        await _first(llm, SYSTEM)
        kept = set(llm._static_prompts)
        for number in range(3):
            added = f"{SYSTEM} Known from before: people: {number}."
            assert await _first(llm, added) == await _first(fresh, added)
        assert llm._static_prompts == kept
    finally:
        await llm.aclose()
        await fresh.aclose()


async def _first(llm: Ct2Llm, system: str) -> str:
    messages = [ChatMessage(role="system", content=system), ChatMessage(role="user", content="How do I boil an egg?")]
    return "".join([piece async for piece in llm.generate(messages, options=LlmOptions(max_tokens=12))])


async def test_what_was_spoken_of_long_ago_is_still_known_to_the_model() -> None:
    llm = create({"threads": 2}, lambda *_: None)
    try:
        remembered, forgotten = 0, 0
        for mentioned, question, name in MENTIONED:
            window = long_after(mentioned, question).window(160)
            assert await llm.count_tokens(window) <= 160
            without = [ChatMessage(role="system", content=SYSTEM), *window[1:-1]]
            without.append(ChatMessage(role="user", content=question))
            options = LlmOptions(max_tokens=40, repetition_penalty=1.15)
            remembered += name in "".join([piece async for piece in llm.generate(window, options=options)])
            forgotten += name not in "".join([piece async for piece in llm.generate(without, options=options)])
        assert remembered >= len(MENTIONED) - 1
        assert forgotten >= len(MENTIONED) - 1
    finally:
        await llm.aclose()
