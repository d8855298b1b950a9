"""Where a command writes: lines for people, or one JSON object for scripts."""

import json as json_module
import sys
from collections.abc import Mapping
from typing import Final

from rich.console import Console
from rich.text import Text

__all__ = ["Screen", "printable"]

_WIDEST: Final = 88


def printable(text: str) -> str:
    """Return the text with control characters replaced: it must not steer a terminal."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


class Screen:
    """Standard output and standard error of one command.

    Colours, and everything that moves, appear on a terminal only. With `json`, what is said for
    people is left out and standard output holds one JSON object.
    """

    def __init__(self, *, json: bool) -> None:
        """Look at what standard output and standard error are."""
        for stream in (sys.stdout, sys.stderr):
            reconfigure = getattr(stream, "reconfigure", None)
            if reconfigure is not None:
                # A terminal that lacks a character gets a question mark, not a traceback.
                reconfigure(errors="replace")
        self.json = json
        self.out = Console(highlight=False, soft_wrap=True)
        self.err = Console(stderr=True, highlight=False, soft_wrap=True)
        self._scripts = sys.stdout

    @property
    def interactive(self) -> bool:
        """Whether a person sits in front of it and can be asked."""
        return not self.json and self.out.is_terminal and sys.stdin.isatty()

    @property
    def bars(self) -> Console:
        """Where something moves: standard error if that is a terminal, and nowhere else."""
        return self.err if self.err.is_terminal else Console(quiet=True)

    @property
    def width(self) -> int:
        """Columns that a paragraph or a frame may take."""
        return min(self.out.width, _WIDEST)

    def step_aside(self) -> None:
        """Leave standard output to what was asked for: what is told goes to standard error."""
        self.out, self._scripts = self.err, sys.stderr

    def say(self, text: str = "", style: str = "", *, end: str = "\n") -> None:
        """Print a line for people."""
        if not self.json:
            self.out.print(Text(text, style), end=end)

    def data(self, value: Mapping[str, object]) -> None:
        """Print a JSON object for scripts, in ASCII, on one line."""
        self._scripts.write(json_module.dumps(value) + "\n")

    def error(self, text: str) -> None:
        """Print one line on standard error."""
        line = Text("error: ", "bold red")
        self.err.print(line.append(printable(text), "default"))
