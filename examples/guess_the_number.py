"""A game by voice, without a language model. Run: make run ARGS="--agent examples/guess_the_number.py --llm none"."""

import random
import re
from collections.abc import AsyncIterator

from peer.agent import Agent, AgentCall, AgentTurn

_WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]


class GuessTheNumber(Agent):
    """Thinks of a number from one to twelve; each call has its own."""

    def __init__(self) -> None:
        self.secret = random.randint(1, 12)
        self.guesses = 0

    async def on_call(self, call: AgentCall) -> str:
        """Explain the game."""
        return "I am thinking of a number from one to twelve. Which one is it?"

    async def on_turn(self, turn: AgentTurn) -> AsyncIterator[str]:
        """Compare the guess; what is yielded is spoken while the rest is still to come."""
        guess = _number_in(turn.text)
        if guess is None:
            yield "I heard no number in that. Try again."
            return
        self.guesses += 1
        if guess != self.secret:
            yield f"{guess} is too {'low' if guess < self.secret else 'high'}. Try again."
            return
        yield f"Yes, it is {self.secret}. "
        yield f"Guesses: {self.guesses}. Thank you for playing."
        turn.call.hang_up("the game is over")


def _number_in(text: str) -> int | None:
    digits = re.search(r"\d+", text)
    if digits:
        return int(digits[0])
    return next((_WORDS.index(word) for word in re.findall(r"[a-z]+", text.lower()) if word in _WORDS), None)
