"""Coverage of the machines: which moves were taken, and on which database.

A full run fails when a move of `engine_assistant.model.machines` was never taken on both
databases. Lines can all be covered while an arrow of a machine was never walked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

import pytest
from _pytest.config import Config
from _pytest.terminal import TerminalReporter

Move = tuple[str, str, str, str]
"""Machine, trigger, source, target."""

BOTH = ("sqlite", "postgres")
OUTPUT = "engine_assistant_moves"
# A run that leaves tests out says nothing about what the tests reach.
NARROWING = (
    "collectonly",
    "deselect",
    "ignore",
    "ignore_glob",
    "keyword",
    "lf",
    "markexpr",
    "stepwise",
)

_active: list[str] = []
_taken: set[tuple[str, Move]] = set()
_missing = pytest.StashKey[list[tuple[str, Move]]]()


@contextmanager
def on(database: str) -> Iterator[None]:
    """Count the moves taken meanwhile as taken on `database`."""
    _active.append(database)
    try:
        yield
    finally:
        _active.remove(database)


def _record(move: Move) -> None:
    # A test with both kinds open at once does not say which of them moved: it counts for neither.
    kinds = set(_active)
    if len(kinds) == 1:
        _taken.add((kinds.pop(), move))


def _watch() -> None:
    from engine_assistant.model.machine import Machine

    step = Machine.step

    def watched(self: Machine[Any], trigger: StrEnum, source: Any) -> Any:
        target = step(self, trigger, source)
        _record((self.name, str(trigger), str(source), str(target)))
        return target

    Machine.step = watched  # type: ignore[method-assign]


def _all_moves() -> Iterator[Move]:
    from engine_assistant.model.machines import MACHINES

    for machine in MACHINES:
        for move in machine.moves:
            yield machine.name, str(move.trigger), str(move.source), str(move.target)


def never_taken(moves: Iterable[Move], taken: set[tuple[str, Move]]) -> list[tuple[str, Move]]:
    """Answer each (database, move) that is possible and not among `taken`."""
    pairs = [(database, move) for move in moves for database in BOTH]
    return [pair for pair in pairs if pair not in taken]


def is_full(config: Config) -> bool:
    """Answer whether this run is of every test there is."""
    whole = config.args_source == Config.ArgsSource.TESTPATHS
    return whole and not any(config.getoption(name, None) for name in NARROWING)


def pytest_sessionstart(session: pytest.Session) -> None:
    _watch()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Gather what a worker of xdist saw."""
    for database, move in getattr(node, "workeroutput", {}).get(OUTPUT, ()):
        _taken.add((database, tuple(move)))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    config = session.config
    output = getattr(config, "workeroutput", None)
    if output is not None:
        output[OUTPUT] = [[database, list(move)] for database, move in sorted(_taken)]
    elif exitstatus == pytest.ExitCode.OK and is_full(config):
        missing = never_taken(_all_moves(), _taken)
        config.stash[_missing] = missing
        if missing:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: TerminalReporter, config: Config) -> None:
    missing = config.stash.get(_missing, None)
    if missing is None:
        return
    total = sum(1 for _ in _all_moves())
    if not missing:
        terminalreporter.write_line(f"machines: all {total} moves taken on {' and '.join(BOTH)}")
        return
    terminalreporter.section("moves never taken", red=True)
    for database, (machine, trigger, source, target) in missing:
        line = f"{database}: {machine}: {source} -> {target} on {trigger!r}"
        terminalreporter.write_line(line)
