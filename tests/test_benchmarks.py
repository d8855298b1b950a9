"""The benchmarks run and say what they are asked. What they measure is not a test's business."""

import json
from pathlib import Path

from benchmarks.__main__ import main
from benchmarks.measure import Row, at_least, at_most
from engine_assistant.testing.postgres import PostgresServer

PSYCOPG = ("psycopg, the same statement", "psycopg, four statements", "psycopg, the usual six")
ROWS = [
    *[("append 8, Postgres", against) for against in PSYCOPG],
    *[("append 64, Postgres", against) for against in PSYCOPG],
    ("append 8, Postgres, 8 threads", "psycopg, the same"),
    ("append 8, Postgres, 32 threads", "psycopg, the same"),
    ("append 8, Postgres, 16 writers on one thread", "one writer"),
    ("append 8, SQLite", "sqlite3"),
    ("append 64, SQLite", "sqlite3"),
    ("append 8, Postgres, history of 300", "history of 100"),
    *[
        (f"read 100 at the {where}, Postgres, {kind}", against)
        for where in ("start", "middle", "end")
        for kind, against in (
            ("typed", "psycopg and one validation"),
            ("json", "psycopg, the rows alone"),
        )
    ],
]


def test_a_quick_run_produces_every_row(postgres_server: PostgresServer, tmp_path: Path) -> None:
    url = postgres_server.url.render_as_string(hide_password=False)
    file = tmp_path / "rows.json"
    assert main(["--quick", "--database", url, "--json", str(file)]) == 0
    rows = [Row(**row) for row in json.loads(file.read_text())]
    assert [(row.name, row.against) for row in rows] == ROWS
    assert all(row.ours > 0 and row.other > 0 for row in rows)


def test_a_ratio_passes_up_to_its_bound() -> None:
    assert at_most("", "", 1.6, 1.0, 1.6).passed
    assert not at_most("", "", 1.61, 1.0, 1.6).passed
    assert at_most("", "", 9.0, 1.0, None).passed
    assert at_least("", "", 60, 100, 0.6).passed
    assert not at_least("", "", 59, 100, 0.6).passed
