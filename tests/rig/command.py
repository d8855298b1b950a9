"""The command `engine-assistant`, run as a person or a script runs it: in a process of its own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
COMMAND = [sys.executable, "-W", "error", "-m", "engine_assistant.cli"]


def environment(**more: str) -> dict[str, str]:
    """Answer an environment without a terminal's habits, in which the package is found."""
    drop = ("FORCE_COLOR", "TTY_COMPATIBLE", "NO_COLOR", "ENGINE_ASSISTANT_DATABASE_URL", "COLUMNS")
    kept = {name: value for name, value in os.environ.items() if name not in drop}
    return {**kept, "PYTHONPATH": str(ROOT), **more}


def run(
    *words: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, piped."""
    return subprocess.run(
        [*COMMAND, *map(str, words)],
        cwd=cwd,
        env=environment(**(env or {})),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def as_from_a_shell() -> None:
    """Let Ctrl-C reach a child, for `preexec_fn`.

    A script that runs the suite in the background starts it with SIGINT ignored, and what is
    ignored is inherited: the child would never hear the interrupt that a test sends.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@dataclass(frozen=True)
class Told:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, object]]:
        """The JSON objects of standard output, one a line."""
        return [json.loads(line) for line in self.out.splitlines()]


def on(url: str) -> dict[str, str]:
    """Return an environment that points the command at a database."""
    return environment(ENGINE_ASSISTANT_DATABASE_URL=url)


def told(url: str, *words: str) -> Told:
    """Run the command on a database to its end."""
    done = run(*words, env={"ENGINE_ASSISTANT_DATABASE_URL": url})
    return Told(done.returncode, done.stdout, done.stderr)
