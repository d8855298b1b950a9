"""What docs/testing.md shows is run: its files as a host's suite, its program as a program."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine_assistant.testing import faults
from engine_assistant.testing.postgres import GIVEN_URL, PostgresServer, libpq
from tests.rig.pages import ROOT, snippets

PAGE = ROOT / "docs" / "testing.md"


@pytest.mark.guarantee("G-KIT-13")
def test_the_page_is_a_suite_that_passes(
    assistant_postgres_server: PostgresServer, tmp_path: Path
) -> None:
    files = {"program.py": "from test_refunds import ALICE\n"}
    for _, text in snippets(PAGE):
        first, _, rest = text.partition("\n")
        if first.endswith(".py"):
            files[first.removeprefix("# ")] = rest
        else:
            files["program.py"] += text
    files["test_program.py"] = "def test_it_runs():\n    import program\n"
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    # Its server is the one of this run: a URL that is given is used, and left as it was.
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env |= {"PYTHONPATH": str(ROOT), GIVEN_URL: libpq(assistant_postgres_server.url)}
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"]
    # Of the scenarios one will do, on either face: that they are found and played.
    command += ["-k", "not keeps_its_promises or a_key_opens"]
    done = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout, done.stdout


def test_the_page_names_every_step() -> None:
    steps = {kind.__name__ for kind in faults.Step.__args__}
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    named = {row.removeprefix("| `").partition("(")[0] for row in rows}
    assert steps <= named
