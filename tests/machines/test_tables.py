"""The tables of the engine are those of the design."""

from __future__ import annotations

import pytest

from engine_assistant.model import machines
from engine_assistant.model.errors import ConflictReason
from engine_assistant.model.machines import CallState, Ending, Trigger
from engine_assistant.model.refusals import REFUSALS
from tests.machines.tables import APPROVALS, DECIDED, ENDINGS, OPEN, PROPOSED, REFUSED
from tests.rig.states import SITUATIONS

ROWS = {
    Ending.DONE: "done",
    Ending.FINISHED: "another reason",
    Ending.RESTED: "awaiting-approval",
    Ending.FENCED: "the fence rises",
    Ending.ENDED: "interrupt or close",
    Ending.SUPERSEDED: "superseded",
}
COLUMNS = {
    Trigger.TOOL_INPUT: "tool-input",
    Trigger.REQUEST: "request",
    Trigger.REISSUE: "reissue",
    Trigger.OUTPUT: "tool-output",
    Trigger.ERROR: "tool-error",
    Trigger.LATE_OUTPUT: "late",
    Trigger.LATE_ERROR: "late",
    Trigger.RESOLVE: "resolve",
    Trigger.CLAIM: "claim",
    Trigger.RETRY: "decided anew",
    Trigger.RECLAIM: "decided anew",
    Trigger.HAPPENED: "decided anew",
    Trigger.DID_NOT_HAPPEN: "decided anew",
}
MOVES = {
    "turn": {
        ("send-message", "idle", "open"),
        ("send-message", "awaiting", "open"),
        ("turn-finish awaiting-approval", "open", "awaiting"),
        ("a call is settled", "awaiting", "open"),
        ("nothing unlapsed waits", "awaiting", "open"),
        ("turn-finish, turn-error", "open", "idle"),
        ("interrupt, close, abandon", "open", "idle"),
        ("interrupt, close, abandon", "awaiting", "idle"),
        ("the turn before it is over", "idle", "open"),
    },
    "run": {
        ("acquire-run", "None", "running"),
        ("turn-finish awaiting-approval", "running", "finished"),
        ("turn-finish, turn-error", "running", "finished"),
        ("release-run", "running", "released"),
        ("the fence rises", "running", "lost"),
        ("close-thread", "running", "closed"),
    },
    "approval": {
        ("approval-request", "None", "pending"),
        ("approved", "pending", "approved"),
        ("denied", "pending", "denied"),
        ("a call is settled", "pending", "superseded"),
        ("approval-request, asked again", "pending", "superseded"),
        ("approval-request, asked again", "approved", "superseded"),
        ("call-closed, expired", "pending", "expired"),
        ("call-closed, superseded", "pending", "superseded"),
        ("call-closed, cancelled", "pending", "cancelled"),
    },
    "input": {
        ("send-message", "None", "opened"),
        ("send-message, queued", "None", "queued"),
        ("the turn before it is over", "queued", "opened"),
        ("take-inputs", "queued", "absorbed"),
        ("edit-input", "queued", "queued"),
        ("cancel-input", "queued", "cancelled"),
        ("close-thread", "queued", "cancelled"),
    },
    "call": {
        ("tool-input", "None", "running"),
        ("tool-input", "running", "running"),
        ("approval-request", "running", "awaiting-approval"),
        ("approval-request, asked again", "awaiting-approval", "awaiting-approval"),
        ("approval-request, asked again", "approved", "awaiting-approval"),
        ("approved", "awaiting-approval", "approved"),
        ("denied", "awaiting-approval", "denied"),
        ("execution-claimed", "approved", "executing"),
        ("tool-output", "running", "done"),
        ("tool-output", "executing", "done"),
        ("tool-error", "running", "failed"),
        ("tool-error", "approved", "failed"),
        ("tool-error", "executing", "failed"),
        ("tool-output, late", "executing", "done"),
        ("tool-output, late", "unknown", "done"),
        ("tool-error, late", "executing", "failed"),
        ("tool-error, late", "unknown", "failed"),
        ("call-retried", "unknown", "running"),
        ("execution-claimed, again", "unknown", "executing"),
        ("unknown-resolved, it happened", "unknown", "done"),
        ("unknown-resolved, it did not", "unknown", "cancelled"),
        ("call-closed, expired", "awaiting-approval", "expired"),
        ("call-closed, expired", "approved", "expired"),
        ("call-closed, superseded", "awaiting-approval", "superseded"),
        ("call-closed, superseded", "approved", "superseded"),
        ("call-closed, cancelled", "running", "cancelled"),
        ("call-closed, cancelled", "awaiting-approval", "cancelled"),
        ("call-closed, cancelled", "approved", "cancelled"),
        ("call-closed, unknown", "running", "unknown"),
        ("call-closed, unknown", "executing", "unknown"),
    },
}


@pytest.mark.guarantee("G-MACH-01")
def test_the_closing_table_is_the_one_of_the_design() -> None:
    found = {
        ROWS[ending]: {state.value: "-" if end is None else end.value for state, end in row.items()}
        for ending, row in machines.CLOSING.items()
    }
    assert found == ENDINGS
    assert tuple(state.value for state in machines.OPEN_CALLS) == OPEN


@pytest.mark.guarantee("G-MACH-02")
def test_the_refusal_table_is_the_one_of_the_design() -> None:
    assert set(REFUSALS) == set(COLUMNS)
    for trigger, column in COLUMNS.items():
        found = {state.value: reason.value for state, reason in REFUSALS[trigger].items()}
        wanted = {state: row[column] for state, row in REFUSED.items() if row[column] != "-"}
        assert found == wanted, trigger


def test_a_call_may_leave_a_state_exactly_where_the_refusal_table_is_silent() -> None:
    for trigger, refusals in REFUSALS.items():
        if trigger is Trigger.RESOLVE:
            admitted = [s for s in CallState if machines.CALL.allows(Trigger.APPROVE, s)]
            assert admitted == [s for s in CallState if machines.CALL.allows(Trigger.DENY, s)]
        else:
            admitted = [s for s in CallState if machines.CALL.allows(trigger, s)]
        assert admitted == [s for s in CallState if s not in refusals], trigger


def test_the_moves_are_those_of_the_design_and_no_others() -> None:
    found = {
        machine.name: {(str(m.trigger), str(m.source), str(m.target)) for m in machine.moves}
        for machine in machines.MACHINES
    }
    assert found == MOVES


def test_the_situations_reach_every_state_and_the_tables_cover_every_situation() -> None:
    states = {state.value for state in CallState}
    assert {situation.state for situation in SITUATIONS.values()} == states
    assert set(REFUSED) == states
    assert list(PROPOSED) == list(DECIDED) == list(SITUATIONS) == list(APPROVALS)


def test_every_cell_is_a_state_or_a_reason() -> None:
    words = {state.value for state in CallState} | {reason.value for reason in ConflictReason}
    cells = {
        cell
        for table in (ENDINGS, REFUSED, PROPOSED, DECIDED)
        for row in table.values()
        for cell in row.values()
    }
    assert cells <= words | {"-", "not_found"}
