"""What each operation costs: statements, and round trips to a Postgres server.

Round trips are read from libpq's own trace of the wire, so BEGIN and COMMIT count, and so does
whatever a driver adds. A number that changes is a change of what the engine costs: look twice.
"""

import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import pytest
import sqlalchemy as sa

from engine_assistant import OPERATIONS, Assistant, make_engine
from tests.rig.stage import ALICE, ROBOT, Play, Stage, delta

Act = Callable[[Play], object]


def _by_name(name: str) -> Act:
    return lambda play: play.call(name, play.right(name))


def _append(*events: dict[str, object]) -> Act:
    return lambda play: play.stage.append(play.run, *events)


ACTS: Final[dict[str, Act]] = {
    **{name: _by_name(name) for name in OPERATIONS},
    "append: 256 deltas": _append(*[delta("x")] * 256),
    "append: a proposal": _append(
        {"type": "tool-input", "call_id": "n", "tool": "t", "step": "s", "input": 1}
    ),
    "append: a result": _append({"type": "tool-output", "call_id": "running", "output": 1}),
    "send_message: it waits": lambda play: play.stage.me.send_message(
        thread_id=play.busy, text="Third", when_busy="queue"
    ),
    "interrupt_turn: the next opens": lambda play: play.stage.me.interrupt_turn(
        thread_id=play.busy
    ),
    "append: the end of the turn": _append({"type": "turn-error", "code": "c", "message": "m"}),
    "put_context: the first one": lambda play: play.stage.bot.put_context(**play.run, state="s"),
    "append: with usage": lambda play: play.stage.bot.append_events(
        **play.run,
        events=[delta("x")],
        usage={"input": {"value": 1, "provenance": "reported"}},
    ),
    "append: the end of a private turn": lambda play: play.stage.rest(play.lost),
    "read_events_json": lambda play: play.stage.me.read_events_json(thread_id=play.thread_id),
    "list_runnable": lambda play: play.stage.assistant.list_runnable(),
}

COSTS: Final = """
operation                        sqlite  postgres  round trips
assistant/create-thread               4         4            6
assistant/get-thread                  2         1            1
assistant/list-threads                2         1            1
assistant/close-thread               14        13           15
assistant/authorize-file-upload       2         1            3
assistant/send-message                9         8           10
assistant/interrupt-turn              5         4            6
assistant/register-file               3         2            4
assistant/read-events                 2         1            1
assistant/append-events               3         1            1
assistant/acquire-run                 5         4            6
assistant/beat-run                    3         2            4
assistant/release-run                10         9           11
assistant/request-approval            9         8           10
assistant/resolve-approval           10         9           11
assistant/list-approvals              3         2            4
assistant/claim-execution             6         5            7
assistant/settle-execution            6         5            7
assistant/get-call                    4         3            5
assistant/list-calls                  5         4            6
assistant/history                     3         2            4
assistant/compact                     5         4            6
assistant/list-compactions            3         2            4
assistant/seed-thread                 5         5            7
assistant/list-inputs                 3         2            4
assistant/edit-input                  4         3            5
assistant/cancel-input                5         4            6
assistant/take-inputs                 3         2            4
assistant/abandon-turn               14        13           15
assistant/record-operation            5         4            6
assistant/list-runs                   2         1            1
assistant/get-run                     2         1            1
assistant/put-context                 5         4            6
assistant/get-context                 2         1            1
assistant/retry-call                  7         6            8
assistant/resolve-unknown             6         5            7
put_context: the first one            4         3            5
append: with usage                    6         5            7
append: the end of a private turn     9         8           10
send_message: it waits                6         5            7
interrupt_turn: the next opens        8         7            9
append: 256 deltas                    3         1            1
append: a proposal                    6         5            7
append: a result                      6         5            7
append: the end of the turn          14        13           15
read_events_json                      2         1            1
list_runnable                         2         2            4
"""
"""SQLite counts its BEGIN; a round trip of Postgres is a Query or a Sync on the wire."""


