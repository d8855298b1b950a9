"""The short form of the ordeal, on both databases."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from engine_assistant import Assistant, make_engine
from engine_assistant.testing import databases
from engine_assistant.testing.postgres import GIVEN_URL, start
from tests.torture.ordeal import Ordeal, Report


def _survive(url: str, folder: Path, **more: object) -> Report:
    assistant = Assistant(make_engine(url))
    assistant.migrate()
    seed = random.randrange(2**32)
    ordeal = Ordeal(assistant, url, folder, hosts=3, threads=6, turns=3, seed=seed)
    report = ordeal.run(kills=6, **more)  # type: ignore[arg-type]
    assistant.engine.dispose()
    assert report.good, (seed, report)
    assert (report.kills, report.turns) == (6, 18), seed
    return report


@pytest.mark.guarantee("G-HARD-01")
def test_hosts_that_are_killed_lose_nothing_and_run_nothing_twice(tmp_path: Path) -> None:
    _survive(databases.sqlite_file(tmp_path / "torture.db"), tmp_path, crash=None, crashes=0)


@pytest.mark.guarantee("G-HARD-01")
def test_nor_when_the_server_is_stopped_hard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(GIVEN_URL, raising=False)  # nobody's server is crashed but our own
    with start() as server, databases.postgres_database(server) as url:
        report = _survive(url, tmp_path, crash=server.crash, crashes=2)
    assert report.crashes == 2
