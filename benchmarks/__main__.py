"""The command: `python -m benchmarks [--quick] [--only NAME] [--json [FILE]] [--database URL]`."""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from rich.console import Console
from rich.table import Table

from benchmarks.measure import FULL, QUICK, Row
from benchmarks.rows import GROUPS, Place
from engine_assistant.testing.databases import postgres_database
from engine_assistant.testing.postgres import PostgresServer, start

_STDOUT: Final = "-"
_WIDE: Final = 140


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, and answer 1 when a bound was missed."""
    asked = _parser().parse_args(arguments)
    names = asked.only or list(GROUPS)
    rows: list[Row] = []
    progress = Console(stderr=True)
    with (
        _database(asked.database) as url,
        tempfile.TemporaryDirectory(prefix="benchmarks-") as folder,
    ):
        place = Place(url, Path(folder), QUICK if asked.quick else FULL)
        for name in names:
            progress.print(f"measuring {name}", style="dim")
            rows += GROUPS[name](place)
    plain = json.dumps([row.plain() for row in rows], indent=2)
    if asked.json == _STDOUT:
        print(plain)  # noqa: T201 - it is what was asked for
    else:
        # Into a file or a pipe a line stays a line.
        Console(width=None if sys.stdout.isatty() else _WIDE).print(_table(rows))
    if asked.json and asked.json != _STDOUT:
        Path(asked.json).write_text(plain + "\n", encoding="utf-8")
    # A quick run is too short to judge by.
    return 0 if asked.quick or all(row.passed for row in rows) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it run at all?")
    parser.add_argument("--only", action="append", choices=list(GROUPS), help="these rows alone")
    parser.add_argument(
        "--json",
        nargs="?",
        const=_STDOUT,
        metavar="FILE",
        help="write the rows to this file too; without a file, print them instead of the table",
    )
    parser.add_argument("--database", help="a Postgres URL; default is a server of our own")
    return parser


@contextmanager
def _database(given: str | None) -> Iterator[sa.URL]:
    """Make a database on the server that was given, or on one of our own."""
    with (
        PostgresServer(sa.make_url(given)) if given else start(synced=True) as server,
        postgres_database(server) as url,
    ):
        yield sa.make_url(url)


def _table(rows: Sequence[Row]) -> Table:
    table = Table("what", "against", "ours", "other", "ratio", "bound", "")
    for row in rows:
        verdict = "[green]pass[/]" if row.passed else "[red]missed[/]"
        table.add_row(
            row.name,
            row.against,
            f"{row.ours:,.{row.digits}f} {row.unit}",
            f"{row.other:,.{row.digits}f} {row.unit}",
            f"{row.ratio:.2f}",
            row.bound,
            verdict if row.bound else "",
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
