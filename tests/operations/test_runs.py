"""Runs as a record: when each began and by what it ended, what it used up and what it did last."""

from datetime import timedelta

import pytest
import sqlalchemy as sa

from engine_assistant import (
    OPERATIONS,
    ConflictReason,
    Internal,
    NotFound,
    Operations,
    ValidationFailed,
)
from engine_assistant.model.usage import Cost, Figure, Provenance, Usage
from engine_assistant.testing.clock import START
from tests.rig.stage import ALICE, AUDITOR, CAROL, ROBOT, TWIN, Play, Stage, Values, delta, refused

REPORTED = {"value": 7, "provenance": "reported"}
EVERYTHING: dict[str, object] = {
    **dict.fromkeys(("input", "output", "reasoning", "cache_read"), REPORTED),
    "cache_write": {"value": 0, "provenance": "computed"},
    "cost": {"value": "0.01250", "currency": "USD", "provenance": "computed"},
}
DOES: Values = {"operation_id": "o1", "kind": "model", "phase": "streaming", "step": "s1"}
DONE = {"type": "turn-finish", "reason": "done"}


def _append(stage: Stage, run: Values, *events: Values, **given: object) -> None:
    stage.bot.call("assistant/append-events", {**run, "events": list(events), **given})


def _run(ops: Operations, run: Values) -> dict[str, object]:
    where = {"thread_id": run["thread_id"], "fence": run["fence"]}
    return ops.call("assistant/get-run", where)


# ---------------------------------------------------------------- how it began and ended


@pytest.mark.guarantee("G-RUN-01")
def test_a_live_run_has_no_end_and_a_lease(stage: Stage) -> None:
    run = stage.open_turn("r1")
    stage.clock.forward(1)
    view = stage.me.get_run(thread_id=str(run["thread_id"]), fence=1)
    assert (view.run_id, view.state, view.turn, view.fence) == ("r1", "running", 1, 1)
    assert view.started_at == START
    assert view.lease_until == START + timedelta(seconds=15)
    assert (view.ended_at, view.reason, view.usage, view.operation) == (None, None, None, None)
    assert view.interrupt_requested_at is None
    stage.me.interrupt_turn(thread_id=str(run["thread_id"]))
    asked = stage.me.get_run(thread_id=str(run["thread_id"]), fence=1)
    assert asked.interrupt_requested_at == START + timedelta(seconds=1)


def _waits(stage: Stage, run: Values) -> None:
    stage.propose(run, "c")
    stage.ask(run, "c")
    stage.rest(run, "awaiting-approval")


def _superseded(stage: Stage, run: Values) -> None:
    stage.me.call(
        "assistant/send-message",
        {"thread_id": run["thread_id"], "text": "Never mind", "supersede_approvals": True},
    )


ENDS = {
    # by what: (the state it leaves the run in, how)
    **{
        reason: ("finished", lambda stage, run, reason=reason: stage.rest(run, reason))
        for reason in ("done", "interrupted", "max-tokens", "limit", "refused")
    },
    "awaiting-approval": ("finished", _waits),
    "error": (
        "finished",
        lambda stage, run: _append(stage, run, {"type": "turn-error", "code": "c", "message": "m"}),
    ),
    "released": ("released", lambda stage, run: stage.bot.release_run(**run)),
    "replaced": ("lost", lambda stage, run: stage.take(str(run["thread_id"]))),
    "closed": ("closed", lambda stage, run: stage.me.close_thread(thread_id=run["thread_id"])),
    "abandoned": (
        "lost",
        lambda stage, run: stage.bot.abandon_turn(
            thread_id=run["thread_id"], reason="gone", fence=run["fence"]
        ),
    ),
}


@pytest.mark.guarantee("G-RUN-01", "G-RUN-02")
@pytest.mark.parametrize("reason", ENDS)
def test_a_run_that_ended_says_when_and_by_what(stage: Stage, reason: str) -> None:
    run = stage.open_turn("r1")
    stage.clock.forward(2)
    state, end = ENDS[reason]
    end(stage, run)
    stage.clock.forward(1)
    view = stage.me.get_run(thread_id=str(run["thread_id"]), fence=1)
    assert (view.state, view.reason, view.turn) == (state, reason, 1)
    assert (view.started_at, view.ended_at) == (START, START + timedelta(seconds=2))
    assert (view.lease_until, view.interrupt_requested_at) == (None, None)


