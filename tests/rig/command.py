"""The command `engine-assistant`, run as a person or a script runs it: in a process of its own."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Ran:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, object]]:
        """The JSON objects of standard output, one a line."""
        return [json.loads(line) for line in self.out.splitlines()]


def environment(url: str | None = None) -> dict[str, str]:
    """Return an environment that points at a database, and at nothing else of this machine's."""
    own = {key: value for key, value in os.environ.items() if not key.startswith("ENGINE_")}
    return own | ({} if url is None else {"ENGINE_ASSISTANT_DATABASE_URL": url})


def command(*arguments: str) -> list[str]:
    """Return the words that start the command under this interpreter."""
    return [sys.executable, "-W", "error", "-m", "engine_assistant.cli", *arguments]


def run(url: str, *arguments: str, cwd: str | None = None, stdin: str = "") -> Ran:
    """Run the command to its end."""
    done = subprocess.run(
        command(*arguments),
        env=environment(url),
        cwd=cwd,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)
