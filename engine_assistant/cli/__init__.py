"""Floor 4: the command `engine-assistant`. It stands on the public API only."""

import sys

__all__ = ["main"]

_EXTRA = ("typer", "rich")


def main() -> None:
    """Run the command. It imports late, so that `--help` and a missing extra answer at once."""
    try:
        from engine_assistant.cli.app import app
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in _EXTRA:
            raise
        sys.stderr.write(
            "error: this command needs an extra: pip install 'engine-assistant[cli]'\n"
        )
        sys.exit(3)
    app(prog_name="engine-assistant")