@pytest.mark.guarantee("G-RUN-02")
def test_a_run_of_a_waiting_turn_is_superseded_with_it(stage: Stage) -> None:
    run = stage.open_turn("r1")
    _waits(stage, run)
    held = stage.take(str(run["thread_id"]), "r2")
    _superseded(stage, held)
    assert (_run(stage.me, held)["state"], _run(stage.me, held)["reason"]) == ("lost", "superseded")


@pytest.mark.guarantee("G-RUN-02")
def test_a_run_that_did_not_stop_was_interrupted(stage: Stage) -> None:
    run = stage.open_turn("r1")
    for seconds in (0, 10):
        stage.clock.forward(seconds)
        stage.append(run, delta("on and on"))
        stage.me.interrupt_turn(thread_id=str(run["thread_id"]))
    assert (_run(stage.me, run)["state"], _run(stage.me, run)["reason"]) == ("lost", "interrupted")


@pytest.mark.guarantee("G-RUN-01")
def test_each_holding_is_a_run_and_names_its_turn(stage: Stage) -> None:
    run = stage.open_turn("r1")
    thread_id = str(run["thread_id"])
    stage.rest(stage.take(thread_id, "r1"))
    stage.me.send_message(thread_id=thread_id, text="More")
    stage.take(thread_id, "r2")
    seen = stage.me.list_runs(thread_id=thread_id).items
    assert [(one.fence, one.run_id, one.turn, one.reason) for one in seen] == [
        (3, "r2", 2, None),
        (2, "r1", 1, "done"),
        (1, "r1", 1, "replaced"),
    ]


# ---------------------------------------------------------------- what it used up


@pytest.mark.guarantee("G-RUN-03", "G-RUN-04")
def test_usage_comes_with_a_batch_and_replaces_what_was_there(stage: Stage) -> None:
    run = stage.open_turn()
    _append(stage, run, delta("a"), usage={"input": REPORTED, "output": REPORTED})
    assert _run(stage.me, run)["usage"] == {
        **dict.fromkeys(EVERYTHING),
        "input": REPORTED,
        "output": REPORTED,
    }
    _append(stage, run, delta("b"))
    assert _run(stage.me, run)["usage"]["output"] == REPORTED
    _append(stage, run, delta("c"), DONE, usage=EVERYTHING)
    ended = stage.me.get_run(thread_id=str(run["thread_id"]), fence=1)
    assert ended.reason == "done"
    assert ended.usage == Usage.model_validate(EVERYTHING)
    assert ended.usage.cost == Cost(value="0.01250", currency="USD", provenance=Provenance.COMPUTED)
    assert stage.types(run)[-1] == "turn-finish"


@pytest.mark.guarantee("G-RUN-03")
@pytest.mark.parametrize("reason", ["replaced", "released", "closed", "abandoned"])
def test_whoever_ends_a_run_leaves_it_what_it_used_up(stage: Stage, reason: str) -> None:
    run = stage.open_turn()
    _append(stage, run, delta("a"), usage=EVERYTHING)
    ENDS[reason][1](stage, run)
    assert _run(stage.me, run)["usage"] == EVERYTHING
    if reason == "replaced":
        newer = {**run, "fence": 2}
        assert _run(stage.me, newer)["usage"] is None


@pytest.mark.guarantee("G-RUN-02", "G-RUN-03")
def test_a_run_that_was_asked_to_stop_keeps_what_it_has_and_may_still_be_done(stage: Stage) -> None:
    run = stage.open_turn()
    where = {"thread_id": str(run["thread_id"]), "fence": 1}
    _append(stage, run, delta("a"), usage=EVERYTHING)
    stage.me.interrupt_turn(thread_id=str(run["thread_id"]))
    live = stage.me.get_run(**where)
    assert (live.state, live.reason, live.interrupt_requested_at) == ("running", None, START)
    assert live.usage == Usage.model_validate(EVERYTHING)
    _append(stage, run, delta("b"), DONE)
    ended = stage.me.get_run(**where)
    assert (ended.state, ended.reason, ended.usage) == ("finished", "done", live.usage)
    assert ended.interrupt_requested_at is None