@dataclass
class Cost:
    statements: list[str] = field(default_factory=list)
    wire: list[str] = field(default_factory=list)


@contextmanager
def _counted(engine: sa.Engine) -> Iterator[Cost]:
    """Count what goes through an engine that has one connection in its pool."""
    cost = Cost()

    def note(*event: object) -> None:
        cost.statements.append(str(event[2]))

    with tempfile.TemporaryFile("w+") as trace:
        if engine.dialect.name == "postgresql":
            with engine.connect() as connection:
                wire = connection.connection.driver_connection.pgconn
            wire.trace(trace.fileno())
        sa.event.listen(engine, "before_cursor_execute", note)
        yield cost
        sa.event.remove(engine, "before_cursor_execute", note)
        if engine.dialect.name == "postgresql":
            wire.untrace()
            trace.seek(0)
            cost.wire += re.findall(r"^.*\tF\t\d+\t((?:Query|Sync).*)$", trace.read(), re.MULTILINE)


@pytest.fixture
def counting(database_url: str) -> Iterator[sa.Engine]:
    """An engine that prepares no statement: preparing is a round trip of its own, now and then."""
    url = sa.make_url(database_url)
    if url.get_backend_name() == "postgresql":
        url = url.update_query_dict({"pooler": "transaction"})
    engine = make_engine(url)
    yield engine
    engine.dispose()


PINNED: Final = {
    (name.strip(), database): tuple(int(cost) for cost in costs.split() if cost != "-")
    for line in COSTS.strip().splitlines()[1:]
    for name, *both in [re.split(r"  +", line.strip())]
    for database, costs in (("sqlite", both[0]), ("postgresql", f"{both[1]} {both[2]}"))
}


@pytest.mark.guarantee("G-OPS-01", "G-QUEUE-16")
@pytest.mark.parametrize("name", ACTS)
def test_an_operation_costs_what_the_table_says(counting: sa.Engine, name: str) -> None:
    play = Stage(counting, real_time=True).set()
    with _counted(counting) as cost:
        ACTS[name](play)
    found = (len(cost.statements), len(cost.wire))[: 1 if counting.dialect.name == "sqlite" else 2]
    assert found == PINNED[name, counting.dialect.name], cost


@pytest.mark.guarantee("G-OPS-02")
def test_plain_events_on_postgres_are_one_statement_without_a_transaction(
    postgres_url: str,
) -> None:
    engine = make_engine(postgres_url)
    play = Stage(engine, real_time=True).set()
    ops = play.operations("assistant/append-events")
    with _counted(engine) as cost:
        ops.append_events(**play.run, events=[delta("a"), delta("b")], batch=1)
    assert (len(cost.statements), cost.wire) == (1, ["Sync"])
    with engine.begin() as connection:
        bound = play.stage.assistant.bind(connection, ROBOT)
        statements: list[str] = []
        sa.event.listen(engine, "before_cursor_execute", lambda *a: statements.append(a[2]))
        bound.append_events(**play.run, events=[delta("c")], batch=2)
        assert len(statements) == 1
    engine.dispose()


@pytest.mark.guarantee("G-OPS-03")
def test_what_is_asked_does_not_grow_with_the_thread(counting: sa.Engine) -> None:
    """Neither the length of the log nor of the batch changes how many statements there are."""
    play = Stage(counting, real_time=True).set()
    for events in ([delta("x")], [delta("x")] * 256):
        with _counted(counting) as cost:
            play.stage.append(play.run, *events)
        assert len(cost.statements) == PINNED["append: 256 deltas", counting.dialect.name][0]
    for limit in (1, 1000):
        with _counted(counting) as cost:
            Assistant(counting).acting_as(ALICE).read_events(thread_id=play.thread_id, limit=limit)
        assert len(cost.statements) == PINNED["assistant/read-events", counting.dialect.name][0]
