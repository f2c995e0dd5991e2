"""The ChatML prompt format, as SmolLM2's template has it, and stop strings in a stream of text. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from peer.engines.base import ChatMessage

START, END = "<|im_start|>", "<|im_end|>"
_DEFAULT_SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
"""What the model's own template says when nobody else gives a system message."""


def render_prompt(messages: Sequence[ChatMessage]) -> tuple[str, str]:
    """Return the system message's part and the rest of the prompt, which ends where the assistant begins.

    Control tokens inside a message are broken up, so that no one can speak as somebody else.
    """
    if messages and messages[0].role == "system":
        system, rest = messages[0].content, messages[1:]
    else:
        system, rest = _DEFAULT_SYSTEM, messages
    turns = "".join(f"{START}{message.role}\n{_disarm(message.content)}{END}\n" for message in rest)
    return f"{START}system\n{_disarm(system)}{END}\n", f"{turns}{START}assistant\n"


def _disarm(content: str) -> str:
    return content.replace("<|", "< |")


class StopFilter:
    """Lets text through up to the first stop string, which it swallows even when pieces cut it in two."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        self.stopped = False
        """True once a stop string was seen; everything after it is dropped."""

    def feed(self, text: str) -> str:
        """Return what of `text`, and of what was held back, can go on."""
        if self.stopped:
            return ""
        text = self._held + text
        found = [at for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self.stopped = True
            self._held = ""
            return text[: min(found)]
        hold = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - hold :]
        return text[: len(text) - hold]

    def flush(self) -> str:
        """Return what was held back and turned out to be no stop string."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Return how many characters at the end of `text` begin `stop`."""
    return next((size for size in range(min(len(stop) - 1, len(text)), 0, -1) if stop.startswith(text[-size:])), 0)
