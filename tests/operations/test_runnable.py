"""What a run should pick up: fair to every tenant, and found without a look at what rests."""

import json

import pytest
import sqlalchemy as sa

from engine_assistant import RUN, USE, Assistant, Caller, ValidationFailed
from engine_assistant.store import tables
from engine_assistant.store.columns import Instant
from engine_assistant.store.runnable import runnable
from engine_assistant.testing.clock import START
from tests.rig.stage import Stage

IDLE, UNREST, TENANTS = 20_000, 40, 7


def _say(stage: Stage, tenant: str, count: int) -> list[str]:
    """Open so many turns of a tenant, one every second."""
    person = stage.assistant.acting_as(Caller(tenant, "usr_alice", {USE}))
    made = []
    for _ in range(count):
        stage.clock.forward(1)
        thread_id = person.create_thread().id
        person.send_message(thread_id=thread_id, text="Hello")
        made.append(thread_id)
    return made


def _found(stage: Stage, limit: int = 1000, **given: object) -> list[tuple[str, str]]:
    return [(one.tenant, one.thread_id) for one in stage.assistant.list_runnable(limit, **given)]


@pytest.mark.guarantee("G-RUN-08")
def test_a_tenant_with_many_keeps_nobody_waiting(stage: Stage) -> None:
    many = _say(stage, "many", 12)
    some = _say(stage, "some", 3)
    one = _say(stage, "one", 1)
    first = [("many", many[0]), ("some", some[0]), ("one", one[0])]
    second = [("many", many[1]), ("some", some[1])]
    third = [("many", many[2]), ("some", some[2])]
    rest = [("many", thread) for thread in many[3:]]
    assert _found(stage) == first + second + third + rest
    for limit in range(1, 8):
        assert _found(stage, limit) == (first + second + third)[:limit]
    # Who is left out takes no place of its tenant.
    assert _found(stage, 3, exclude=first) == [("many", many[1]), ("some", some[1]), third[0]]


@pytest.mark.guarantee("G-RUN-08")
def test_lost_leases_and_lapsed_approvals_stand_in_one_line(stage: Stage) -> None:
    """By age within their tenant, whatever they wait for."""
    lapsed = stage.open_turn()
    stage.propose(lapsed, "c")
    stage.ask(lapsed, "c", expires_in=20)
    stage.rest(lapsed, "awaiting-approval")
    stage.clock.forward(1)
    lost = stage.open_turn()
    free = _say(stage, "acme", 1)[0]
    other = _say(stage, "other", 1)[0]
    assert _found(stage) == [("acme", free), ("other", other)]
    stage.clock.forward(20)
    why = {one.thread_id: (one.why, one.turn) for one in stage.assistant.list_runnable()}
    assert why == {
        str(lost["thread_id"]): ("lease-ran-out", 1),
        free: ("no-run", 1),
        other: ("no-run", 1),
        str(lapsed["thread_id"]): ("approvals-lapsed", 1),
    }
    mine = [thread for tenant, thread in _found(stage) if tenant == "acme"]
    assert mine == [lost["thread_id"], free, lapsed["thread_id"]]
    held = stage.take(free)
    assert ("acme", free) not in _found(stage)
    stage.bot.release_run(**held)
    assert ("acme", free) in _found(stage)


@pytest.mark.guarantee("G-RUN-08")
def test_whoever_picks_up_what_is_listed_serves_everybody(stage: Stage) -> None:
    """Workers that always take the first free thread come to every tenant in turn."""
    wanted = {
        tenant: _say(stage, tenant, count) for tenant, count in (("a", 9), ("b", 2), ("c", 1))
    }
    served: list[str] = []
    while found := stage.assistant.list_runnable(limit=1):
        (one,) = found
        bot = stage.assistant.acting_as(Caller(one.tenant, "sys_robot", {RUN}, system=True))
        lease = bot.acquire_run(thread_id=one.thread_id, run_id="r1", stale_after=3600.0)
        bot.append_events(
            thread_id=one.thread_id,
            run_id="r1",
            fence=lease.fence,
            events=[{"type": "turn-finish", "reason": "done"}],
        )
        served.append(one.tenant)
    assert sorted(served) == sorted(t for t, threads in wanted.items() for _ in threads)
    assert served[0] == "a"


