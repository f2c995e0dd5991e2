"""Says back what it heard, without a language model. Run: make run ARGS="--agent examples/echo.py --llm none"."""

from peer.agent import Agent, AgentCall, AgentTurn


class Echo(Agent):
    """Repeats every turn, and hangs up when it is told goodbye."""

    async def on_call(self, call: AgentCall) -> str:
        """Speak first."""
        return "Hello. I say back what you say."

    async def on_turn(self, turn: AgentTurn) -> str:
        """Repeat it."""
        if "goodbye" in turn.text.lower():
            turn.call.hang_up("the caller said goodbye")
            return "Goodbye."
        return f"You said: {turn.text}"
