"""What somebody who looks on is told: of a turn, of a request to the model, and of a tool's run.

What was said stands in `request`, `input` and `result`, and nowhere else. Nothing private is there:
no reasoning, and no provider's state. Sensitive arguments are masked.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from engine_assistant.host.messages import JsonValue, ToolResult
from engine_assistant.host.model import ModelRequest, ModelResult

__all__ = [
    "HostObserver",
    "RequestBegun",
    "RequestEnded",
    "ToolBegun",
    "ToolEnded",
    "TurnBegun",
    "TurnEnded",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnBegun:
    """A run holds the lease of a turn."""

    tenant: str
    thread_id: str
    run_id: str
    fence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnded:
    """What became of the run.

    Attributes:
        ended: how it ended, as its `TurnReport` says; `cancelled`, or `error`, if it has none.
        seconds: how long it took.
        turn: which turn of the thread it was; None if it did not come to know.
        error: what kind of thing broke, if something did.
    """

    ended: str
    seconds: float
    turn: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestBegun:
    """The model is asked.

    Attributes:
        provider: who serves the model; None if the model does not say, see `NamedModel`.
        model: its name; likewise.
        step: which request of its conversation it is, from 1.
        request: what it is asked.
    """

    provider: str | None
    model: str | None
    step: int
    request: ModelRequest = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestEnded:
    """What came of the request.

    Attributes:
        seconds: how long it took.
        first_output: seconds until the model began to speak; None if it said nothing.
        result: the answer; None if none came, also because the conversation was interrupted.
        error: what kind of thing broke, if something did.
    """

    seconds: float
    first_output: float | None = None
    result: ModelResult | None = field(default=None, repr=False)
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolBegun:
    """A tool's function is about to run.

    Attributes:
        tool: its name.
        call_id: for which call.
        step: of which request of its conversation; 0 is one that an earlier run left.
        input: with what.
    """

    tool: str
    call_id: str
    step: int
    input: JsonValue = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEnded:
    """What came of it.

    Attributes:
        seconds: how long it took.
        result: what the model is told; None if the run ended first.
        error: the code of its failure, or what kind of thing broke, if something did.
    """

    seconds: float
    result: ToolResult | None = field(default=None, repr=False)
    error: str | None = None


class HostObserver:
    """Looks on while a host works. Override what you need; each returns what takes the end.

    It changes nothing: what it raises is dropped. It is called in the task of what it looks at, so
    it must be quick and must not wait.
    """

    def turn(self, begun: TurnBegun, /) -> Callable[[TurnEnded], None]:
        """Take the beginning of a turn's run. What is told before its end belongs to it."""
        del begun
        return _ignore

    def request(self, begun: RequestBegun, /) -> Callable[[RequestEnded], None]:
        """Take the beginning of a request to the model."""
        del begun
        return _ignore

    def tool(self, begun: ToolBegun, /) -> Callable[[ToolEnded], None]:
        """Take the beginning of a tool's run."""
        del begun
        return _ignore


def _ignore(ended: object) -> None:
    del ended
