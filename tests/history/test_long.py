"""A long thread: what a history reads is what no summary stands for, and nothing else."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import sqlalchemy as sa

from engine_assistant.store.tables import compactions, events
from engine_assistant.testing.clock import START
from tests.rig.logs import brief
from tests.rig.stage import Stage, delta

BATCH = 250
EVENTS = 10_000
Asked = list[tuple[str, object]]


@contextmanager
def _asked(engine: sa.Engine) -> Iterator[Asked]:
    """Gather the statements that go through an engine, with their parameters."""
    asked: Asked = []

    def note(*event: object) -> None:
        asked.append((str(event[2]), event[3]))

    sa.event.listen(engine, "before_cursor_execute", note)
    yield asked
    sa.event.remove(engine, "before_cursor_execute", note)


def _looked_at(engine: sa.Engine, asked: Asked) -> int:
    """Answer how many events the database had to look at, as it says itself.

    SQLite counts no rows; it says that it goes by the numbers alone, so it looks at those that it
    finds, and at the one turn-start, of which no model is told.
    """
    looked = 0
    with engine.connect() as connection:
        for statement, parameters in asked:
            if "assistant_events" not in statement:
                continue
            if engine.dialect.name == "postgresql":
                explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}"
                (plan,) = connection.exec_driver_sql(explain, parameters).scalars()
                looked += _scanned(plan[0]["Plan"])
                continue
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
            steps = [str(row[3]) for row in plan if "assistant_events" in str(row[3])]
            ranged = "(tenant_id=? AND thread_id=? AND seq>? AND seq<?)"
            assert steps
            assert all(step.startswith("SEARCH") and step.endswith(ranged) for step in steps)
            found = connection.exec_driver_sql(statement, parameters).all()
            looked += len(found) + any(row[0] == 1 for row in found)
    return looked


def _scanned(plan: dict[str, object]) -> int:
    """Add up the rows of the log that a plan of Postgres read, kept or not."""
    below = plan.get("Plans", [])
    assert isinstance(below, list)
    found = sum(_scanned(one) for one in below)
    if plan.get("Relation Name") != "assistant_events":
        return found
    seen = float(str(plan["Actual Rows"])) + float(str(plan.get("Rows Removed by Filter", 0)))
    return found + round(seen * int(str(plan["Actual Loops"])))


def _long(stage: Stage) -> str:
    """Make a turn of 10,000 events: the message, its turn-start, and words."""
    run = stage.open_turn()
    left = EVENTS - 2
    while left:
        count = min(BATCH, left)
        stage.append(run, *[delta("x")] * (count - 1), {"type": "step-finish"})
        left -= count
    _make_company(stage.engine)
    return str(run["thread_id"])


def _make_company(engine: sa.Engine) -> None:
    """Let the thread be one of ten, so that nobody would read the whole table for it."""
    columns = [column.name for column in events.c if column.name != "thread_id"]
    with engine.begin() as connection:
        for number in range(9):
            others = sa.select(
                sa.literal(f"other-{number}"), *(events.c[name] for name in columns)
            ).where(events.c.thread_id.not_like("other-%"))
            connection.execute(sa.insert(events).from_select(["thread_id", *columns], others))
    with engine.connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql("ANALYZE")


@pytest.mark.guarantee("G-HIST-15")
def test_only_what_no_summary_stands_for_is_read(engine: sa.Engine) -> None:
    stage = Stage(engine, real_time=True)
    thread_id = _long(stage)

    def told(ranges: int) -> int:
        with _asked(engine) as asked:
            messages = stage.me.history(thread_id=thread_id).messages
        selects = [statement for statement, _ in asked if statement.startswith(("SELECT", "WITH"))]
        assert len(selects) == 2
        assert len(brief(messages)) == ranges
        return _looked_at(engine, asked)

    assert told(ranges=41) == EVENTS
    given = {"thread_id": thread_id, "expected_head": EVENTS}
    # Each summary leaves what is before, between and behind.
    stage.bot.compact(**given, from_seq=3, to_seq=5002, summary="a")
    assert told(ranges=1 + 1 + 20) == EVENTS - 5000
    stage.bot.compact(**given, from_seq=5253, to_seq=9752, summary="b")
    assert told(ranges=1 + 1 + 1 + 1 + 1) == EVENTS - 5000 - 4500
    stage.bot.compact(**given, from_seq=1, to_seq=9752, summary="all")
    assert told(ranges=1 + 1) == EVENTS - 9752
    stage.bot.compact(**given, from_seq=1, to_seq=EVENTS, summary="everything")
    with _asked(engine) as asked:
        assert brief(stage.me.history(thread_id=thread_id).messages) == ["summary everything"]
    assert "assistant_events" not in json.dumps([statement for statement, _ in asked])


@pytest.mark.guarantee("G-HIST-15")
def test_a_summary_reads_no_more_than_a_history(engine: sa.Engine) -> None:
    stage = Stage(engine, real_time=True)
    thread_id = _long(stage)
    given = {"thread_id": thread_id, "expected_head": EVENTS}
    stage.bot.compact(**given, from_seq=1, to_seq=9252, summary="a")
    with _asked(engine) as asked:
        stage.bot.compact(**given, from_seq=9253, to_seq=9502, summary="b")
    assert _looked_at(engine, asked) == EVENTS - 9252
    with _asked(engine) as asked:
        stage.bot.compact(**given, from_seq=9253, to_seq=9502, summary="b")
    assert _looked_at(engine, asked) == 0


@pytest.mark.guarantee("G-HIST-15")
def test_many_summaries_are_asked_for_in_few_statements(engine: sa.Engine) -> None:
    """Every other message has a summary: 120 ranges are left, and asked for by the hundred."""
    stage = Stage(engine, real_time=True)
    run = stage.open_turn()
    step = {"type": "step-finish"}
    for _ in range(2):
        stage.append(run, *[delta("x"), step] * 120)
    key = {"tenant_id": "acme", "thread_id": run["thread_id"]}
    rest = {"summary": "s", "covered_by": None, "created_at": START}
    ranges = [{"n": n, "from_seq": 4 * n - 1, "to_seq": 4 * n} for n in range(1, 121)]
    with engine.begin() as connection:
        connection.execute(sa.insert(compactions), [{**key, **one, **rest} for one in ranges])
    assert list(stage.assistant.doctor()) == []
    with _asked(engine) as asked:
        told = stage.me.history(thread_id=str(run["thread_id"]))
    assert brief(told.messages) == ["user Hello", *["summary s", "assistant x()"] * 120]
    assert sum("assistant_events" in statement for statement, _ in asked) == 2
