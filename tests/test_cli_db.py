"""`engine-assistant db`, and what all commands have in common: one line, a code, no secret."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

from engine_assistant import migrate
from tests.rig.command import COMMAND, environment, run
from tests.rig.replays import eventful, write_lines

SECRET = "geheim"
UNREACHABLE = f"postgresql://someone:{SECRET}@127.0.0.1:1/x?password={SECRET}"


def touch(url: str) -> None:
    """Make the file, if it is one: an empty file is a database without tables."""
    address = sa.make_url(url)
    if address.get_backend_name() == "sqlite":
        Path(str(address.database)).touch()


@pytest.mark.guarantee("G-CLI-14")
def test_check_tells_missing_from_good_and_upgrade_makes_it_good(empty_database_url: str) -> None:
    words = ("--database", empty_database_url)
    touch(empty_database_url)
    before = run("db", "check", *words)
    assert (before.returncode, before.stdout) == (1, "")
    assert before.stderr.count("\n") == 1
    assert "engine-assistant db upgrade" in before.stderr
    assert run("db", "current", *words).stdout.startswith("none: ")
    made = run("db", "upgrade", *words)
    assert made.returncode == 0
    assert made.stdout.startswith(f"From nothing to {migrate.head()}: ")
    assert run("db", "upgrade", *words).stdout.startswith(f"Already at {migrate.head()}: ")
    assert run("db", "current", *words).stdout == f"{migrate.head()} (newest)\n"
    after = run("db", "check", *words)
    assert (after.returncode, after.stderr) == (0, "")


@pytest.mark.guarantee("G-CLI-14")
def test_a_schema_of_newer_code_is_left_alone(database_url: str, engine: sa.Engine) -> None:
    with engine.begin() as connection:
        connection.execute(
            sa.text(f"UPDATE {migrate.VERSION_TABLE} SET version_num = 'engine_assistant_9999'")
        )
    for words in (("db", "check"), ("db", "upgrade"), ("demo",)):
        done = run(*words, "--database", database_url)
        assert (done.returncode, done.stdout) == (1, ""), words
        assert "newer code" in done.stderr
        assert done.stderr.count("\n") == 1


@pytest.mark.guarantee("G-CLI-14")
def test_looking_for_a_file_does_not_make_it(tmp_path: Path) -> None:
    for command, code, line in (("check", 3, "There is no database at"), ("current", 0, "")):
        done = run("db", command, "--database", "sqlite:///none.db", cwd=tmp_path)
        assert done.returncode == code
        assert line in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.guarantee("G-CLI-15")
def test_each_db_command_answers_scripts_in_json(sqlite_url: str, empty_sqlite_url: str) -> None:
    for command in ("upgrade", "current", "check"):
        told = json.loads(run("db", command, "--json", "--database", sqlite_url).stdout)
        assert (told["ok"], told["current"]) == (True, migrate.head())
    touch(empty_sqlite_url)
    done = run("db", "check", "--json", "--database", empty_sqlite_url)
    told = json.loads(done.stdout)
    assert (done.returncode, told["ok"], told["error"]["code"]) == (1, False, "internal")
    assert told["error"]["facts"] == {"current": None, "head": migrate.head()}


@pytest.mark.guarantee("G-CLI-16")
@pytest.mark.parametrize(
    ("url", "code"),
    [
        (UNREACHABLE, 3),
        ("sqlite:////nowhere/at/all.db", 3),
        (f"mysql://someone:{SECRET}@host/x", 2),
        (f"no address, {SECRET}", 2),
        (f"postgresql://someone:pass@host:{SECRET}/x", 2),
    ],
)
def test_a_database_that_cannot_be_used_is_one_line_without_a_secret(
    tmp_path: Path, url: str, code: int
) -> None:
    file = write_lines(tmp_path / "own.jsonl", eventful())
    for words in (("demo",), ("replay", file), ("db", "upgrade", "--json")):
        done = run(*words, "--database", url)
        assert done.returncode == code, (words, done.stderr)
        assert done.stderr.count("\n") == 1
        assert done.stderr.startswith("error: ")
        assert SECRET not in done.stderr + done.stdout
        assert ("or its folder, cannot be opened" in done.stderr) == url.startswith("sqlite")
        if "--json" in words:
            assert json.loads(done.stdout)["ok"] is False
        else:
            assert done.stdout == ""


@pytest.mark.guarantee("G-CLI-16")
@pytest.mark.parametrize("words", [("threads",), ("db", "current")], ids=" ".join)
def test_a_file_that_is_no_database_is_called_so(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "letter.db").write_bytes(b"Dear Alice, " * 400)
    done = run(*words, "--database", f"sqlite:///{tmp_path}/letter.db")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: internal: This file is not a SQLite database.\n"


@pytest.mark.guarantee("G-CLI-16")
def test_where_the_record_is_shows_no_password(postgres_url: str) -> None:
    url = sa.make_url(postgres_url).set(password=SECRET)
    done = run("db", "upgrade", "--database", url.render_as_string(hide_password=False))
    assert done.returncode == 0, done.stderr
    assert "***" in done.stdout
    assert SECRET not in done.stdout


@pytest.mark.guarantee("G-CLI-17")
@pytest.mark.parametrize(
    "words",
    [
        ("bogus",),
        ("replay",),
        ("replay", "no-such-file"),
        ("demo", "--bogus"),
        ("db", "bogus"),
        ("approvals", "--as", "usr_alice", "--tenant", "acme", "--state", "bogus"),
    ],
)
def test_wrong_usage_is_2(words: tuple[str, ...]) -> None:
    done = run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr


@pytest.mark.guarantee("G-CLI-17")
@pytest.mark.parametrize("words", [(), ("demo",), ("replay",), ("db",), ("db", "check")])
def test_help_tells_the_exit_codes(words: tuple[str, ...]) -> None:
    done = run(*words, "--help")
    assert done.returncode == 0
    assert "Exit codes: 0 all good; 1 " in " ".join(done.stdout.split())


@pytest.mark.guarantee("G-CLI-18")
def test_without_its_extra_it_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['typer'] = None; from engine_assistant.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert "pip install 'engine-assistant[cli]'" in done.stderr


@pytest.mark.guarantee("G-CLI-17")
def test_a_reader_that_leaves_gets_no_traceback(sqlite_url: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [*COMMAND, "demo", "--database", sqlite_url],
            env=environment(PYTHONUNBUFFERED="1"),
            stdin=subprocess.DEVNULL,
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_version_is_told() -> None:
    from engine_assistant import __version__

    assert run("--version").stdout == f"{__version__}\n"
