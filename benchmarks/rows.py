"""The rows of the table, and the ratio that each may reach."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from benchmarks.measure import Row, Sizes, Work, at_least, at_most, rates, timings
from benchmarks.raw import RawPostgres, RawSqlite, sent_by
from benchmarks.recovery import find_runnable
from benchmarks.stage import Stage, Talk, deltas
from engine_assistant import make_engine
from engine_assistant.testing.postgres import libpq

__all__ = ["GROUPS", "Place"]


@dataclass(frozen=True)
class Place:
    """Where it is measured: a Postgres database, and a folder for SQLite."""

    postgres: sa.URL
    folder: Path
    sizes: Sizes

    @contextmanager
    def raw(self, talk: Talk, count: int = 0) -> Iterator[RawPostgres]:
        """Open a bare connection that appends batches of `count` events."""
        raw = RawPostgres(libpq(self.postgres), talk, deltas(count))
        with closing(raw.connection):
            yield raw

    def stage(self, *, connections: int = 1) -> Stage:
        """Answer the engine over Postgres, its pool just large enough."""
        url = self.postgres.set(drivername="postgresql+psycopg")
        return Stage(sa.create_engine(url, pool_size=connections, max_overflow=0))


def _appending(stage: Stage, talk: Talk, count: int) -> Work:
    events = deltas(count)
    return lambda: stage.append(talk, events)


def append_postgres(place: Place) -> Iterator[Row]:
    """One writer on Postgres: the same statement, and the usual ways in more statements."""
    stage = place.stage()
    for count, most in ((8, 1.6), (64, 1.8)):
        talk = stage.talk()
        ours = _appending(stage, talk, count)
        sent = sent_by(stage, ours)
        # Each has a connection of its own, as ours has: they share no process of the server.
        with (
            place.raw(talk, count) as one,
            place.raw(talk, count) as four,
            place.raw(talk, count) as six,
        ):
            found = timings(
                {
                    "ours": ours,
                    "one": one.append_in_one(sent),
                    "four": four.append_in_four,
                    "six": six.append_in_six,
                },
                place.sizes.rounds,
            )
        for way, against, bound in (
            ("one", "psycopg, the same statement", most),
            ("four", "psycopg, four statements", None),
            ("six", "psycopg, the usual six", 1.0),
        ):
            name = f"append {count}, Postgres"
            yield at_most(name, against, found["ours"], found[way], bound)
    stage.engine.dispose()


def append_threads(place: Place) -> Iterator[Row]:
    """Many writers on Postgres, each on a thread of its own."""
    for writers, least in ((8, 0.6), (32, 0.5)):
        stage = place.stage(connections=writers)
        talks = [stage.talk() for _ in range(writers)]
        ours = [_appending(stage, talk, 8) for talk in talks]
        with ExitStack() as stack:
            raws = [stack.enter_context(place.raw(talk, 8)) for talk in talks]
            theirs = [
                raw.append_in_one(sent_by(stage, work))
                for raw, work in zip(raws, ours, strict=True)
            ]
            found = rates(
                {"ours": ours, "raw": theirs}, bouts=place.sizes.bouts, seconds=place.sizes.seconds
            )
        stage.engine.dispose()
        name = f"append 8, Postgres, {writers} threads"
        yield at_least(name, "psycopg, the same", found["ours"], found["raw"], least)


def append_one_thread(place: Place) -> Iterator[Row]:
    """Sixteen writers that share one thread of the record, against one alone."""
    stage = place.stage(connections=16)
    many, one = stage.talk(), stage.talk()
    found = rates(
        {"many": [_appending(stage, many, 8)] * 16, "one": [_appending(stage, one, 8)]},
        bouts=place.sizes.bouts,
        seconds=place.sizes.seconds,
    )
    stage.engine.dispose()
    name = "append 8, Postgres, 16 writers on one thread"
    yield at_least(name, "one writer", found["many"], found["one"], 0.65)


def append_sqlite(place: Place) -> Iterator[Row]:
    """One writer on SQLite, every commit on the disk."""
    path = place.folder / "benchmark.db"
    stage = Stage(make_engine(f"sqlite:///{path}"))
    for count, most in ((8, 2.2), (64, None)):
        raw = RawSqlite(path, stage.talk(), deltas(count))
        with closing(raw.connection):
            found = timings(
                {"ours": _appending(stage, stage.talk(), count), "raw": raw.append},
                place.sizes.rounds,
            )
        yield at_most(f"append {count}, SQLite", "sqlite3", found["ours"], found["raw"], most)
    stage.engine.dispose()


def long_thread(place: Place) -> Iterator[Row]:
    """What a long history costs: nothing for an append, nothing for a page anywhere in it."""
    stage, sizes = place.stage(), place.sizes
    talk = stage.talk(sizes.history)
    short = stage.talk(100)
    with stage.engine.connect() as connection:
        # As a server that has had a quiet minute: statistics and the visibility map are fresh.
        connection.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql("VACUUM ANALYZE")
    found = timings(
        {"long": _appending(stage, talk, 8), "short": _appending(stage, short, 8)}, sizes.rounds
    )
    name = f"append 8, Postgres, history of {sizes.history:,}"
    yield at_most(name, "history of 100", found["long"], found["short"], 1.25)
    half, end = sizes.history // 2, sizes.history - sizes.page
    with place.raw(talk) as raw:
        for where, after in (("start", 0), ("middle", half), ("end", end)):
            yield from _pages(stage, raw, where, after, sizes)
    stage.engine.dispose()


def _pages(stage: Stage, raw: RawPostgres, where: str, after: int, sizes: Sizes) -> Iterator[Row]:
    person, thread_id, limit = stage.person, raw.talk.thread_id, sizes.page
    found = timings(
        {
            "typed": lambda: person.read_events(thread_id=thread_id, after=after, limit=limit),
            "raw typed": lambda: raw.typed(after, limit),
            "json": lambda: person.read_events_json(thread_id=thread_id, after=after, limit=limit),
            "raw rows": lambda: raw.rows(after, limit),
        },
        sizes.reads,
    )
    for kind, other, against, most in (
        ("typed", "raw typed", "psycopg and one validation", 1.3),
        ("json", "raw rows", "psycopg, the rows alone", 1.2),
    ):
        name = f"read {limit:,} at the {where}, Postgres, {kind}"
        yield at_most(name, against, found[kind], found[other], most)


def model_history(place: Place) -> Iterator[Row]:
    """What a model is told of a long thread: a price for each event, and none behind a summary."""
    stage, sizes = place.stage(), place.sizes
    length = sizes.history
    tail = max(length // 1000, 1)
    long, short, brief = (stage.talk(count) for count in (length, length // 10, tail))
    with stage.engine.connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql("VACUUM ANALYZE")
    rounds = max(sizes.reads // 10, 3)
    found = timings(
        {
            "long": lambda: stage.person.history(thread_id=long.thread_id),
            "short": lambda: stage.person.history(thread_id=short.thread_id),
            "refused": lambda: stage.refused_summary(long),
            "refused short": lambda: stage.refused_summary(short),
        },
        rounds,
    )
    for what, ours, other in (
        ("history", found["long"], found["short"]),
        ("a summary, judged", found["refused"], found["refused short"]),
    ):
        name = f"{what}, {length:,} events, Postgres, a tenth"
        yield at_most(name, f"{length // 10:,} events", ours / 10, other, 1.4)
    stage.summarise(long)
    for talk in (long, brief):
        stage.append(talk, deltas(tail))
    found = timings(
        {
            "long": lambda: stage.person.history(thread_id=long.thread_id),
            "brief": lambda: stage.person.history(thread_id=brief.thread_id),
        },
        sizes.reads,
    )
    name = f"history behind a summary of {length:,} events, Postgres"
    yield at_most(name, f"a thread of {2 * tail:,}", found["long"], found["brief"], 1.25)
    stage.engine.dispose()


GROUPS: Final[dict[str, Callable[[Place], Iterator[Row]]]] = {
    "append-postgres": append_postgres,
    "append-threads": append_threads,
    "append-one-thread": append_one_thread,
    "append-sqlite": append_sqlite,
    "long-thread": long_thread,
    "history": model_history,
    "list-runnable": lambda place: find_runnable(place.stage(), place.sizes),
}
