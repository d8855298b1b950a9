"""How a turn's calls end: every state, and all of them at once, by everything that ends a turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
import sqlalchemy as sa
from sqlalchemy import Engine

from tests.machines.tables import ENDINGS, OPEN
from tests.rig.states import LEASE, SITUATIONS, Fields, Stage, finish, turn_error
from tests.rig.tries import attempt, closed_after, results_of, types_after

C, WAITS = "c1", "w"
UNENDED = [name for name, situation in SITUATIONS.items() if situation.state in OPEN]
ENDED = [name for name in SITUATIONS if name not in UNENDED]
Act = Callable[[Stage], object]

FINISHES: Mapping[str, tuple[str, Fields]] = {
    "done": ("done", finish("done")),
    "interrupted": ("another reason", finish("interrupted")),
    "max-tokens": ("another reason", finish("max-tokens")),
    "limit": ("another reason", finish("limit")),
    "refused": ("another reason", finish("refused")),
    "turn-error": ("another reason", turn_error()),
    "awaiting-approval": ("awaiting-approval", finish("awaiting-approval")),
}


def _interrupt(stage: Stage) -> None:
    assert stage.owner.interrupt_turn(thread_id=stage.thread_id).ended


def _interrupt_twice(stage: Stage) -> None:
    assert not stage.owner.interrupt_turn(thread_id=stage.thread_id).ended
    stage.hands.advance(10)
    _interrupt(stage)


def _close(stage: Stage) -> None:
    stage.owner.close_thread(thread_id=stage.thread_id)


def _supersede(stage: Stage) -> None:
    stage.owner.send_message(thread_id=stage.thread_id, text="no, this", supersede_approvals=True)


def _release(stage: Stage) -> None:
    assert stage.bot.release_run(**stage.held)


def _die(stage: Stage) -> Stage:
    """Let the lease run out. What is asked for long outlives it."""
    stage.hands.advance(LEASE)
    return stage


# What ends or leaves the turn without an event of its run: (row, how, the event that rests it,
# the turn then, the run then, by how much the fence rises).
OTHERS: Mapping[str, tuple[str, Act, list[str], str, str, int]] = {
    "the same run id again": (
        "the fence rises", lambda s: s.acquire(), [], "open", "lost", 1,
    ),
    "another run": (
        "the fence rises", lambda s: _die(s).acquire("run-2"), [], "open", "lost", 1,
    ),
    "release": ("the fence rises", _release, [], "open", "released", 0),
    "interrupt, no live run": (
        "interrupt or close", lambda s: _interrupt(_die(s)), ["turn-finish"], "idle", "lost", 1,
    ),
    "interrupt, asked twice": (
        "interrupt or close", _interrupt_twice, ["turn-finish"], "idle", "lost", 1,
    ),
    "close": ("interrupt or close", _close, ["turn-finish"], "idle", "closed", 1),
}  # fmt: skip


def _outcome(row: str, state: str, *, lapsed: bool) -> str:
    """Answer what the table says of a call: a state, a reason, or `-`."""
    if state not in OPEN:
        return "-"
    return "expired" if lapsed else ENDINGS[row][state]


def _expect(stage: Stage, seq: int, outcome: str, state: str, resting: list[str]) -> None:
    closes = outcome != "-"
    assert types_after(stage, seq) == ["call-closed"] * closes + resting
    assert closed_after(stage, seq) == ([(C, outcome)] if closes else [])
    assert stage.state(C) == (outcome if closes else state)
    assert len(results_of(stage, C)) == (0 if stage.state(C) in OPEN else 1)


@pytest.mark.guarantee("G-MACH-01")
@pytest.mark.parametrize("name", UNENDED)
def test_the_runs_own_event_ends_the_turn_as_the_table_says(engine: Engine, name: str) -> None:
    situation = SITUATIONS[name]
    for row, event in FINISHES.values():
        stage = situation.reach(Stage(engine), C)
        rests = row == "awaiting-approval"
        if rests:  # a turn waits only while a call does
            stage.propose(WAITS).ask(WAITS)
        seq, fence = stage.last_seq(), stage.fence
        outcome = _outcome(row, situation.state, lapsed=situation.lapses)
        refused = attempt(stage, lambda s, e=event: s.append(e))  # type: ignore[misc]
        if "_" in outcome:
            assert (refused, stage.turn()) == (outcome, "open"), event
            continue
        assert refused is None, event
        _expect(stage, seq, outcome, situation.state, [str(event["type"])])
        head = stage.head()
        assert head["turn_state"] == ("awaiting" if rests else "idle"), event
        assert (head["run_id"], head["lease_until"], head["fence"]) == (None, None, fence)
        assert stage.runs()[fence] == "finished"


@pytest.mark.guarantee("G-MACH-01")
@pytest.mark.parametrize("name", UNENDED)
def test_whoever_else_ends_or_leaves_the_turn_closes_calls_as_the_table_says(
    engine: Engine, name: str
) -> None:
    situation = SITUATIONS[name]
    for way, (row, act, resting, turn, run, rise) in OTHERS.items():
        stage = situation.reach(Stage(engine), C)
        seq, fence = stage.last_seq(), stage.fence
        # A release waits for nobody and expires nothing: the next acquire does.
        lapsed = situation.lapses and way != "release"
        act(stage)
        outcome = _outcome(row, situation.state, lapsed=lapsed)
        _expect(stage, seq, outcome, situation.state, resting)
        head = stage.head()
        assert (head["turn_state"], head["fence"]) == (turn, fence + rise), way
        assert stage.runs()[fence] == run, way
        if row == "interrupt or close" or run == "released":
            assert (head["run_id"], head["lease_until"]) == (None, None), way


@pytest.mark.guarantee("G-MACH-07")
@pytest.mark.parametrize("name", ["awaiting", "awaiting, lapsed"])
def test_a_waiting_turn_ends_as_the_table_says(engine: Engine, name: str) -> None:
    ways: Mapping[str, tuple[Act, list[str], str]] = {
        "interrupt or close": (_interrupt, ["turn-finish"], "idle"),
        "superseded": (_supersede, ["user-message", "turn-start"], "open"),
    }
    situation = SITUATIONS[name]
    for row, (act, resting, turn) in {**ways, "close": (_close, ["turn-finish"], "idle")}.items():
        stage = Stage(engine).begin()
        situation.prepare(stage, C)
        stage.append(finish("awaiting-approval"))
        if situation.lapses:
            stage.lapse()
        seq, fence = stage.last_seq(), stage.fence
        act(stage)
        table = "superseded" if row == "superseded" else "interrupt or close"
        outcome = _outcome(table, situation.state, lapsed=situation.lapses)
        _expect(stage, seq, outcome, situation.state, resting)
        assert stage.turn() == turn, row
        assert stage.says(C) == {"usr_alice": outcome}, row
        # Nobody held a lease, so a message has nothing to take; whoever ends the turn takes it.
        assert stage.head()["fence"] == fence + (row != "superseded"), row


@pytest.mark.parametrize("name", ["running", "approved", "executing"])
def test_what_no_run_can_leave_behind_in_a_waiting_turn_is_superseded_all_the_same(
    engine: Engine, name: str
) -> None:
    stage = SITUATIONS[name].reach(Stage(engine), C)
    stage.propose(WAITS).ask(WAITS)
    # turn-finish closes or refuses such calls, so this turn is put to waiting by hand.
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE assistant_threads SET turn_state = 'awaiting'"))
    seq = stage.last_seq()
    _supersede(stage)
    outcome = ENDINGS["superseded"][SITUATIONS[name].state]
    assert closed_after(stage, seq) == [(C, outcome), (WAITS, "superseded")]
    assert types_after(stage, seq)[2:] == ["user-message", "turn-start"]
    assert stage.runs()[stage.fence] == "lost"


# ---------------------------------------------------------------- all of them at once

EVERYONE = (
    ("a", "running"),
    ("b", "awaiting, lapsed"),
    ("c", "done, ungated"),
    ("d", "approved"),
    ("e", "executing"),
    ("f", "approved, lapsed"),
    ("g", "awaiting"),
    ("h", "denied"),
    ("i", "running"),
)
BLOCKED_BY = {"done": "awaiting", "awaiting-approval": "approved"}
WAYS: Mapping[str, tuple[str, Act]] = {
    **{
        name: (row, lambda s, e=event: s.append(e))  # type: ignore[misc]
        for name, (row, event) in FINISHES.items()
    },
    **{name: (row, act) for name, (row, act, *_) in OTHERS.items()},
}


@pytest.mark.guarantee("G-MACH-08")
@pytest.mark.parametrize("way", WAYS)
def test_all_calls_of_a_turn_are_closed_in_call_order_before_the_event_that_rests_it(
    engine: Engine, way: str
) -> None:
    row, act = WAYS[way]
    cast = [(call, name) for call, name in EVERYONE if BLOCKED_BY.get(way) != name]
    stage = Stage(engine).begin()
    for call, name in cast:
        SITUATIONS[name].prepare(stage, call)
    stage.lapse()
    seq = stage.last_seq()
    act(stage)
    wanted = []
    for call, name in cast:
        situation = SITUATIONS[name]
        lapsed = situation.lapses and way != "release"
        outcome = _outcome(row, situation.state, lapsed=lapsed)
        assert stage.state(call) == (situation.state if outcome == "-" else outcome), call
        wanted += [] if outcome == "-" else [(call, outcome)]
    assert closed_after(stage, seq) == wanted
    types = types_after(stage, seq)
    assert types[: len(wanted)] == ["call-closed"] * len(wanted)
    assert len(types) - len(wanted) == (0 if row == "the fence rises" else 1)
    for call, _ in cast:
        assert len(results_of(stage, call)) == (0 if stage.state(call) in OPEN else 1), call


@pytest.mark.parametrize("way", ["done", "awaiting-approval"])
def test_one_call_that_forbids_the_ending_keeps_all_of_them_as_they_are(
    engine: Engine, way: str
) -> None:
    stage = Stage(engine).begin()
    for call, name in EVERYONE:
        SITUATIONS[name].prepare(stage, call)
    stage.lapse()
    wanted = {"done": "approval_pending", "awaiting-approval": "execution_not_claimed"}
    assert attempt(stage, WAYS[way][1]) == wanted[way]


@pytest.mark.guarantee("G-MACH-04")
@pytest.mark.parametrize("way", WAYS)
def test_a_call_that_has_ended_is_moved_by_no_ending(engine: Engine, way: str) -> None:
    stage = Stage(engine).begin()
    for name in ENDED:
        SITUATIONS[name].prepare(stage, name)
    if way == "awaiting-approval":
        stage.propose(WAITS).ask(WAITS)
    seq = stage.last_seq()
    WAYS[way][1](stage)
    assert closed_after(stage, seq) == []
    for name in ENDED:
        assert stage.state(name) == SITUATIONS[name].state
        assert len(results_of(stage, name)) == 1, name


@pytest.mark.guarantee("G-MACH-09")
def test_a_turn_cannot_wait_when_nothing_unlapsed_waits(engine: Engine) -> None:
    for name in SITUATIONS:
        if name != "awaiting":
            stage = SITUATIONS[name].reach(Stage(engine), C)
            refused = attempt(stage, lambda s: s.append(finish("awaiting-approval")))
            assert refused == "no_approval_pending", name


def test_what_lapsed_expires_with_a_decision_on_another_call(engine: Engine) -> None:
    for name in ("awaiting, lapsed", "approved, lapsed"):
        for approved in (True, False):
            stage = Stage(engine).begin().propose(WAITS).ask(WAITS)
            SITUATIONS[name].prepare(stage, C)
            seq = stage.lapse().last_seq()
            stage.answer(WAITS, approved=approved)
            assert types_after(stage, seq) == ["call-closed", "approval-resolved"], name
            assert closed_after(stage, seq) == [(C, "expired")], name


def test_a_lapsed_call_is_answered_only_by_a_denial_and_that_needs_neither_version_nor_time(
    engine: Engine,
) -> None:
    stage = SITUATIONS["awaiting, lapsed"].reach(Stage(engine), C)
    assert attempt(stage, lambda s: s.answer(C)) == "approval_expired"
    stage.hands.advance(LEASE)
    stage.answer(C, approved=False)
    assert (stage.state(C), stage.says(C)) == ("denied", {"usr_alice": "denied"})