@pytest.mark.guarantee("G-RUN-03")
def test_usage_is_kept_with_its_batch_or_not_at_all(stage: Stage) -> None:
    run = stage.open_turn()
    _append(stage, run, delta("a"), usage={"input": REPORTED})
    kept = _run(stage.me, run)["usage"]
    output = {"type": "tool-output", "call_id": "none", "output": 1}
    with refused(ConflictReason.CALL_STATE):
        _append(stage, run, delta("b"), output, usage=EVERYTHING)
    assert _run(stage.me, run)["usage"] == kept
    _append(stage, run, delta("b"), batch=1, usage=EVERYTHING)
    # The number stands for the events; given again it answers them, and usage stays.
    _append(stage, run, delta("b"), batch=1, usage={"input": REPORTED})
    assert _run(stage.me, run)["usage"] == EVERYTHING
    assert stage.types(run).count("text-delta") == 2


@pytest.mark.guarantee("G-RUN-04")
def test_figures_are_kept_as_they_are_and_bounded(stage: Stage) -> None:
    run = stage.open_turn()
    largest = Figure(value=2**63 - 1, provenance=Provenance.REPORTED)
    exact = Cost(value="9" * 18 + "." + "9" * 18, currency="XAU", provenance=Provenance.REPORTED)
    usage = Usage(input=largest, cost=exact)
    stage.bot.append_events(**run, events=[delta("a")], usage=usage)
    assert stage.me.get_run(thread_id=str(run["thread_id"]), fence=1).usage == usage
    unchecked = Usage.model_construct(input={"value": -1, "provenance": "reported"})
    with pytest.raises(ValidationFailed):
        stage.bot.append_events(**run, events=[delta("a")], usage=unchecked)
    with pytest.raises(ValidationFailed):
        stage.bot.append_events(**run, events=[], usage=usage)


# ---------------------------------------------------------------- what it does


@pytest.mark.guarantee("G-RUN-05")
def test_an_operation_keeps_when_it_began_and_first_put_something_out(stage: Stage) -> None:
    run = stage.open_turn()

    def does(**given: object) -> tuple[float, float | None]:
        stage.clock.forward(1)
        told = stage.bot.record_operation(**{**run, **DOES, **given})
        kept = stage.me.get_run(thread_id=str(run["thread_id"]), fence=1).operation
        assert kept == told
        first = told.first_output_at
        began = (told.started_at - START).total_seconds()
        return began, None if first is None else (first - START).total_seconds()

    assert does() == (1, None)
    assert does(phase="waiting") == (1, None)
    assert does(first_output=True) == (1, 3)
    assert does(first_output=True, step=None) == (1, 3)
    assert does(phase="done") == (1, 3)
    assert does(operation_id="o2", kind="tool", first_output=True) == (6, 6)
    # Going back to an older name begins it anew: only the last one is kept.
    assert does() == (7, None)
    assert stage.types(run) == ["user-message", "turn-start"]


@pytest.mark.guarantee("G-RUN-06")
def test_only_the_holder_records_and_recording_renews(stage: Stage) -> None:
    run = stage.open_turn()
    stage.clock.forward(14)
    stage.bot.record_operation(**run, **DOES)
    stage.clock.forward(14)
    _append(stage, run, delta("a"), usage={"input": REPORTED})
    stage.clock.forward(14)
    with refused(ConflictReason.RUN_IN_PROGRESS):
        stage.take(str(run["thread_id"]), "r2")
    stage.clock.forward(1)
    stage.take(str(run["thread_id"]), "r2")
    for attempt in (
        lambda: stage.bot.record_operation(**run, **DOES),
        lambda: stage.bot.record_operation(**{**run, "fence": 2}, **DOES),
        lambda: _append(stage, run, delta("a"), usage=EVERYTHING),
    ):
        with refused(ConflictReason.RUN_FENCED):
            attempt()
    kept = _run(stage.me, run)
    assert kept["usage"]["cost"] is None
    assert _run(stage.me, {**run, "fence": 2})["operation"] is None
    stage.me.close_thread(thread_id=str(run["thread_id"]))
    with refused(ConflictReason.THREAD_CLOSED):
        stage.bot.record_operation(**{**run, "run_id": "r2", "fence": 2}, **DOES)


