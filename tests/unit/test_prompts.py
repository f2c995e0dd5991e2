"""The prompt's table, the retry, and the token window."""

from __future__ import annotations

from pathlib import Path

import pytest

from peer.prompts import (
    PROMPT_TRANSITIONS,
    TOKEN_CHANNEL_CAPACITY,
    PromptEvent,
    PromptMachine,
    PromptState,
    RateMeter,
    diagram,
    token_window,
)

E = PromptEvent


def run(*events: PromptEvent) -> PromptMachine:
    machine = PromptMachine()
    for event in events:
        assert machine.handle(event), event
    return machine


def test_the_straight_way() -> None:
    assert run(E.SUBMITTED, E.PARSED, E.VALID, E.TOKEN, E.TOKEN).state is PromptState.STREAMING
    assert run(E.SUBMITTED, E.PARSED, E.VALID, E.TOKEN, E.FINISHED).state is PromptState.IDLE
    assert run(E.SUBMITTED, E.PARSED, E.EMPTY).state is PromptState.IDLE


@pytest.mark.parametrize("state", [state for state in PromptState if state is not PromptState.IDLE])
def test_every_state_leads_back_to_idle_and_can_be_interrupted(state: PromptState) -> None:
    reached = {state}
    while new := {to for (at, _), to in PROMPT_TRANSITIONS.items() if at in reached} - reached:
        reached |= new
    assert PromptState.IDLE in reached
    if state is not PromptState.INTERRUPTED:
        assert (state, E.INTERRUPTION) in PROMPT_TRANSITIONS


def test_a_failure_before_the_first_token_is_retried_once() -> None:
    assert run(E.SUBMITTED, E.PARSED, E.VALID, E.FAILED).may_retry
    machine = run(E.SUBMITTED, E.PARSED, E.VALID, E.FAILED, E.RETRY, E.FAILED)
    assert not machine.may_retry
    assert not machine.handle(E.RETRY), "once"
    assert machine.handle(E.GIVEN_UP)
    for event in (E.SUBMITTED, E.PARSED, E.VALID, E.FAILED):
        assert machine.handle(event)
    assert machine.may_retry, "the next prompt has a retry of its own"


def test_a_broken_reply_is_not_begun_anew() -> None:
    assert run(E.SUBMITTED, E.PARSED, E.VALID, E.TOKEN, E.FAILED).state is PromptState.IDLE


def test_tokens_after_an_interruption_are_dropped() -> None:
    machine = run(E.SUBMITTED, E.PARSED, E.VALID, E.TOKEN, E.INTERRUPTION)
    assert not machine.handle(E.TOKEN)
    assert machine.handle(E.CANCELLED)
    assert machine.state is PromptState.IDLE


def test_the_window() -> None:
    assert token_window(tokens_per_s=40, delay_s=0.5) == 24
    assert token_window(tokens_per_s=41, delay_s=0.5) == 25
    assert token_window(tokens_per_s=10, delay_s=0.01) == 4
    assert token_window(tokens_per_s=10_000, delay_s=1.0) == TOKEN_CHANNEL_CAPACITY


def test_rate_and_delay_are_measured() -> None:
    meter = RateMeter()
    assert meter.window == TOKEN_CHANNEL_CAPACITY
    for index in range(200):
        meter.handle_token(now=index * 0.02)
        meter.handle_taken(given_at=index * 0.02, now=index * 0.02 + 0.3)
    assert meter.window == token_window(tokens_per_s=50, delay_s=0.3) == 18
    meter.handle_restart()
    meter.handle_token(now=1000.0)
    assert meter.window == 18


def test_the_page_shows_the_table_as_it_is() -> None:
    page = Path(__file__).parents[2] / "docs" / "text.md"
    assert diagram() in page.read_text(encoding="utf-8")
