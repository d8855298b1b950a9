"""Floor 4: the command `engine-assistant`. It stands on the public API only."""

import os
import sys

__all__ = ["main"]

_EXTRA = ("typer", "rich")


def main() -> None:
    """Run the command. It imports late, so that `--help` and a missing extra answer at once."""
    _stand_in()
    try:
        from engine_assistant.cli.app import app
        from engine_assistant.cli.exits import unprinted
    except KeyboardInterrupt:  # Before a command could have begun.
        sys.stderr.write("error: Stopped.\n")
        sys.exit(130)
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in _EXTRA:
            raise
        sys.stderr.write(
            "error: this command needs an extra: pip install 'engine-assistant[cli]'\n"
        )
        sys.exit(3)
    try:
        app(prog_name="engine-assistant")
    except OSError as error:  # Of the help; a command answers for itself.
        sys.exit(unprinted(error))


def _stand_in() -> None:
    """Put something in the place of standard streams that whoever started us has closed.

    What is read there is at its end; what is written goes to a pipe that nobody reads.
    """
    # They are never closed again, and so nobody is to be warned that they are not.
    if sys.stdin is None:
        nothing = os.open(os.devnull, os.O_RDONLY)
        sys.stdin = os.fdopen(nothing, encoding="utf-8", closefd=False)
    if sys.stdout is None:
        reading, writing = os.pipe()
        os.close(reading)
        sys.stdout = os.fdopen(writing, "w", encoding="utf-8", closefd=False)
