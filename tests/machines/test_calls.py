"""Every state of a call, tried with everything that can be done to a call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import pytest
from sqlalchemy import Engine

from tests.machines.tables import APPROVALS, DECIDED, OPEN, PROPOSED
from tests.rig.states import (
    INPUT,
    NO_DIGEST,
    OPERATION,
    SITUATIONS,
    VERSION,
    Fields,
    Stage,
    failure,
    output,
    proposal,
    ready_request,
)
from tests.rig.tries import attempt, results_of, types_after

C = "c1"
WORDS = {"type": "text-delta", "text": "hm"}
Act = Callable[[Stage], object]


def _resolve(stage: Stage, *, approved: bool, version: str | None) -> None:
    stage.owner.resolve_approval(
        thread_id=stage.thread_id,
        call_id=C,
        approved=approved,
        digest=stage.digest(C),
        version=version,
    )


def _claim(stage: Stage, attempt: int | None = None) -> None:
    stage.bot.claim_execution(
        **stage.held,
        call_id=C,
        operation=OPERATION,
        version=VERSION,
        input=INPUT,
        attempt=attempt,
    )


def _settle_output(stage: Stage) -> None:
    fence = stage.call(C).claimed_fence or stage.fence
    stage.bot.settle_execution(
        thread_id=stage.thread_id, call_id=C, claimed_fence=fence, output="late"
    )


def _settle_error(stage: Stage) -> None:
    fence = stage.call(C).claimed_fence or stage.fence
    error = {"code": "late", "message": "it was late"}
    stage.bot.settle_execution(
        thread_id=stage.thread_id, call_id=C, claimed_fence=fence, error=error
    )


# Each event comes in a batch behind another one, so that a refusal has something to take back.
ACTS: Mapping[str, tuple[str, list[str], Act]] = {
    # what is done: (column, the events that it leaves when admitted, how it is done)
    "tool-input": (
        "tool-input",
        ["text-delta", "tool-input"],
        lambda s: s.append(WORDS, proposal(C)),
    ),
    "tool-input of another tool": (
        "another tool",
        [],
        lambda s: s.append(WORDS, proposal(C, "other")),
    ),
    "a ready request": (
        "request",
        ["text-delta", "approval-request"],
        lambda s: s.append(WORDS, ready_request(s, C)),
    ),
    "a ready request, asked again": (
        "reissue",
        ["text-delta", "approval-request"],
        lambda s: s.append(WORDS, ready_request(s, C, reissue=True)),
    ),
    "request_approval": ("request", ["approval-request"], lambda s: s.ask(C)),
    "request_approval, reissue": (
        "reissue",
        ["approval-request"],
        lambda s: s.ask(C, reissue=True),
    ),
    "tool-output": (
        "tool-output",
        ["text-delta", "tool-output"],
        lambda s: s.append(WORDS, output(C)),
    ),
    "tool-error": (
        "tool-error",
        ["text-delta", "tool-error"],
        lambda s: s.append(WORDS, failure(C)),
    ),
    "approve": (
        "approve",
        ["approval-resolved"],
        lambda s: _resolve(s, approved=True, version=VERSION),
    ),
    "deny": ("deny", ["approval-resolved"], lambda s: _resolve(s, approved=False, version=None)),
    "claim": ("claim", ["execution-claimed"], _claim),
    "claim, numbered": ("claim", ["execution-claimed"], lambda s: _claim(s, 7)),
    "settle output": ("output", ["tool-output"], _settle_output),
    "settle error": ("error", ["tool-error"], _settle_error),
    "retry": ("retry", ["call-retried"], lambda s: s.retry(C)),
    "it happened": (
        "happened",
        ["unknown-resolved"],
        lambda s: s.resolve(C, happened=True, output="learnt"),
    ),
    "it did not": (
        "did not",
        ["unknown-resolved"],
        lambda s: s.resolve(C, happened=False, reason="looked"),
    ),
}
INSTEAD = {"expired": "call-closed", "executing": "execution-claimed"}
"""Which event it is after all, where the call ends or goes on in this state."""
CELLS = {name: {**PROPOSED[name], **DECIDED[name]} for name in SITUATIONS}


def _is_refusal(cell: str) -> bool:
    return "_" in cell  # reasons are spelled with it, states with a hyphen


@pytest.mark.guarantee("G-MACH-02", "G-MACH-03")
@pytest.mark.parametrize("name", SITUATIONS)
def test_a_refusal_says_what_the_table_says_and_changes_nothing(engine: Engine, name: str) -> None:
    stage = SITUATIONS[name].reach(Stage(engine), C)
    wanted = {
        act: CELLS[name][column]
        for act, (column, _, _) in ACTS.items()
        if _is_refusal(CELLS[name][column])
    }
    # One stage for all of them: a refusal that changed something would change the next one, too.
    assert {act: attempt(stage, ACTS[act][2]) for act in wanted} == wanted
    assert stage.state(C) == SITUATIONS[name].state


@pytest.mark.parametrize("name", SITUATIONS)
def test_what_is_admitted_moves_the_call_and_leaves_its_event(engine: Engine, name: str) -> None:
    for act, (column, leaves, do) in ACTS.items():
        wanted = CELLS[name][column]
        if _is_refusal(wanted):
            continue
        stage = SITUATIONS[name].reach(Stage(engine), C)
        seq = stage.last_seq()
        assert attempt(stage, do) is None, act
        assert (stage.state(C), stage.turn()) == (wanted, "open"), act
        assert types_after(stage, seq) == [*leaves[:-1], INSTEAD.get(wanted, leaves[-1])], act


@pytest.mark.guarantee("G-MACH-04")
def test_a_call_has_one_result_as_soon_as_it_has_ended_and_none_before(engine: Engine) -> None:
    for name, situation in SITUATIONS.items():
        stage = situation.reach(Stage(engine), C)
        assert stage.state(C) == situation.state, name
        assert len(results_of(stage, C)) == (0 if situation.state in OPEN else 1), name


def test_the_approvals_of_a_call_follow_it(engine: Engine) -> None:
    for name, situation in SITUATIONS.items():
        assert situation.reach(Stage(engine), C).says(C) == APPROVALS[name], name


PLAIN: Iterable[Fields] = (
    {"type": "step-start", "step": "s2"},
    WORDS,
    {"type": "reasoning-delta", "text": "if"},
    {"type": "tool-progress", "call_id": C, "payload": 0.5},
    {"type": "step-finish", "usage": {"out": 7}, "stop_reason": "end"},
    {"type": "data", "kind": "host/note", "payload": None},
)


def test_plain_events_are_taken_in_every_state_of_a_call_and_move_nothing(engine: Engine) -> None:
    for name, situation in SITUATIONS.items():
        stage = situation.reach(Stage(engine), C)
        before, seq = stage.rows(), stage.last_seq()
        for event in PLAIN:
            stage.append(event)
        after = stage.rows()
        assert types_after(stage, seq) == [event["type"] for event in PLAIN], name
        for table in ("inputs", "runs", "tool_calls", "approvals", "outbox"):
            assert after[table] == before[table], (name, table)


def _append(stage: Stage, event: Fields) -> str | None:
    return attempt(stage, lambda s: s.append(WORDS, event))


NOT_A_RUNS: Mapping[str, Fields] = {
    "user-message": {"text": "hi", "author": "usr_alice", "input_id": "i1"},
    "turn-start": {"v": 1},
    "approval-resolved": {
        "call_id": C,
        "approved": True,
        "approver": "usr_alice",
        "digest": NO_DIGEST,
        "state": "approved",
        "missing": 0,
    },
    "execution-claimed": {
        "call_id": C,
        "run_id": "run-1",
        "fence": 1,
        "version": VERSION,
        "request_digest": NO_DIGEST,
    },
    "call-closed": {"call_id": C, "state": "cancelled", "why": "because"},
    "call-retried": {"call_id": C, "run_id": "run-1", "fence": 1},
    "unknown-resolved": {"call_id": C, "happened": True, "author": "usr_alice"},
}


@pytest.mark.guarantee("G-MACH-05")
def test_a_run_writes_no_event_of_a_person_or_of_the_engine(engine: Engine) -> None:
    for name, situation in SITUATIONS.items():
        stage = situation.reach(Stage(engine), C)
        found = {kind: _append(stage, {"type": kind, **NOT_A_RUNS[kind]}) for kind in NOT_A_RUNS}
        assert found == dict.fromkeys(NOT_A_RUNS, "not_a_run_event"), name


def test_a_run_cannot_call_a_result_late(engine: Engine) -> None:
    for name, situation in SITUATIONS.items():
        stage = situation.reach(Stage(engine), C)
        found = [_append(stage, {**event, "late": True}) for event in (output(C), failure(C))]
        assert found == ["validation_failed", "validation_failed"], name


UNPROPOSED = {
    "a ready request": "call_state",
    "a ready request, asked again": "call_state",
    "request_approval": "call_state",
    "request_approval, reissue": "call_state",
    "tool-output": "call_state",
    "tool-error": "call_state",
    "approve": "not_found",
    "deny": "not_found",
    "claim": "not_found",
    "claim, numbered": "not_found",
}


def test_nothing_is_done_to_a_call_that_nobody_proposed(engine: Engine) -> None:
    stage = Stage(engine).begin()
    assert {name: attempt(stage, ACTS[name][2]) for name in UNPROPOSED} == UNPROPOSED

    def settle(stage: Stage) -> None:
        stage.bot.settle_execution(
            thread_id=stage.thread_id, call_id=C, claimed_fence=stage.fence, output=None
        )

    for act in (
        settle,
        lambda s: s.bot.retry_call(**s.held, call_id=C),
        lambda s: s.resolve(C, happened=True),
    ):
        assert attempt(stage, act) == "not_found"


@pytest.mark.guarantee("G-MACH-06")
def test_a_late_result_of_a_lost_call_is_a_note_after_its_ending(engine: Engine) -> None:
    for name in ("unknown, ungated", "unknown, gated"):
        stage = SITUATIONS[name].reach(Stage(engine), C)
        prefix = stage.log()
        _settle_output(stage)
        ending, note = results_of(stage, C)
        assert (ending["type"], ending["state"]) == ("call-closed", "unknown")
        assert (note["type"], note["late"], note["output"]) == ("tool-output", True, "late")
        assert stage.log()[: len(prefix)] == prefix
        assert attempt(stage, _settle_error) == "call_state"
        rows = stage.rows()
        _settle_output(stage)  # the same again is the first answer
        assert stage.rows() == rows
