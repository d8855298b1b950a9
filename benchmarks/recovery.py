"""What it costs to find what a run should pick up, where nearly everything rests."""

from collections.abc import Iterator

import sqlalchemy as sa

from benchmarks.measure import Row, Sizes, at_most, timings
from benchmarks.stage import Stage
from engine_assistant import Assistant

__all__ = ["find_runnable"]

_RUNNABLE = 200
_TENANTS = 20
_FEW = "few"

# Every n-th thread has an open turn that nobody runs; the rest are idle.
_FILL = """
INSERT INTO {schema}assistant_threads (tenant_id, id, subject_id, status, turn_state, turn,
  open_since, last_seq, fence, last_batch, milestones, created_at, last_active_at)
SELECT 'bench' || mod(n / :every, {tenants}), 'bench-' || n, 'usr', 'open',
  CASE WHEN mod(n, :every) = 0 THEN 'open' ELSE 'idle' END, 1,
  CASE WHEN mod(n, :every) = 0 THEN now() END, 2, 0, 0, 1, now(), now()
FROM generate_series(1, :count) AS n
"""


def find_runnable(stage: Stage, sizes: Sizes) -> Iterator[Row]:
    """`list_runnable` beside a million idle threads, and beside none."""
    idle = sizes.idle
    with stage.engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE SCHEMA {_FEW}")
    few = Assistant(stage.engine, schema=_FEW)
    few.migrate()
    for schema, count in (("", idle), (f"{_FEW}.", _RUNNABLE)):
        fill = sa.text(_FILL.format(schema=schema, tenants=_TENANTS))
        with stage.engine.begin() as connection:
            connection.execute(fill, {"every": count // _RUNNABLE, "count": count})
    with stage.engine.connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql("VACUUM ANALYZE")
    found = timings(
        {
            "many": lambda: stage.assistant.list_runnable(limit=100),
            "few": lambda: few.list_runnable(limit=100),
        },
        sizes.reads,
    )
    name = f"list_runnable, {idle:,} idle threads, Postgres"
    yield at_most(name, "no idle thread", found["many"], found["few"], 1.5)
    with stage.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM assistant_threads WHERE id LIKE 'bench-%%'")
        connection.exec_driver_sql(f"DROP SCHEMA {_FEW} CASCADE")
    stage.engine.dispose()
