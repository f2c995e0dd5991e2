"""One long call: whether the answers stay as quick, the prompt as short and the memory as small as they began.

    python -m bench.long [--turns 200] [--json] [-- SERVER OPTIONS]

A server of its own is called by the softphone, which asks short questions and hears every answer out; answers are kept
to 20 tokens, so that 200 turns take about half an hour. The prompt of each turn is made once more from what both sides
said, by the server's own code, and counted by the model's own tokenizer. Not part of `python -m bench`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from typing import Any, Final

from tokenizers import Tokenizer

from bench.caller import Utterance, synthetic
from bench.intervals import quantile, quantile_interval
from bench.server import MeasuredServer, measured_server
from peer.config import DEFAULT_SYSTEM_PROMPT
from peer.dialogue import Dialogue
from peer.engines.chatml import render_prompt
from peer.engines.llm_ct2 import DEFAULT_MODEL
from peer.engines.llm_files import ensure_converted
from peer.models import ModelStore
from peer.softphone_call import CallOptions, SoftphoneCall, SoftphoneError
from peer.softphone_log import TurnLog
from signaling_server import SMALL_MODEL_TOKENS

QUESTIONS: Final = (
    "Hello there.", "My name is Sam.", "Is there a restaurant called Blue Door?", "What is a violin?",
    "Tell me a joke.", "Where is Rome?", "I like old trains.", "What do bees eat?", "How are you?",
    "Why is snow white?", "I live in Boston.", "What is a haiku?", "Do cats dream?",
    "Tell me about the sea.", "What is my name?", "How do birds sing?", "Where do I live?",
)  # fmt: skip
"""Asked over and over; 17, so that turns 20 to 30 and turns 190 to 200 are the same questions."""
_REPLY_TOKENS: Final = 20


async def hold_call(server: MeasuredServer, said: Sequence[Utterance]) -> tuple[list[TurnLog | None], list[int]]:
    """Say each utterance; return each one's turn, None where no answer came, and the resident bytes after each."""
    turns: list[TurnLog | None] = []
    resident: list[int] = []
    async with SoftphoneCall(CallOptions(url=server.url, reply_timeout_s=30.0)) as call:
        for index, utterance in enumerate(said):
            before = len(call.log.turns)
            try:
                await call.play(
                    utterance.samples, speech_ends_ms=[utterance.speech_end_ms], labelled=True, first=index == 0
                )
            except SoftphoneError:
                if not call.is_up:
                    raise
            turns.append(next(iter(call.log.turns_since(before)[-1:]), None))
            resident.append(server.resident_bytes())
            if (index + 1) % 10 == 0:
                times = _times(turns[-10:])
                middle = f"{quantile(times, 0.5):.0f}" if times else "?"
                print(f"turn {index + 1}: {middle} ms, {resident[-1] / 2**20:.0f} MiB", file=sys.stderr, flush=True)
    return turns, resident


def prompt_tokens(turns: Sequence[TurnLog | None]) -> list[int]:
    """Return the length of the prompt of each turn, from what was said in the turns before it."""
    folder = ensure_converted(ModelStore(), DEFAULT_MODEL, "int8", lambda *_: None)
    tokenizer: Any = Tokenizer.from_file(str(folder / "tokenizer.json"))
    dialogue = Dialogue(DEFAULT_SYSTEM_PROMPT)
    lengths = []
    for turn in turns:
        if turn is None or not turn.user_text:
            continue
        dialogue.add_user(turn.user_text)
        text = "".join(render_prompt(dialogue.window(SMALL_MODEL_TOKENS)))
        lengths.append(len(tokenizer.encode(text, add_special_tokens=False).ids))
        dialogue.add_assistant(turn.heard_text)
    return lengths


def _times(turns: Sequence[TurnLog | None]) -> list[float]:
    return [turn.voice_to_voice_ms for turn in turns if turn is not None and turn.voice_to_voice_ms is not None]


def summarise(turns: Sequence[TurnLog | None], resident: Sequence[int], lengths: Sequence[int]) -> dict[str, Any]:
    """Return the figures of a call; it is judged from turn 20 on, a shorter one from its tenth part on."""
    begin = min(20, max(1, len(turns) // 10))
    span = min(11, max(1, (len(turns) - begin) // 2))
    early, late = _times(turns[begin - 1 : begin - 1 + span]), _times(turns[-span:])
    first, last = quantile(early, 0.5), quantile(late, 0.5)
    return {
        "turns": len(turns),
        "answered": sum(turn is not None and bool(turn.heard_text) for turn in turns),
        "early_turns": [begin, begin + span - 1],
        "early_median_ms": first,
        "early_interval_ms": quantile_interval(early, 0.5),
        "late_turns": [len(turns) - span + 1, len(turns)],
        "late_median_ms": last,
        "late_interval_ms": quantile_interval(late, 0.5),
        "latency_growth_pct": round(100 * (last / first - 1), 1),
        "early_resident_mib": round(resident[begin - 1] / 2**20, 1),
        "late_resident_mib": round(resident[-1] / 2**20, 1),
        "resident_growth_pct": round(100 * (resident[-1] / resident[begin - 1] - 1), 2),
        "prompt_tokens_max": max(lengths),
        "prompt_tokens_median": quantile(lengths, 0.5),
        "resident_mib": [round(each / 2**20, 1) for each in resident],
    }


def print_table(result: dict[str, Any]) -> None:
    """Print the result for people."""
    for name in ("early", "late"):
        first, last = result[f"{name}_turns"]
        low, high = result[f"{name}_interval_ms"]
        print(
            f"turns {first:>3} to {last:>3}: median {result[f'{name}_median_ms']:.0f} ms ({low:.0f} … {high:.0f}), "
            f"{result[f'{name}_resident_mib']:.0f} MiB after turn {first if name == 'early' else last}"
        )
    print(f"latency {result['latency_growth_pct']:+.1f} %, resident memory {result['resident_growth_pct']:+.2f} %")
    print(
        f"prompt: {result['prompt_tokens_median']} tokens, {result['prompt_tokens_max']} at most; "
        f"{result['answered']} of {result['turns']} turns answered"
    )


async def measure(*, turns: int, arguments: Sequence[str]) -> dict[str, Any]:
    """Return the benchmark's result."""
    questions = synthetic(QUESTIONS)
    said = [questions[index % len(questions)] for index in range(turns)]
    async with measured_server("--reply-tokens", str(_REPLY_TOKENS), *arguments) as server:
        heard, resident = await hold_call(server, said)
    return summarise(heard, resident, prompt_tokens(heard))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table, and with --json one object as the last line."""
    parser = argparse.ArgumentParser(prog="python -m bench.long", description="One long call.")
    parser.add_argument("--turns", type=int, default=200, metavar="N", help="how many (default: 200)")
    parser.add_argument("--quick", action="store_true", help="12 turns")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("server", nargs="*", help="options of the server, after --")
    options = parser.parse_args(arguments)
    result = asyncio.run(measure(turns=12 if options.quick else options.turns, arguments=options.server))
    print_table(result)
    if options.json:
        print(json.dumps(result, ensure_ascii=False))


if __name__ == "__main__":
    main()
