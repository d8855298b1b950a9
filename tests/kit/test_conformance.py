"""The conformance suite, against the configurations that hosts have, and against wrong ones."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
import sqlalchemy as sa

from engine_assistant import Assistant, AsyncAssistant, make_engine
from engine_assistant.testing import databases
from engine_assistant.testing.conformance import Factory, Setup, prepared
from engine_assistant.testing.conformance.__main__ import USAGE, main
from engine_assistant.testing.conformance.suite import SCENARIOS, Scenario
from engine_assistant.testing.postgres import PostgresServer
from tests.kit import setups
from tests.rig.guarantees import promised
from tests.rig.pgbouncer import PgBouncer

ROOT = Path(__file__).parents[2]

# What a schema or a pooler could spoil: several connections at once, several statements in one
# transaction, and stories in which every table is written.
SHORT = [
    one
    for one in SCENARIOS
    if one.room in ("approvals", "archives", "at_once", "contexts", "transactions")
]


# ---------------------------------------------------------------- one suite, many configurations


@pytest.fixture(scope="module")
def sqlite_setup(
    assistant_sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Setup]:
    path = tmp_path_factory.mktemp("conformance") / "assistant.db"
    yield from _with(setups.clocked, databases.sqlite_file(path, assistant_sqlite_template))


@pytest.fixture(scope="module")
def postgres_setup(
    assistant_postgres_server: PostgresServer, assistant_postgres_template: str
) -> Iterator[Setup]:
    with databases.postgres_database(assistant_postgres_server, assistant_postgres_template) as url:
        yield from _with(setups.plain, url)


@pytest.fixture(scope="module")
def sqlite_awaited_setup(
    assistant_sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Setup]:
    path = tmp_path_factory.mktemp("conformance") / "assistant.db"
    url = databases.sqlite_file(path, assistant_sqlite_template)
    yield from _with(setups.awaited, databases.awaited(url))


@pytest.fixture(scope="module")
def postgres_awaited_setup(
    assistant_postgres_server: PostgresServer, assistant_postgres_template: str
) -> Iterator[Setup]:
    with databases.postgres_database(assistant_postgres_server, assistant_postgres_template) as url:
        yield from _with(setups.awaited, databases.awaited(url))


@pytest.fixture(scope="module")
def schema_setup(assistant_postgres_server: PostgresServer) -> Iterator[Setup]:
    with databases.postgres_database(assistant_postgres_server) as url:
        engine = make_engine(url)
        with engine.begin() as connection:
            connection.execute(sa.schema.CreateSchema("chat"))
        mapped = engine.execution_options(schema_translate_map={None: "chat"})
        assistant = Assistant(mapped)
        assistant.migrate()
        yield Setup(assistant)
        assert "assistant_threads" not in sa.inspect(engine).get_table_names("public")
        engine.dispose()


@pytest.fixture(scope="module")
def pgbouncer_setup(
    pgbouncer_server: PgBouncer,
    assistant_postgres_server: PostgresServer,
    assistant_postgres_template: str,
) -> Iterator[Setup]:
    with databases.postgres_database(assistant_postgres_server, assistant_postgres_template) as url:
        through = pgbouncer_server.address(str(sa.make_url(url).database))
        through = through.update_query_dict({"pooler": "transaction"})
        yield from _with(setups.plain, through.render_as_string(hide_password=False))


def _with(factory: Factory, url: str) -> Iterator[Setup]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONFORMANCE_URL", url)
        with prepared(factory) as setup:
            yield setup


@pytest.mark.guarantee("G-KIT-10", "G-KIT-15")
@pytest.mark.parametrize(
    ("configuration", "scenario"),
    [
        *product(["sqlite", "postgres", "sqlite_awaited", "postgres_awaited"], SCENARIOS),
        *product(["schema", "pgbouncer"], SHORT),
    ],
    ids=str,
)
def test_every_configuration_conforms(
    configuration: str, scenario: Scenario, request: pytest.FixtureRequest
) -> None:
    scenario.play(request.getfixturevalue(f"{configuration}_setup"))


@pytest.mark.guarantee("G-KIT-10")
def test_scenarios_show_what_is_promised() -> None:
    known = promised((ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8"))
    for scenario in SCENARIOS:
        assert scenario.guarantees, scenario
        assert set(scenario.guarantees) <= set(known), scenario
        assert scenario.does.__doc__, scenario
    assert len({scenario.name for scenario in SCENARIOS}) == len(SCENARIOS)
    # A room that nobody listed would be left out in silence.
    rooms = ROOT / "engine_assistant" / "testing" / "conformance" / "scenarios"
    assert {scenario.room for scenario in SCENARIOS} == {
        path.stem for path in rooms.glob("*.py") if path.stem != "__init__"
    }


# ---------------------------------------------------------------- as a command


def conformance(folder: Path, url: str, *words: str) -> tuple[int, str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env |= {"PYTHONPATH": str(ROOT), "CONFORMANCE_URL": url}
    command = [sys.executable, "-m", "engine_assistant.testing.conformance"]
    done = subprocess.run(
        [*command, *words, "-W", "error", "-p", "no:cacheprovider"],
        env=env,
        # Away from our own configuration of pytest.
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def verdicts(said: str) -> dict[str, str]:
    found = re.findall(r"^(passed|skipped|FAILED) +(G-[A-Z]+-\d+)$", said, re.MULTILINE)
    return {number: verdict for verdict, number in found}


@pytest.mark.guarantee("G-KIT-11")
def test_the_command_prints_each_guarantee_with_its_verdict(
    sqlite_url: str, tmp_path: Path
) -> None:
    code, said = conformance(tmp_path, sqlite_url, "tests.kit.setups:plain")
    told = verdicts(said)
    assert code == 0, said
    assert set(told) == {number for one in SCENARIOS for number in one.guarantees}
    # Nobody waits ten seconds: without a clock that can be moved this is not shown.
    assert {number for number, verdict in told.items() if verdict == "skipped"} == {
        "G-OPS-16",
        "G-MACH-12",
    }
    assert "FAILED" not in told.values()
    assert "has no clock that can be moved" in said


@pytest.mark.guarantee("G-KIT-15")
def test_the_command_drives_an_engine_that_is_awaited(sqlite_url: str, tmp_path: Path) -> None:
    code, said = conformance(
        *(tmp_path, databases.awaited(sqlite_url), "tests.kit.setups:awaited_and_wrong"),
        *("-k", "another_persons or a_session"),
    )
    assert (code, verdicts(said)) == (
        1,
        {"G-GUEST-50": "passed", "G-PERM-05": "FAILED", "G-PERM-12": "FAILED"},
    )
    assert "RuntimeError: the pool could not be closed" in said
    assert "This is the cleanup of the setup" in said


@pytest.mark.guarantee("G-KIT-15")
def test_what_was_not_prepared_is_not_played() -> None:
    setup = Setup(AsyncAssistant.from_url("sqlite+aiosqlite://"))
    with pytest.raises(AssertionError, match="under `prepared`"):
        SCENARIOS[0].play(setup)


@pytest.mark.guarantee("G-KIT-11", "G-KIT-12")
def test_a_wrong_host_is_found_and_a_failing_cleanup_does_not_hide_it(
    sqlite_url: str, tmp_path: Path
) -> None:
    only = "another_persons or a_key_opens"
    code, said = conformance(tmp_path, sqlite_url, "tests.kit.setups:everything_wrong", "-k", only)
    assert code == 1
    assert verdicts(said) == {
        "G-OPS-05": "passed",
        "G-PERM-05": "FAILED",
        "G-PERM-12": "FAILED",
    }
    # What was expected and what came, of the scenario; and the cleanup beside it, by its name.
    assert re.search(r"AssertionError: assert \{.*\} == \{.*\}", said)
    assert "'not_found'" in said
    assert "RuntimeError: the bucket could not be removed" in said
    assert "This is the cleanup of the setup" in said
    assert "1 failed, 1 passed" in said


@pytest.mark.guarantee("G-KIT-12")
def test_a_cleanup_that_fails_alone_fails_the_run(sqlite_url: str, tmp_path: Path) -> None:
    code, said = conformance(
        tmp_path, sqlite_url, "tests.kit.setups:cannot_clean_up", "-k", "a_key_opens"
    )
    assert (code, verdicts(said)) == (1, {"G-OPS-05": "passed"})
    assert "RuntimeError: the bucket could not be removed" in said


def test_a_factory_that_is_not_there_is_said_once(tmp_path: Path) -> None:
    code, said = conformance(tmp_path, "", "tests.kit.setups:nothing")
    assert (code, said.count("has no attribute 'nothing'")) == (4, 1), said
    assert "Traceback" not in said


@pytest.mark.parametrize("words", [[], ["-k", "claim"]])
def test_without_a_factory_the_usage_is_told(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == pytest.ExitCode.USAGE_ERROR
    assert capsys.readouterr().err == f"{USAGE}\n"
