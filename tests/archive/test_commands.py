"""`engine-assistant export` and `import`, run as an operator runs them."""

import hashlib
import json
import os
import pty
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from engine_assistant import Assistant, make_engine
from engine_assistant.testing.databases import sqlite_file
from tests.rig.archives import archive_of, contents, line_of, sealed, value_of
from tests.rig.command import COMMAND, Told, on, told
from tests.rig.record import OWNER, TENANT, Record, unfinished, words


@pytest.fixture
def record(engine: sa.Engine) -> Record:
    """A few threads in the middle of something, and one that is over."""
    record = unfinished(engine)
    record.open("over").say("S3CRET").take().write(*words("yes")).rest()
    return record


@pytest.fixture
def url(record: Record) -> str:
    return record.engine.url.render_as_string(hide_password=False)


@pytest.fixture
def file_record(sqlite_url: str) -> Iterator[Record]:
    """The thread that is over alone, on SQLite: for what is about words and files."""
    engine = make_engine(sqlite_url)
    record = Record(engine)
    record.open("over").say("S3CRET").take().write(*words("yes")).rest()
    yield record
    engine.dispose()


@pytest.fixture
def file_url(file_record: Record, sqlite_url: str) -> str:
    return sqlite_url


@pytest.fixture
def elsewhere(tmp_path: Path, migrated_file: Path) -> Iterator[Assistant]:
    engine = make_engine(sqlite_file(tmp_path / "elsewhere.db", migrated_file))
    yield Assistant(engine)
    engine.dispose()


def _there(assistant: Assistant, *words: str | Path) -> Told:
    return told(assistant.engine.url.render_as_string(), *map(str, words))


@pytest.mark.guarantee("G-ARCH-20")
def test_standard_output_holds_the_archive_and_nothing_else(
    file_url: str, file_record: Record
) -> None:
    thread_id = file_record.threads["over"]
    archive = archive_of(file_record.assistant, thread_id)
    done = subprocess.run(
        [*COMMAND, "export", thread_id], env=on(file_url), capture_output=True, check=True
    )
    assert done.stdout == archive
    digest = hashlib.sha256(archive).hexdigest()
    assert done.stderr.decode() == (
        f"Exported {thread_id}: 4 events, {len(archive):,} bytes, SHA-256 {digest}.\n"
    )
    done = subprocess.run(
        [*COMMAND, "export", thread_id, "--json"], env=on(file_url), capture_output=True, check=True
    )
    assert done.stdout == archive
    assert json.loads(done.stderr) == {
        "ok": True,
        "file": None,
        "threads": 1,
        "events": 4,
        "bytes": len(archive),
        "sha256": digest,
    }