def _resting() -> sa.Insert:
    """Make threads of which one in five hundred is open, and one waits in vain."""
    n = sa.select(sa.literal(0).label("i")).cte("n", recursive=True)
    n = n.union_all(sa.select(n.c.i + 1).where(n.c.i < IDLE - 1))
    kind = n.c.i % (2 * IDLE // UNREST)
    at = sa.literal(START, Instant())
    values = {
        "tenant_id": sa.literal("t") + sa.cast(n.c.i % TENANTS, sa.Text),
        "id": sa.literal("thread-") + sa.cast(n.c.i, sa.Text),
        "subject_id": sa.literal("usr_alice"),
        "status": sa.literal("open"),
        "turn_state": sa.case((kind == 0, "open"), (kind == 1, "awaiting"), else_="idle"),
        "open_since": sa.case((kind == 0, at), else_=sa.null()),
        "next_deadline": sa.case((kind == 1, at), else_=sa.null()),
        **dict.fromkeys(("turn", "last_seq", "fence", "milestones"), sa.literal(1)),
        "last_batch": sa.literal(0),
        **dict.fromkeys(("created_at", "last_active_at"), at),
    }
    made = sa.select(*(value.label(name) for name, value in values.items()))
    return sa.insert(tables.threads).from_select(list(values), made)


@pytest.fixture
def crowded(engine: sa.Engine) -> sa.Engine:
    """A database in which nearly everything rests."""
    with engine.begin() as connection:
        connection.execute(_resting())
        connection.exec_driver_sql("ANALYZE assistant_threads")
    return engine


@pytest.mark.guarantee("G-MACH-94")
def test_what_rests_is_not_touched(crowded: sa.Engine) -> None:
    seen: list[tuple[str, object]] = []
    sa.event.listen(crowded, "before_cursor_execute", lambda *a: seen.append((a[2], a[3])))
    with crowded.connect() as connection:
        found = runnable(connection, schema=None, clock=lambda: START, limit=1000, exclude=[])
        statement, values = seen[-1]
        if crowded.dialect.name == "sqlite":
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values).all()
            steps = [str(row[3]) for row in plan if "assistant_threads" in str(row[3])]
            assert [step.partition(" (")[0] for step in steps] == [
                "SCAN assistant_threads USING INDEX ix_assistant_threads_open",
                "SEARCH assistant_threads USING INDEX ix_assistant_threads_deadline",
            ]
        else:
            explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}"
            shown = connection.exec_driver_sql(explain, values).scalar_one()
            tree = json.loads(shown) if isinstance(shown, str) else shown
            assert _touched(tree[0]["Plan"]) == UNREST
    assert len(found) == UNREST


def _touched(node: dict[str, object]) -> int:
    """Count the rows of threads that a plan looked at, whether it kept them or not."""
    below = node.get("Plans", [])
    assert isinstance(below, list)
    total = sum(_touched(child) for child in below)
    if node.get("Relation Name") == "assistant_threads":
        assert node["Node Type"] != "Seq Scan"
        for name in ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Index Recheck"):
            total += round(float(str(node.get(name, 0))))
    return total


@pytest.mark.guarantee("G-MACH-94")
def test_an_injected_clock_finds_the_same(crowded: sa.Engine) -> None:
    past = Assistant(crowded, clock=lambda: START)
    assert len(past.list_runnable(limit=1000)) == UNREST
    tenants = [one.tenant for one in past.list_runnable(limit=TENANTS)]
    assert sorted(tenants) == [f"t{n}" for n in range(TENANTS)]


def test_no_more_can_be_left_out_than_a_page_holds(stage: Stage) -> None:
    thread = _say(stage, "one", 1)[0]
    pairs = [("one", str(n)) for n in range(1000)]
    assert _found(stage, exclude=pairs) == [("one", thread)]
    for many in ([*pairs, ("one", thread)], pairs * 40):
        with pytest.raises(ValidationFailed, match="at most 1000") as refused:
            _found(stage, exclude=many)
        assert refused.value.facts["path"] == "exclude"
