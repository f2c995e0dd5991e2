"""Agents in virtual time: what they return is spoken, what they fail at is apologised for, tools are bounded."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest

from peer.agent import Agent, AgentCall, AgentTurn, Answer, load_agent, tool
from peer.agent_llm import check_agent
from peer.engines.base import LLM_DEFAULTS, ChatMessage, LlmOptions, ToolCall, ToolSpec
from peer.engines.factory import NoLlm
from peer.engines.scripted import ScriptedAsr, ScriptedLlm, Step
from peer.errors import ConfigError
from tests.sim.line import call, talk_options
from transport.messages import CallEnded, CallError, ReplyDone

Piece = str | ToolCall


class ToolLlm(ScriptedLlm):
    """A model that asks for tools as its script says, and keeps what it was told."""

    def __init__(self, answers: Sequence[Sequence[Piece]]) -> None:
        super().__init__()
        self._answers = list(answers)
        self.asked: list[tuple[list[ChatMessage], list[str]]] = []

    async def generate_with_tools(
        self, messages: Sequence[ChatMessage], *, tools: Sequence[ToolSpec], options: LlmOptions = LLM_DEFAULTS
    ) -> AsyncGenerator[str | ToolCall, None]:
        self.asked.append((list(messages), [spec.name for spec in tools]))
        for piece in self._answers[min(len(self.asked), len(self._answers)) - 1]:
            await asyncio.sleep(0.01)
            yield piece


def _call(name: str, **arguments: object) -> ToolCall:
    return ToolCall(id=f"id-{name}", name=name, arguments=json.dumps(arguments))


class Returning(Agent):
    def on_turn(self, turn: AgentTurn) -> Answer:
        return f"Plainly: {turn.text}"


class Awaited(Agent):
    async def on_turn(self, turn: AgentTurn) -> str:
        await asyncio.sleep(0.3)
        return f"Later: {turn.text}"


class Streaming(Agent):
    async def on_turn(self, turn: AgentTurn) -> AsyncIterator[str]:
        yield "In pieces: "
        await asyncio.sleep(0.3)
        yield turn.text


class Yielding(Agent):
    def on_turn(self, turn: AgentTurn) -> Iterator[str]:
        yield "One by one: "
        yield turn.text


class Nothing(Agent):
    def on_turn(self, turn: AgentTurn) -> Answer:
        return None  # type: ignore[return-value]


class Asking(Agent):
    system_prompt = "You are a parrot."

    async def on_turn(self, turn: AgentTurn) -> AsyncIterator[str]:
        yield "The model says. "
        async for piece in turn.ask():
            yield piece


@pytest.mark.parametrize(
    ("agent", "reply"),
    [
        (Returning(), "Plainly: One."),
        (Awaited(), "Later: One."),
        (Streaming(), "In pieces: One."),
        (Yielding(), "One by one: One."),
        (Asking(), "The model says. Yes."),
        (Agent(), "Yes."),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Agent) else None,
)
def test_whatever_an_agent_returns_is_spoken_and_remembered(agent: Agent, reply: str) -> None:
    llm = ScriptedLlm(["Yes."])
    heard = call(voice=[(1.0, 2.0)], asr=ScriptedAsr(["One."]), llm=llm, agent=agent)
    assert heard.said() == [("user", "One."), ("assistant", reply)]
    assert [done.status for done in heard.of(ReplyDone)] == ["completed"]
    if isinstance(agent, Asking):
        assert llm.requests[-1][0] == ChatMessage(role="system", content="You are a parrot.")


class Host(Agent):
    def __init__(self) -> None:
        self.ended: list[str] = []
        self.seen: list[tuple[str, str]] = []

    async def on_call(self, call: AgentCall) -> str | None:
        return "Welcome."

    async def on_turn(self, turn: AgentTurn) -> str:
        self.seen = [(entry.role, entry.text) for entry in turn.call.history()]
        if turn.text == "Bye.":
            turn.call.hang_up("they said bye")
            return "Goodbye to you."
        turn.call.say("And one thing more.")
        return "Well."

    async def on_hang_up(self, call: AgentCall, reason: str) -> None:
        self.ended.append(f"{call.id}: {reason}")


def test_an_agent_greets_speaks_unasked_and_hangs_up_after_its_last_word() -> None:
    agent = Host()
    heard = call(voice=[(2.0, 3.0), (8.0, 9.0)], seconds=20.0, asr=ScriptedAsr(["One.", "Bye."]), agent=agent)
    assert heard.said() == [
        ("assistant", "Welcome."),
        ("user", "One."),
        ("assistant", "Well."),
        ("assistant", "And one thing more."),
        ("user", "Bye."),
        ("assistant", "Goodbye to you."),
    ]
    assert agent.seen == heard.said()[:5]
    assert [ended.reason for ended in heard.of(CallEnded)] == ["they said bye"]
    assert heard.at(CallEnded)[0] >= heard.at(ReplyDone)[-1] + 0.25
    assert agent.ended == ["sim: they said bye"]


def test_a_goodbye_that_is_overtaken_does_not_end_the_call() -> None:
    asr = ScriptedAsr(["Bye.", "Bye. No, wait a moment."])
    heard = call(voice=[(1.0, 2.0), (2.3, 3.3)], seconds=10.0, asr=asr, agent=Host())
    assert [ended.reason for ended in heard.of(CallEnded)] == ["over"]


class SlowToGreet(Agent):
    async def on_call(self, call: AgentCall) -> str | None:
        await asyncio.sleep(1.5)
        return "Welcome."

    async def on_turn(self, turn: AgentTurn) -> str:
        return "Well."


def test_who_speaks_before_the_greeting_is_answered_and_not_greeted() -> None:
    heard = call(voice=[(1.0, 2.0)], seconds=8.0, asr=ScriptedAsr(["One."]), agent=SlowToGreet())
    assert heard.said() == [("user", "One."), ("assistant", "Well.")]
    assert call(voice=[], seconds=4.0, agent=SlowToGreet()).said() == [("assistant", "Welcome.")]


class Broken(Agent):
    async def on_call(self, call: AgentCall) -> str | None:
        raise RuntimeError("no greeting today")

    async def on_turn(self, turn: AgentTurn) -> str:
        if turn.text == "One.":
            raise ValueError("my own fault")
        return "Fine now."

    async def on_hang_up(self, call: AgentCall, reason: str) -> None:
        await asyncio.sleep(60)


def test_an_agent_that_fails_costs_a_turn() -> None:
    heard = call(
        voice=[(3.0, 4.0), (9.0, 10.0)],
        asr=ScriptedAsr(["One.", "Two."]),
        agent=Broken(),
        options=dataclasses.replace(talk_options(), greeting="Hello."),
    )
    assert [message.code for message in heard.of(CallError)] == ["llm_failed"]
    assert "ValueError" in heard.of(CallError)[0].message
    assert [(done.status, done.heard_text) for done in heard.of(ReplyDone)] == [
        ("completed", "Hello."),
        ("failed", "Sorry, that went wrong."),
        ("completed", "Fine now."),
    ]


def test_an_agent_that_returns_nothing_at_all_is_apologised_for() -> None:
    heard = call(voice=[(1.0, 2.0)], asr=ScriptedAsr(["One."]), agent=Nothing())
    assert [message.code for message in heard.of(CallError)] == ["llm_failed"]
    assert heard.of(ReplyDone)[0].heard_text == "Sorry, that went wrong."


class Silent(Agent):
    async def on_turn(self, turn: AgentTurn) -> str:
        await asyncio.sleep(60)
        return ""


def test_an_agent_that_says_nothing_for_too_long_is_given_up() -> None:
    heard = call(voice=[(1.0, 2.0)], asr=ScriptedAsr(["One."]), agent=Silent())
    assert [message.code for message in heard.of(CallError)] == ["llm_timeout"]


class Clerk(Agent):
    def __init__(self) -> None:
        self.asked_at: list[float] = []

    @tool
    async def stock(self, item: str) -> int:
        """Count what is in stock."""
        self.asked_at.append(asyncio.get_running_loop().time())
        return {"tea": 4}[item]

    @tool(timeout_s=1.0)
    async def order(self) -> str:
        """Order more."""
        await asyncio.sleep(30)
        return "never"


def _tools(answers: Sequence[Sequence[Piece]], *, voice: Sequence[tuple[float, float]] = ((1.0, 2.0),)) -> ToolLlm:
    llm = ToolLlm(answers)
    agent = Clerk()
    said = ScriptedAsr([f"Question {number}." for number in range(1, len(voice) + 1)])
    heard = call(voice=voice, seconds=25.0, asr=said, llm=llm, agent=agent)
    llm.heard = heard  # type: ignore[attr-defined]
    llm.agent = agent  # type: ignore[attr-defined]
    return llm


def test_a_tool_is_called_and_its_result_told_to_the_model() -> None:
    llm = _tools([["Let me see.", _call("stock", item="tea")], ["We have four."]])
    heard = llm.heard  # type: ignore[attr-defined]
    assert heard.said()[1] == ("assistant", "Let me see. We have four.")
    assert heard.of(CallError) == []
    asked, offered = llm.asked[1]
    assert offered == ["stock", "order"]
    assert [message.role for message in asked[-3:]] == ["user", "assistant", "tool"]
    assert asked[-2].tool_calls == (_call("stock", item="tea"),)
    assert (asked[-1].content, asked[-1].tool_call_id) == ("4", "id-stock")


def test_a_tool_is_not_called_before_the_turn_is_over() -> None:
    llm = _tools([[_call("stock", item="tea")], ["Four."]], voice=[(1.0, 2.0), (2.4, 3.4)])
    assert len(llm.agent.asked_at) == 1  # type: ignore[attr-defined]
    assert llm.agent.asked_at[0] > 3.4 + 0.3  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("asked_for", "problem"),
    [
        (_call("order"), "order took longer than 1 seconds"),
        (_call("stock", item="gold"), "stock failed: 'gold'"),
        (_call("stock"), "missing required field"),
        (_call("fly"), "there is no tool called fly"),
    ],
)
def test_a_tool_that_fails_is_shown_and_told_to_the_model_which_still_answers(
    asked_for: ToolCall, problem: str
) -> None:
    llm = _tools([[asked_for], ["I could not do that."]])
    heard = llm.heard  # type: ignore[attr-defined]
    assert [message.code for message in heard.of(CallError)] == ["tool_failed"]
    assert heard.of(CallError)[0].message == f"A tool failed: {asked_for.name}."
    assert problem in json.loads(llm.asked[1][0][-1].content)["error"]
    assert heard.said()[-1] == ("assistant", "I could not do that.")
    assert heard.of(ReplyDone)[0].status == "completed"


def test_a_model_that_only_ever_calls_is_stopped() -> None:
    llm = _tools([*[[_call("stock", item="tea")]] * 4, ["Four it is."]])
    assert [len(offered) for _, offered in llm.asked] == [2, 2, 2, 2, 0]
    assert llm.heard.said()[-1] == ("assistant", "Four it is.")  # type: ignore[attr-defined]


def test_what_was_called_is_known_in_later_turns() -> None:
    llm = _tools([[_call("stock", item="tea")], ["Four."], ["As I said, four."]], voice=[(1.0, 2.0), (8.0, 9.0)])
    roles = [message.role for message in llm.asked[2][0]]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]


def test_tools_need_a_model_that_can_call_them() -> None:
    with pytest.raises(ConfigError, match=r"Clerk has tools \(stock, order\), and --llm ct2 cannot call any"):
        check_agent(Clerk, ScriptedLlm(), "ct2")
    check_agent(Clerk, ToolLlm([]), "openai:m")
    check_agent(Host, NoLlm(), "none")


def test_without_a_model_asking_one_is_a_failed_turn() -> None:
    heard = call(voice=[(1.0, 2.0)], asr=ScriptedAsr(["One."]), llm=NoLlm(), agent=Agent())
    assert "--llm none" in heard.of(CallError)[0].message


def test_an_early_answer_thrown_away_ends_the_agents_stream() -> None:
    closed: list[str] = []

    class Endless(Agent):
        async def on_turn(self, turn: AgentTurn) -> AsyncIterator[str]:
            try:
                yield "Well. "
                await asyncio.sleep(60)
            finally:
                closed.append(turn.text)

    asr = ScriptedAsr([Step(text="One."), Step(text="One. Two.")])
    call(voice=[(1.0, 2.0), (2.35, 3.3)], seconds=4.5, asr=asr, agent=Endless())
    assert closed == ["One.", "One. Two."]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "there is no file"),
        ("x = 1", "defines no Agent"),
        ("from peer.agent import Agent\nclass A(Agent): pass\nclass B(Agent): pass", "has these: A, B; name one"),
        ("import nothing_like_it", r"ModuleNotFoundError: .*\(line 1\)"),
        ("x = ", "SyntaxError"),
        ("\n1 / 0", r"ZeroDivisionError: .*\(line 2\)"),
    ],
)
def test_an_agent_that_cannot_be_loaded_is_named(tmp_path: Path, text: str | None, problem: str) -> None:
    path = tmp_path / "agent.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=problem):
        load_agent(str(path))


def test_one_of_several_agents_is_named(tmp_path: Path) -> None:
    path = tmp_path / "agent.py"
    path.write_text("from peer.agent import Agent\nclass A(Agent): pass\nclass B(A): pass")
    assert load_agent(f"{path}:B").__name__ == "B"
    with pytest.raises(ConfigError, match="no Agent called C; there are: A, B"):
        load_agent(f"{path}:C")