@pytest.mark.guarantee("G-ARCH-20")
def test_a_file_is_there_when_it_is_whole(
    file_url: str, file_record: Record, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    file = folder / "one.jsonl"
    ran = told(file_url, "export", file_record.threads["over"], "-o", str(file), "--json")
    assert (ran.code, ran.err, ran.rows[0]["file"]) == (0, "", str(file))
    archive = archive_of(file_record.assistant, file_record.threads["over"])
    assert file.read_bytes() == archive
    assert list(folder.iterdir()) == [file]
    with file_record.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE assistant_runs SET run_id = ''")
    ran = told(file_url, "export", file_record.threads["over"], "-o", str(file))
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("error: internal: This thread cannot be archived; the doctor")
    assert file.read_bytes() == archive, "what was there before is still there"
    ran = told(file_url, "export", "nope", "-o", str(folder / "none"))
    assert (ran.code, ran.out) == (1, "")
    assert list(folder.iterdir()) == [file]


@pytest.mark.guarantee("G-ARCH-20")
def test_a_device_stays_what_it_is(file_url: str, file_record: Record) -> None:
    assert told(file_url, "export", file_record.threads["over"], "-o", "/dev/null").code == 0
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


@pytest.mark.guarantee("G-ARCH-20", "G-ARCH-21")
@pytest.mark.parametrize(
    "given",
    [
        ["export"],
        ["export", "thr", "--subject", OWNER, "--tenant", TENANT],
        ["export", "--subject", OWNER],
        ["import", "--tenant", TENANT],
        ["import", "absent.jsonl", "--tenant", TENANT],
        ["import", "-"],
    ],
)
def test_wrong_usage(given: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from engine_assistant.cli.app import app

    with pytest.raises(SystemExit) as ended:
        app([*given, "--database", f"sqlite:///{tmp_path / 'none.db'}"])
    assert (ended.value.code, capsys.readouterr().out) == (2, "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.guarantee("G-ARCH-20")
def test_an_archive_is_not_for_a_terminal(file_url: str, file_record: Record) -> None:
    leader, follower = pty.openpty()
    done = subprocess.run(
        [*COMMAND, "export", file_record.threads["over"]],
        env=on(file_url),
        stdout=follower,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(follower)
    os.close(leader)
    assert done.returncode == 2
    assert "not for a terminal" in done.stderr.decode()


@pytest.mark.guarantee("G-ARCH-20")
def test_whoever_reads_may_go_away(file_url: str, file_record: Record) -> None:
    """As `head` does. It ends with one line at most, and no traceback."""
    story = file_record.open("long").say().take()
    for _ in range(40):
        story.write(*words(*["x" * 500] * 10))
    command = subprocess.Popen(
        [*COMMAND, "export", story.thread_id],
        env=on(file_url),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert command.stdout is not None
    assert command.stderr is not None
    assert command.stdout.readline().startswith(b'{"archive"')
    command.stdout.close()
    error = command.stderr.read().decode()
    command.stderr.close()
    assert command.wait() == 1
    assert "Traceback" not in error


@pytest.mark.guarantee("G-ARCH-21")
def test_from_one_database_to_another_through_a_pipe(
    url: str, record: Record, elsewhere: Assistant
) -> None:
    there = elsewhere.engine.url.render_as_string()
    export = subprocess.Popen(
        [*COMMAND, "export", record.threads["over"]],
        env=on(url),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    done = subprocess.run(
        [*COMMAND, "import", "-", "--tenant", "new"],
        env=on(there),
        stdin=export.stdout,
        capture_output=True,
        text=True,
        check=False,
    )
    assert export.stdout is not None
    export.stdout.close()
    assert export.wait() == 0
    assert (done.returncode, done.stderr) == (0, "")
    first, last = done.stdout.splitlines()
    assert first == f"{record.threads['over']}  4 events"
    assert last.startswith("Imported 1 thread, tenant new, sqlite:///")
    archive = archive_of(record.assistant, record.threads["over"])
    assert archive_of(elsewhere, record.threads["over"], "new") == archive


@pytest.mark.guarantee("G-ARCH-21", "G-ARCH-16")
def test_what_became_of_each_thread_is_told(
    url: str, record: Record, elsewhere: Assistant, tmp_path: Path
) -> None:
    file = tmp_path / "alice.jsonl"
    ran = told(url, "export", "--subject", OWNER, "--tenant", TENANT, "-o", str(file))
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"Exported {len(record.threads)} threads: ")
    ran = _there(elsewhere, "import", file, "--tenant", "new", "--json")
    *rows, totals = ran.rows
    assert ran.code == 1
    assert "S3CRET" not in ran.out + ran.err
    unsettled = ("kept", "running", "without a run", "waiting", "let go")
    refused = {row["thread_id"]: row["error"]["reason"] for row in rows if "error" in row}
    assert refused == {record.threads[name]: "archive_unsettled" for name in unsettled}
    assert totals == {
        "ok": False,
        "tenant": "new",
        "imported": 2,
        "already": 0,
        "events": 4,
        "refused": len(unsettled),
    }
    assert ran.err.count("error: ") == len(unsettled)
    ran = _there(elsewhere, "import", file, "--tenant", "new", "--cancel-open")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.count("was here already") == 2
    new = len(record.threads) - 2
    assert f"Imported {new} threads (2 had been here before), tenant new" in ran.out
    assert list(elsewhere.doctor()) == []


@pytest.mark.guarantee("G-ARCH-21", "G-ARCH-08")
def test_a_damaged_file_is_named_with_its_line(
    file_record: Record, elsewhere: Assistant, tmp_path: Path
) -> None:
    archive = archive_of(file_record.assistant, file_record.threads["over"])
    bad, good, newer = tmp_path / "bad", tmp_path / "good", tmp_path / "newer"
    bad.write_bytes(archive.replace(b"yes", b"yea"))
    good.write_bytes(archive)
    changed = archive.replace(b'"version":1', b'"version":2')
    newer.write_bytes(sealed(changed.splitlines(keepends=True)))
    ran = _there(elsewhere, "import", bad, newer, good, "--tenant", "new", "--json")
    first, second, third, totals = ran.rows
    assert ran.code == 1
    assert (first["file"], first["error"]["facts"]["line"]) == (str(bad), 6)
    assert (second["file"], second["error"]["facts"]["line"]) == (str(newer), 1)
    assert third["created"] is True
    assert (totals["imported"], totals["refused"]) == (1, 2)
    told_first, told_second = ran.err.splitlines()
    assert told_first.startswith(f"error: {bad}: validation_failed: Line 6 of the archive: ")
    assert "newer release" in told_second


@pytest.mark.guarantee("G-ARCH-21", "G-CLI-21")
def test_an_id_from_a_file_cannot_steer_a_terminal(file_url: str, tmp_path: Path) -> None:
    record = Record(make_engine(file_url))
    head, *rest = archive_of(record.assistant, record.open("empty").thread_id).splitlines(True)
    record.engine.dispose()
    value = value_of(head)
    value["thread"] = {**value["thread"], "id": "\x1b[31m\x9b31m"}
    file = tmp_path / "one"
    file.write_bytes(sealed([line_of(value), *rest]))
    ran = told(file_url, "import", str(file), "--tenant", "new")
    assert ran.out.startswith("\ufffd[31m\ufffd31m  0 events\n")


@pytest.mark.guarantee("G-ARCH-21")
def test_tables_are_made_where_there_are_none(file_record: Record, tmp_path: Path) -> None:
    file = tmp_path / "one"
    file.write_bytes(archive_of(file_record.assistant, file_record.threads["over"]))
    fresh = f"sqlite:///{tmp_path / 'fresh.db'}"
    assert told(fresh, "import", str(file), "--tenant", "new").code == 0
    engine = make_engine(fresh)
    assert len(contents(engine)["assistant_threads"]) == 1
    engine.dispose()


@pytest.mark.guarantee("G-ARCH-21")
def test_nothing_is_no_archive(file_url: str) -> None:
    ran = told(file_url, "import", "-", "--tenant", "new")
    assert (ran.code, ran.out.startswith("Imported 0 threads")) == (1, True)
    assert ran.err == ("error: -: validation_failed: Line 1 of the archive: there is no archive.\n")
