"""What somebody who looks on is told of an operation: ids, numbers and codes, never content."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

__all__ = ["OK", "Observer", "OperationBegun", "OperationEnded"]

OK: Final = "ok"
"""The outcome of an operation that was answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationBegun:
    """What is known before an operation runs. The ids are as they were given, not yet judged.

    Attributes:
        operation: its name, `assistant/send-message`.
        tenant: the caller's.
        thread_id: the thread it is about; None if the input names none.
        fence: the fence that was presented, if one was.
    """

    operation: str
    tenant: str
    thread_id: str | None = None
    fence: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationEnded:
    """What became of it.

    Attributes:
        outcome: `ok`, the code of the `AssistantError`, or `error` for anything else.
        seconds: how long it took, with every repeat after a race.
        reason: why, if the outcome is `conflict`.
        thread_id: the thread that the answer is about, if it is about one.
        turn: the turn that the answer names.
        fence: the fence that the answer names.
        took_over: the lease was taken from another run.
    """

    outcome: str
    seconds: float
    reason: str | None = None
    thread_id: str | None = None
    turn: int | None = None
    fence: int | None = None
    took_over: bool = False


class Observer(Protocol):
    """Looks on while operations run. It changes nothing: what it raises is dropped.

    It is called in the thread or the task of the operation, so it must be quick and must not wait.
    """

    def __call__(self, begun: OperationBegun, /) -> Callable[[OperationEnded], None]:
        """Take the beginning of an operation, and return what takes its end."""
        ...
