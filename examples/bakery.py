"""A language model with tools. Run: make run ARGS="--agent examples/bakery.py --llm openai:MODEL --llm-url URL"."""

import asyncio
from typing import Annotated, Literal

from peer.agent import Agent, tool

_PRICES = {"bread": 4.5, "croissant": 2.2, "cake": 28.0}


class Bakery(Agent):
    """Takes orders; the model calls the tools, and what they return is what it answers from."""

    system_prompt = (
        "You answer the phone of a small bakery, in one or two short sentences. Use the tools for prices and orders, "
        "and say when one of them fails."
    )

    def __init__(self) -> None:
        self.orders: list[str] = []

    @tool
    def price(self, item: Annotated[Literal["bread", "croissant", "cake"], "what the caller asks about"]) -> str:
        """Tell the price of one item in dollars."""
        return f"{_PRICES[item]} dollars"

    @tool(timeout_s=2.0)
    async def order(self, item: str, count: Annotated[int, "how many"] = 1) -> dict[str, object]:
        """Order something for pickup today."""
        await asyncio.sleep(0.05)  # here your own system would be asked
        self.orders.append(f"{count} {item}")
        return {"ordered": self.orders, "ready_at": "five in the afternoon"}
