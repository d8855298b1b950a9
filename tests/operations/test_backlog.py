"""What waits for people and for the relay, of every tenant, and what it costs to know."""

import asyncio
import json
from collections import Counter
from datetime import timedelta

import pytest
import sqlalchemy as sa

from engine_assistant import USE, AsyncAssistant, Backlog, Caller, Waiting, make_async_engine
from engine_assistant.model.machines import CallState
from engine_assistant.store import tables
from engine_assistant.testing.clock import START
from tests.rig.stage import Stage, Values

CALLS, EVERY = 20_000, 1_000
NOTHING = Waiting(count=0, since=None, age=0.0)


def asked_one_after_the_other(stage: Stage, *calls: str, **given: object) -> Values:
    """Open a turn whose calls were asked about, ten seconds apart."""
    run = stage.open_turn()
    for call_id in calls:
        stage.clock.forward(10)
        stage.propose(run, call_id)
        stage.ask(run, call_id, **given)
    return run


@pytest.mark.guarantee("G-OTEL-09")
def test_an_approval_waits_from_the_request_to_the_decision_or_to_its_end(stage: Stage) -> None:
    assert stage.assistant.backlog().approvals == NOTHING
    run = asked_one_after_the_other(stage, "one", "two")
    stage.propose(run, "ungated")
    stage.clock.forward(10)
    both = {"approvers": ["usr_alice", "usr_bob"], "required": 2, "expires_in": 60.0}
    stage.propose(run, "both")
    digests = stage.ask(run, "both", **both)
    stage.clock.forward(5)
    waits = Waiting(count=3, since=START + timedelta(seconds=10), age=25.0)
    assert stage.assistant.backlog().approvals == waits
    # It waits for the other of two, and since it was asked.
    stage.approve(run, "both", digests["usr_alice"])
    assert stage.assistant.backlog().approvals == waits
    (card, *_) = stage.me.list_approvals(thread_id=str(run["thread_id"])).items
    stage.approve(run, "one", card.digest)
    assert stage.assistant.backlog().approvals.since == START + timedelta(seconds=20)
    stage.clock.forward(60)  # too late for `both`
    left = Waiting(count=1, since=START + timedelta(seconds=20), age=75.0)
    assert stage.assistant.backlog().approvals == left
    stage.approve(run, "two", stage.ask(run, "two", reissue=True)["usr_alice"])
    assert stage.assistant.backlog().approvals == NOTHING


@pytest.mark.guarantee("G-OTEL-09")
def test_milestones_wait_until_they_were_handed_out(stage: Stage) -> None:
    for tenant in ("acme", "bakery"):
        person = stage.assistant.acting_as(Caller(tenant, "usr_alice", {USE}))
        person.create_thread()
        stage.clock.forward(10)
    waits = Waiting(count=2, since=START, age=20.0)
    assert stage.assistant.backlog() == Backlog(approvals=NOTHING, milestones=waits)

    def refuse(milestone: object) -> None:
        raise RuntimeError

    stage.assistant.drain_outbox(refuse)
    assert stage.assistant.backlog().milestones == waits
    stage.clock.forward(60)
    assert stage.assistant.drain_outbox(lambda milestone: None, limit=1).handed_out == 1
    one = Waiting(count=1, since=START + timedelta(seconds=10), age=70.0)
    assert stage.assistant.backlog().milestones == one
    stage.assistant.drain_outbox(lambda milestone: None)
    assert stage.assistant.backlog().milestones == NOTHING


@pytest.mark.guarantee("G-OTEL-09")
def test_the_async_door_tells_the_same(stage: Stage, async_database_url: str) -> None:
    asked_one_after_the_other(stage, "one")

    async def ask() -> Backlog:
        other = AsyncAssistant(make_async_engine(async_database_url), clock=stage.clock)
        try:
            return await other.backlog()
        finally:
            await other.engine.dispose()

    assert asyncio.run(ask()) == stage.assistant.backlog()


def _crowd(engine: sa.Engine, thread_id: str) -> None:
    """Let one call in a thousand wait, of calls that are over, in a long log."""
    n = sa.select(sa.literal(1).label("i")).cte("n", recursive=True)
    n = n.union_all(sa.select(n.c.i + 1).where(n.c.i < CALLS))
    calls, events = tables.tool_calls, tables.events
    waits = n.c.i % EVERY == 0
    state = sa.case((waits, CallState.AWAITING.value), else_=CallState.DONE.value)
    call_id = sa.literal("call-") + sa.cast(n.c.i, sa.Text)
    copies = {
        calls: (calls.c.call_id == "one", {"call_id": call_id, "state": state}),
        events: (events.c.seq == 1, {"seq": 1000 + n.c.i}),
    }
    with engine.begin() as connection:
        for table, (which, changed) in copies.items():
            values = {column.name: changed.get(column.name, column) for column in table.c}
            copied = sa.select(*(value.label(name) for name, value in values.items()))
            copied = copied.select_from(table.join(n, sa.true()))
            copied = copied.where(table.c.thread_id == thread_id, which)
            connection.execute(sa.insert(table).from_select(list(values), copied))
        for table in (*copies, tables.outbox):
            connection.exec_driver_sql(f"ANALYZE {table.name}")


@pytest.mark.guarantee("G-OTEL-09")
def test_what_is_over_is_not_read(stage: Stage) -> None:
    run = asked_one_after_the_other(stage, "one")
    _crowd(stage.engine, str(run["thread_id"]))
    waiting = CALLS // EVERY + 1
    seen: list[tuple[str, object]] = []
    sa.event.listen(stage.engine, "before_cursor_execute", lambda *a: seen.append((a[2], a[3])))
    told = stage.assistant.backlog()
    assert told.approvals.count == waiting
    ((statement, values),) = [one for one in seen if "assistant_" in one[0]]
    with stage.engine.connect() as connection:
        if stage.engine.dialect.name == "sqlite":
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values).all()
            steps = [str(row[3]) for row in plan if "assistant_" in str(row[3])]
            assert [step.partition(" (")[0] for step in steps] == [
                "SCAN assistant_tool_calls USING INDEX ix_assistant_tool_calls_open",
                "SEARCH assistant_events USING INDEX sqlite_autoindex_assistant_events_1",
                "SCAN assistant_outbox USING COVERING INDEX ix_assistant_outbox_age",
            ]
        else:
            explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}"
            (shown,) = connection.exec_driver_sql(explain, values).scalars()
            read = _read((json.loads(shown) if isinstance(shown, str) else shown)[0]["Plan"])
            assert read["assistant_tool_calls"] == waiting
            assert read["assistant_events"] <= waiting
            assert read["assistant_outbox"] == told.milestones.count


def _read(node: dict[str, object]) -> Counter[str]:
    """Count the rows of each table that a plan looked at, whether it kept them or not."""
    below = node.get("Plans", [])
    assert isinstance(below, list)
    read = sum((_read(child) for child in below), Counter[str]())
    if "Relation Name" in node:
        rows = sum(
            float(str(node.get(name, 0)))
            for name in ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Index Recheck")
        )
        read[str(node["Relation Name"])] += round(rows * float(str(node["Actual Loops"])))
    return read