# ---------------------------------------------------------------- reading


@pytest.mark.guarantee("G-RUN-07")
def test_runs_are_listed_newest_first_by_state_and_page(stage: Stage) -> None:
    run = stage.open_turn("r1")
    thread_id = str(run["thread_id"])
    for fence in range(2, 8):
        stage.clock.forward(16)
        taken = stage.take(thread_id, f"r{fence}")
        if fence % 3 == 0:
            stage.bot.release_run(**taken)

    def seen(**given: object) -> list[int]:
        fences, cursor = [], None
        while True:
            page = stage.me.list_runs(thread_id=thread_id, cursor=cursor, **given)
            fences += [one.fence for one in page.items]
            cursor = page.cursor
            if cursor is None:
                return fences

    everything = [7, 6, 5, 4, 3, 2, 1]
    for limit in (1, 2, 3, 7, 1000):
        assert seen(limit=limit) == everything
    assert seen(state="running") == [7]
    assert seen(state="released", limit=1) == [6, 3]
    assert seen(state="lost", limit=2) == [5, 4, 2, 1]
    assert seen(state="closed") == []
    cursor = stage.me.list_runs(thread_id=thread_id, limit=1).cursor
    assert cursor is not None
    for other in ({"state": "lost"}, {"thread_id": stage.open_turn()["thread_id"]}):
        with pytest.raises(ValidationFailed):
            stage.me.list_runs(**{"thread_id": thread_id, "cursor": cursor, **other})


@pytest.mark.guarantee("G-RUN-07")
def test_runs_are_shown_to_the_threads_readers_alone(play: Play) -> None:
    where = {"thread_id": play.thread_id}
    for caller in (ALICE, AUDITOR, ROBOT):
        ops = play.stage.assistant.acting_as(caller)
        assert ops.get_run(**where, fence=1) == ops.list_runs(**where).items[0]
    for caller in (CAROL, *TWIN.values()):
        ops = play.stage.assistant.acting_as(caller)
        with pytest.raises(NotFound):
            ops.get_run(**where, fence=1)
        with pytest.raises(NotFound):
            ops.list_runs(**where)
    # A fence that nobody ever had, and one that was of another thread.
    for nowhere in ({**where, "fence": 9}, {"thread_id": play.idle, "fence": 1}):
        with pytest.raises(NotFound):
            play.stage.me.get_run(**nowhere)
    assert play.stage.me.list_runs(thread_id=play.idle).items == ()


@pytest.mark.guarantee("G-RUN-07")
def test_a_run_and_the_head_are_read_in_one_statement(play: Play) -> None:
    asked: list[str] = []
    sa.event.listen(play.stage.engine, "before_cursor_execute", lambda *a: asked.append(a[2]))
    head = play.stage.me.get_thread(thread_id=play.thread_id).last_seq
    asked.clear()
    assert play.stage.me.get_run(thread_id=play.thread_id, fence=1).head_seq == head
    assert len([one for one in asked if not one.startswith("BEGIN")]) == 1
    assert {one.head_seq for one in play.stage.me.list_runs(thread_id=play.thread_id).items} == {
        head
    }


@pytest.mark.parametrize("column", ["usage", "operation"])
def test_what_cannot_be_read_of_a_run_is_named_and_not_quoted(play: Play, column: str) -> None:
    with play.stage.engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE assistant_runs SET {column} = 'hunter2'")
    with pytest.raises(Internal) as broken:
        play.stage.me.get_run(thread_id=play.thread_id, fence=1)
    assert broken.value.facts["fence"] == 1
    assert "hunter2" not in repr(broken.value.to_dict())
    assert broken.value.__context__ is None


def test_the_schema_says_what_usage_is_made_of() -> None:
    schema = OPERATIONS["assistant/append-events"].input_schema
    assert "usage" in schema["properties"]
    assert set(schema["$defs"]["Usage"]["properties"]) == set(EVERYTHING)
