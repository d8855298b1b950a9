"""How a command ends: a number for scripts, and one line instead of a traceback."""

import os
import sys
from collections.abc import Callable
from enum import IntEnum
from typing import Final, NoReturn

import typer

from engine_assistant.cli.screen import Screen
from engine_assistant.model.errors import AssistantError, Conflict, Internal, Unavailable

__all__ = ["HELP", "ExitCode", "end", "unprinted"]


# A wrong value of these is wrong usage; of others, what the engine refused.
_OPTIONS: Final = ("database", "to", "model", "tools")


class ExitCode(IntEnum):
    """What a script can tell from the number."""

    GOOD = 0
    FAILED = 1
    USAGE = 2
    UNAVAILABLE = 3
    STOPPED = 130


HELP: Final = (
    "Exit codes: 0 all good; 1 something failed or was refused; 2 wrong usage;"
    " 3 the database, a package or a key that it needs is not there; 130 stopped by Ctrl-C."
)


def end(body: Callable[[Screen], ExitCode], *, json: bool, stopped: str = "Stopped.") -> NoReturn:
    """Run the body of a command and leave with its exit code.

    Args:
        body: the command; it returns how it went, or raises.
        json: print one JSON object instead of lines for people.
        stopped: what to say after Ctrl-C.
    """
    screen = Screen(json=json)
    try:
        code = body(screen)
        sys.stdout.flush()
    except KeyboardInterrupt:
        screen.error(stopped)
        code = ExitCode.STOPPED
    except BrokenPipeError:  # Whoever read the output has gone.
        _let_go_of_output()
        code = ExitCode.FAILED
    except OSError as error:  # A full disk, a file that is not there: this machine's, not ours.
        code = _tell_if_possible(screen, Internal(_words(error), error=type(error).__name__))
    except AssistantError as error:
        code = _tell(screen, error)
    raise typer.Exit(int(code))


def unprinted(error: OSError) -> int:
    """Say why nothing can be printed, and return the exit code."""
    _let_go_of_output()
    Screen(json=False).error(_words(error))
    return int(ExitCode.FAILED)


def _tell_if_possible(screen: Screen, error: AssistantError) -> ExitCode:
    try:
        return _tell(screen, error)
    except OSError:  # It is standard output itself that takes nothing.
        _let_go_of_output()
    return _tell(screen, error)


def _let_go_of_output() -> None:
    """Throw away what could not be written: the interpreter must not try to flush it again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _words(error: OSError) -> str:
    what = error.strerror or type(error).__name__
    return f"{what}." if error.filename is None else f"{error.filename}: {what}."


def _tell(screen: Screen, error: AssistantError) -> ExitCode:
    # A package or a database that is not there, and not something wrong with one that is.
    extra = error.facts.get("extra") is not None or error.facts.get("missing") is not None
    message = error.message
    absent = isinstance(error, Unavailable) and error.facts.get("full") is None
    if absent:
        message = "The database did not answer. Is it running, and is the address right?"
    if screen.json:
        screen.data({"ok": False, "error": error.to_dict() | {"message": message}})
    sys.stdout.flush()
    name = error.reason.value if isinstance(error, Conflict) else error.code
    screen.error(f"{name}: {message}")
    if extra or absent:
        return ExitCode.UNAVAILABLE
    return ExitCode.USAGE if error.facts.get("path") in _OPTIONS else ExitCode.FAILED
