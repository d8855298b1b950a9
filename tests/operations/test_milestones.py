"""Milestones: the platform hears of what happened, with it, once, and never what was said."""

import json
from collections.abc import Sequence

import pytest
import sqlalchemy as sa

from engine_assistant import Assistant
from engine_assistant.model.service import Milestone
from tests.rig.stage import ALICE, ROBOT, Stage, Values, delta, dump

SECRET = "hunter2"


def _whole_life(stage: Stage) -> Values:
    """Take one thread through everything that the platform hears of."""
    run = stage.open_turn(text=SECRET)
    for call_id in ("yes", "no", "left"):
        stage.propose(run, call_id, input={"secret": SECRET})
    digests = {one: stage.ask(run, one, why=SECRET)["usr_alice"] for one in ("yes", "no")}
    stage.append(run, delta(SECRET))
    stage.approve(run, "yes", digests["yes"])
    stage.me.resolve_approval(
        thread_id=run["thread_id"],
        call_id="no",
        approved=False,
        digest=digests["no"],
        reason=SECRET,
    )
    stage.claim(run, "yes", input={"secret": SECRET})
    stage.append(run, {"type": "tool-output", "call_id": "yes", "output": SECRET})
    stage.rest(run)
    stage.me.send_message(thread_id=run["thread_id"], text=SECRET)
    second = stage.take(str(run["thread_id"]))
    stage.append(second, {"type": "turn-error", "code": "overloaded", "message": SECRET})
    stage.me.close_thread(thread_id=run["thread_id"])
    return run


def _expected(run: Values) -> list[tuple[str, Values]]:
    about = {"thread_id": run["thread_id"], "subject_id": "usr_alice"}

    def call(call_id: str, **more: object) -> Values:
        return {**about, "call_id": call_id, "tool": "refund", **more}

    return [
        ("thread-created", about),
        ("turn-started", {**about, "turn": 1}),
        ("approval-requested", call("yes", seq=6)),
        ("approval-requested", call("no", seq=7)),
        ("approval-resolved", call("yes", approved=True, state="approved")),
        ("approval-resolved", call("no", approved=False, state="denied")),
        ("call-closed", call("left", state="cancelled", why="turn-finish")),
        ("turn-finished", {**about, "turn": 1, "reason": "done"}),
        ("turn-started", {**about, "turn": 2}),
        ("turn-failed", {**about, "turn": 2, "code": "overloaded"}),
        ("thread-closed", about),
    ]


@pytest.mark.guarantee("G-OPS-40", "G-OPS-41")
def test_milestones_are_numbered_by_thread_and_carry_no_content(stage: Stage) -> None:
    run = _whole_life(stage)
    stage.bob.create_thread()
    with stage.engine.connect() as connection:
        statement = sa.text(
            "SELECT n, type, payload FROM assistant_outbox WHERE thread_id = :id ORDER BY n"
        )
        rows = connection.execute(statement, {"id": run["thread_id"]}).all()
    assert [row.n for row in rows] == list(range(1, len(rows) + 1))
    assert [(row.type, json.loads(row.payload)) for row in rows] == _expected(run)
    assert SECRET not in repr(rows)


@pytest.mark.guarantee("G-OPS-42")
def test_a_host_with_an_outbox_of_its_own_gets_them_on_the_same_connection(stage: Stage) -> None:
    told: list[Milestone] = []
    connections: list[sa.Connection] = []

    def emit(connection: sa.Connection, milestones: Sequence[Milestone]) -> None:
        connections.append(connection)
        # The change stands already, and is seen only from inside its own transaction.
        found = connection.scalar(sa.text("SELECT count(*) FROM assistant_threads"))
        assert found == 1
        told.extend(milestones)

    stage.assistant = Assistant(stage.engine, clock=stage.clock, emit=emit)
    stage.me = stage.assistant.acting_as(ALICE)
    stage.bot = stage.assistant.acting_as(ROBOT)
    run = _whole_life(stage)
    assert [(one.type, dict(one.payload)) for one in told] == _expected(run)
    assert [one.n for one in told] == list(range(1, len(told) + 1))
    assert {(one.tenant_id, one.thread_id) for one in told} == {("acme", run["thread_id"])}
    assert dump(stage.engine)["assistant_outbox"] == []
    with stage.engine.begin() as mine:
        connections.clear()
        bound = stage.assistant.bind(mine, ALICE)
        bound.get_thread(thread_id=run["thread_id"])
        assert connections == []


@pytest.mark.guarantee("G-OPS-42")
def test_bound_milestones_arrive_on_the_hosts_own_connection(stage: Stage) -> None:
    seen: list[tuple[sa.Connection, str]] = []

    def emit(connection: sa.Connection, milestones: Sequence[Milestone]) -> None:
        seen.extend((connection, one.type) for one in milestones)

    assistant = Assistant(stage.engine, emit=emit)
    with stage.engine.connect() as mine, mine.begin() as transaction:
        thread = assistant.bind(mine, ALICE).create_thread()
        assert seen == [(mine, "thread-created")]
        transaction.rollback()
    assert dump(stage.engine)["assistant_threads"] == []
    assert thread.id


@pytest.mark.guarantee("G-OPS-43")
@pytest.mark.parametrize("operation", ["create", "send", "close", "finish"])
def test_a_host_that_cannot_take_a_milestone_stops_the_change(stage: Stage, operation: str) -> None:
    run = stage.open_turn()
    idle = stage.me.create_thread().id
    before = dump(stage.engine)

    def emit(connection: sa.Connection, milestones: Sequence[Milestone]) -> None:
        raise LookupError("the host's outbox is full")

    assistant = Assistant(stage.engine, clock=stage.clock, emit=emit)
    me, bot = assistant.acting_as(ALICE), assistant.acting_as(ROBOT)
    with pytest.raises(LookupError, match="outbox is full"):
        {
            "create": me.create_thread,
            "send": lambda: me.send_message(thread_id=idle, text="Hello"),
            "close": lambda: me.close_thread(thread_id=run["thread_id"]),
            "finish": lambda: bot.append_events(
                **run, events=[{"type": "turn-finish", "reason": "done"}]
            ),
        }[operation]()
    assert dump(stage.engine) == before
    # What has no milestone never asks the host.
    bot.append_events(**run, events=[delta("x")])


@pytest.mark.guarantee("G-OPS-40")
def test_a_refusal_and_a_repeat_announce_nothing(stage: Stage) -> None:
    thread = stage.me.create_thread(key="k")
    stage.me.send_message(thread_id=thread.id, text="Hello", key="m")
    count = len(dump(stage.engine)["assistant_outbox"])
    stage.me.create_thread(key="k")
    stage.me.send_message(thread_id=thread.id, text="Hello", key="m")
    run = stage.take(thread.id)
    stage.append(run, delta("x"))
    stage.propose(run, "c")
    assert len(dump(stage.engine)["assistant_outbox"]) == count == 2
