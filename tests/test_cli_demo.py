"""`engine-assistant demo`: the story is told by the engine itself, its refusals included."""

import json
import os
import pty
import re
import select
import subprocess
from pathlib import Path
from time import monotonic

import pytest
import sqlalchemy as sa

from tests.rig import replays
from tests.rig.command import COMMAND, as_from_a_shell, environment, run

APPROVED = [
    "user-message",
    "turn-start",
    "step-start",
    *["text-delta"] * 4,
    "tool-input",
    "step-finish",
    "approval-request",
    "turn-finish",
    "approval-resolved",
    "execution-claimed",
    "tool-output",
    "step-start",
    "text-delta",
    "step-finish",
    "turn-finish",
]
DENIED = [kind for kind in APPROVED if kind not in ("execution-claimed", "tool-output")]


@pytest.mark.guarantee("G-CLI-11", "G-CLI-12")
@pytest.mark.parametrize("answer", [["--yes"], []])
def test_the_approved_refund_runs_once_and_what_must_not_happen_is_refused(
    empty_database_url: str, answer: list[str]
) -> None:
    done = run("demo", *answer, "--json", "--database", empty_database_url)
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert [one["code"] for one in told["refusals"]] == [
        "not_found",
        "digest_mismatch",
        "already_executed",
        "run_fenced",
    ]
    assert (told["approved"], told["call_state"], told["executions"]) == (True, "done", 1)
    assert [(one["seq"], one["type"]) for one in told["events"]] == list(enumerate(APPROVED, 1))


@pytest.mark.guarantee("G-CLI-11", "G-CLI-12")
def test_the_denied_refund_runs_never(empty_database_url: str) -> None:
    done = run("demo", "--no", "--json", "--database", empty_database_url)
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert [one["code"] for one in told["refusals"]] == [
        "not_found",
        "approval_denied",
        "already_resolved",
        "run_fenced",
    ]
    assert (told["approved"], told["call_state"], told["executions"]) == (False, "denied", 0)
    assert [(one["seq"], one["type"]) for one in told["events"]] == list(enumerate(DENIED, 1))


@pytest.mark.guarantee("G-CLI-11")
def test_what_is_told_is_what_is_recorded(database_url: str, engine: sa.Engine) -> None:
    done = run("demo", env={"ENGINE_ASSISTANT_DATABASE_URL": database_url})
    assert (done.returncode, done.stderr) == (0, "")
    shown = re.findall(r"^ +(\d+)  ([a-z-]+) ", done.stdout, re.MULTILINE)
    with engine.connect() as connection:
        rows = connection.execute(sa.text("SELECT seq, type FROM assistant_events ORDER BY seq"))
        assert [(int(seq), kind) for seq, kind in shown] == [tuple(row) for row in rows]
    assert any(line.startswith("It is kept in ") for line in done.stdout.splitlines())


@pytest.mark.guarantee("G-CLI-11")
def test_told_again_it_opens_another_thread(sqlite_url: str) -> None:
    threads = [
        json.loads(run("demo", "--json", "--database", sqlite_url).stdout)["thread_id"]
        for _ in range(2)
    ]
    assert threads[0] != threads[1]


@pytest.mark.guarantee("G-CLI-13")
def test_piped_there_is_no_colour_and_nothing_moves(tmp_path: Path) -> None:
    done = run("demo", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isprintable() is False
    assert not set(done.stdout) & {"\x1b", "\r", "\b"}
    assert (tmp_path / "assistant.db").exists()
    assert f"sqlite:///{tmp_path}/assistant.db" in done.stdout


def _on_a_terminal(url: str, typed: bytes) -> tuple[int, str]:
    """Run the demo in front of a terminal and type; answer the exit code and what was shown."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "demo", "--database", url],
        env=environment(TERM="xterm-256color", COLUMNS="100"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: _take_terminal(theirs),  # noqa: PLW1509 - only this thread is there
    )
    os.close(theirs)
    shown = b""
    until = monotonic() + 60
    while True:
        # A key pressed between the question and the wait for the answer is lost, as Python has
        # it, so the person presses it again.
        if not select.select([ours], [], [], 2)[0]:
            if monotonic() > until:
                process.kill()
                process.wait()
                raise AssertionError(f"nothing more was shown after:\n{shown.decode()}")
            os.write(ours, typed if b"[y/N]" in shown else b"")
            continue
        try:
            read = os.read(ours, 4096)
        except OSError:  # Linux says so when the other side has gone
            read = b""
        if not read:
            break
        asked = b"[y/N]" in shown
        shown += read
        if b"[y/N]" in shown and not asked:
            os.write(ours, typed)
    os.close(ours)
    return process.wait(60), shown.decode()


def _take_terminal(terminal: int) -> None:
    import fcntl
    import termios

    as_from_a_shell()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)


@pytest.mark.guarantee("G-CLI-13")
@pytest.mark.parametrize(
    ("typed", "approved"), [(b"y\n", True), (b"YES\n", True), (b"n\n", False), (b"\n", False)]
)
def test_on_a_terminal_it_asks_and_only_a_yes_is_a_yes(
    sqlite_url: str, typed: bytes, approved: bool
) -> None:
    code, shown = _on_a_terminal(sqlite_url, typed)
    assert code == 0, shown
    assert "Approval needed: refund" in shown
    assert "\x1b[" in shown
    assert ("Alice approves." if approved else "Alice denies.") in shown
    assert ("execution-claimed" in shown) is approved


@pytest.mark.guarantee("G-CLI-13")
def test_ctrl_d_at_the_question_is_a_no(sqlite_url: str) -> None:
    code, shown = _on_a_terminal(sqlite_url, b"\x04")
    assert code == 0, shown
    assert "Alice denies." in shown


@pytest.mark.guarantee("G-CLI-10")
def test_ctrl_c_at_the_question_ends_cleanly(sqlite_url: str) -> None:
    from engine_assistant import make_engine

    code, shown = _on_a_terminal(sqlite_url, b"\x03")
    assert code == 130
    assert shown.rstrip().endswith("Stopped.\x1b[0m") or "Stopped." in shown.splitlines()[-1]
    assert "Traceback" not in shown
    engine = make_engine(sqlite_url)
    assert replays.states(engine)["turns"] == {"awaiting": 1}
    engine.dispose()
