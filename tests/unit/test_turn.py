"""The turn table: no path leaves anything running that should not, or stops what does not run."""

from __future__ import annotations

import pytest

from peer.turn import RUNNING, TRANSITIONS, Command, Event, State, TurnMachine, diagram

_STARTS = {
    Command.OPEN_TURN: "turn",
    Command.REOPEN_TURN: "turn",
    Command.START_WAIT: "wait",
    Command.START_ASR: "asr",
    Command.START_REPLY: "reply",
    Command.START_DECISION: "decision",
}
_STOPS = {
    Command.DROP_TURN: "turn",
    Command.COMMIT_TURN: "turn",
    Command.STOP_WAIT: "wait",
    Command.STOP_ASR: "asr",
    Command.WITHDRAW_REPLY: "reply",
    Command.CUT_REPLY: "reply",
    Command.STOP_DECISION: "decision",
}
_STOPPED_BY_ITSELF = {Event.REPLY_FINISHED: "reply"}


def _run(running: set[str], event: Event, commands: tuple[Command, ...]) -> set[str]:
    running = set(running)
    if event in _STOPPED_BY_ITSELF:
        running.remove(_STOPPED_BY_ITSELF[event])
    for command in commands:
        if command in _STARTS:
            assert _STARTS[command] not in running, f"{command} starts a second one"
            running.add(_STARTS[command])
        elif command in _STOPS:
            assert _STOPS[command] in running, f"{command} stops what does not run"
            running.remove(_STOPS[command])
        elif command is Command.HANG_UP:
            running.clear()
    return running


@pytest.mark.parametrize(("state", "event"), TRANSITIONS, ids=lambda value: value.value)
def test_each_transition_starts_and_stops_exactly_the_difference(state: State, event: Event) -> None:
    transition = TRANSITIONS[state, event]
    assert _run(set(RUNNING[state]), event, transition.commands) == RUNNING[transition.state]


def test_every_state_can_be_reached_and_leads_back_to_listening() -> None:
    def reachable(start: State) -> set[State]:
        seen, todo = {start}, [start]
        while todo:
            here = todo.pop()
            for (state, _), transition in TRANSITIONS.items():
                if state is here and transition.state not in seen:
                    seen.add(transition.state)
                    todo.append(transition.state)
        return seen

    assert reachable(State.IDLE) == set(State)
    for state in State:
        assert state is State.ENDED or State.LISTENING in reachable(state)


@pytest.mark.parametrize("state", [state for state in State if state is not State.ENDED])
def test_a_hang_up_ends_every_state(state: State) -> None:
    assert TRANSITIONS[state, Event.HUNG_UP].state is State.ENDED


@pytest.mark.parametrize("state", [state for state in State if "reply" in RUNNING[state] and state is not State.READY])
def test_a_reply_that_ends_never_strands_its_state(state: State) -> None:
    assert (state, Event.REPLY_FINISHED) in TRANSITIONS


@pytest.mark.parametrize("state", [state for state in State if "asr" in RUNNING[state]])
@pytest.mark.parametrize("event", [Event.NOTHING_SAID, Event.ASR_FAILED])
def test_a_transcript_that_fails_never_strands_its_state(state: State, event: Event) -> None:
    assert (state, event) in TRANSITIONS


@pytest.mark.parametrize("state", [state for state in State if "reply" in RUNNING[state] or "asr" in RUNNING[state]])
def test_a_caller_is_heard_whatever_runs(state: State) -> None:
    assert (state, Event.VOICE_STARTED) in TRANSITIONS or state is State.DUCKED


def _drive(*events: Event) -> tuple[State, list[Command]]:
    machine = TurnMachine()
    commands: list[Command] = []
    for event in events:
        commands = list(machine.handle(event))
    return machine.state, commands


_SPOKE = (Event.CONNECTED, Event.VOICE_STARTED, Event.VOICE_STOPPED)
_ASKED = (*_SPOKE, Event.TRANSCRIBED, Event.TURN_ENDED)


def test_the_reply_prepared_in_the_pause_is_heard_only_after_the_turn_has_ended() -> None:
    assert _drive(*_SPOKE, Event.TRANSCRIBED) == (State.READY, [Command.STOP_ASR, Command.START_REPLY])
    state, commands = _drive(*_ASKED)
    assert (state, commands[-1]) == (State.THINKING, Command.RELEASE_REPLY)


def test_a_caller_who_goes_on_before_any_word_takes_the_turn_back() -> None:
    expected = (State.HEARING, [Command.WITHDRAW_REPLY, Command.REOPEN_TURN])
    assert _drive(*_ASKED, Event.VOICE_STARTED) == expected


def test_barge_in_ducks_before_it_cuts() -> None:
    speaking = (*_ASKED, Event.REPLY_AUDIBLE)
    assert _drive(*speaking, Event.VOICE_STARTED) == (State.DUCKED, [Command.DUCK, Command.START_DECISION])
    state, commands = _drive(*speaking, Event.VOICE_STARTED, Event.INTERRUPTED)
    assert state is State.HEARING
    assert Command.CUT_REPLY in commands
    assert _drive(*speaking, Event.VOICE_STARTED, Event.FALSE_ALARM)[0] is State.SPEAKING


def test_an_event_of_something_already_over_changes_nothing() -> None:
    assert _drive(*_SPOKE, Event.VOICE_STARTED, Event.TRANSCRIBED) == (State.HEARING, [])
    assert _drive(Event.HUNG_UP, Event.CONNECTED) == (State.ENDED, [])


def test_the_diagram_names_every_state() -> None:
    drawn = diagram()
    assert all(state.value in drawn for state in State if state is not State.ENDED)
