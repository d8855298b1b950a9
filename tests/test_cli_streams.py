"""What surrounds a command and breaks: streams that are closed, full or gone, files, arguments."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from engine_assistant import USE, Assistant, Caller
from engine_assistant.cli import main
from engine_assistant.cli.archive.importing import Order, bring_in
from engine_assistant.cli.exits import ExitCode
from engine_assistant.cli.screen import Screen
from tests.rig.archives import archive_of
from tests.rig.command import COMMAND, Told, on

pytestmark = pytest.mark.guarantee("G-CLI-17")

NO_ROOM = "No space left on device"


@pytest.fixture
def thread(sqlite_url: str) -> str:
    """The one thread of the database."""
    assistant = Assistant.from_url(sqlite_url)
    person = assistant.acting_as(Caller(tenant="acme", principal="usr_alice", permissions={USE}))
    made = person.create_thread().id
    assistant.engine.dispose()
    return made


def told(
    url: str,
    *words: str | bytes,
    out: int = subprocess.PIPE,
    shut: Callable[[], None] | None = None,
) -> Told:
    """Run a command with other streams than usual; `shut` closes some of them before it starts."""
    done = subprocess.run(
        [*COMMAND, *words],
        env=on(url),
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.PIPE,
        preexec_fn=shut,
        check=False,
        timeout=60,
    )
    return Told(done.returncode, (done.stdout or b"").decode(), done.stderr.decode())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="nothing here is always full")
@pytest.mark.parametrize("words", ["threads", "threads --json", "export {}", "doctor", "--help"])
def test_there_is_no_room_for_the_output(sqlite_url: str, thread: str, words: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = told(sqlite_url, *words.format(thread).split(), out=full.fileno())
    assert done.code == 1
    assert NO_ROOM in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("words", ["threads", "export {}", "db sql"])
def test_standard_output_is_closed(sqlite_url: str, thread: str, words: str) -> None:
    done = told(sqlite_url, *words.format(thread).split(), shut=lambda: os.close(1))
    assert (done.code, done.err) == (1, "")


def test_standard_input_is_closed(sqlite_url: str, thread: str) -> None:
    done = told(sqlite_url, "import", "-", "--tenant", "x", shut=lambda: os.close(0))
    assert done.code == 1
    assert "there is no archive" in done.err


@pytest.mark.guarantee("G-ARCH-20")
def test_a_file_that_cannot_be_made_is_named(sqlite_url: str, thread: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in ("missing", "file"):
        wanted = tmp_path / folder / "a.jsonl"
        done = told(sqlite_url, "export", thread, "-o", str(wanted))
        assert done.code == 1
        assert f"{wanted} cannot be written" in done.err
        assert "Traceback" not in done.err
    longest = tmp_path / ("a" * 250)
    assert told(sqlite_url, "export", thread, "-o", str(longest)).code == 0
    made = {path.name for path in tmp_path.iterdir() if path.name[:12] != "assistant.db"}
    assert made == {longest.name, "file"}


@pytest.mark.guarantee("G-ARCH-21")
def test_a_file_that_cannot_be_read_keeps_no_other_out(
    sqlite_url: str, thread: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assistant = Assistant.from_url(sqlite_url)
    good = tmp_path / "good.jsonl"
    good.write_bytes(archive_of(assistant, thread))
    order = Order((tmp_path / "gone.jsonl", tmp_path, good), "elsewhere", cancel_open=False)
    assert bring_in(Screen(json=False), sqlite_url, order) is ExitCode.FAILED
    said = capsys.readouterr()
    assert said.err.count("The file cannot be read") == 2
    assert "2 could not be imported" in said.out
    assert len(assistant.survey(tenant="elsewhere")) == 1
    assistant.engine.dispose()


@pytest.mark.parametrize("words", ["threads --tenant", "show", "doctor --thread", "export"])
def test_an_argument_that_is_no_text(sqlite_url: str, thread: str, words: str) -> None:
    done = told(sqlite_url, *words.split(), b"\xff")
    assert done.code == 1
    assert "must be a string" in done.err


def test_an_address_that_is_no_text(tmp_path: Path) -> None:
    url = b"sqlite:///" + os.fsencode(tmp_path) + b"/\xff.db"
    done = told("", "threads", b"--database", url)
    assert done.code == 3
    assert "Traceback" not in done.err


@pytest.mark.guarantee("G-CLI-10")
def test_ctrl_c_before_a_command_has_begun(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Slow(ModuleType):
        def __getattr__(self, name: str) -> object:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "engine_assistant.cli.app", Slow("app"))
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 130
    assert capsys.readouterr() == ("", "error: Stopped.\n")


@pytest.mark.guarantee("G-RELAY-05")
def test_a_relay_ends_when_nobody_reads_it(sqlite_url: str, thread: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = told(sqlite_url, "relay", out=writing)
    os.close(writing)
    assert (done.code, done.err) == (1, "")
    assert told(sqlite_url, "relay", "--to", "http://[bad").code == 2
    assert told(sqlite_url, "relay", "--every", "inf").code == 2
