"""What became of a run: for whoever drives turns, and, where it failed, for the person."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from engine_assistant import AssistantError, Retry
from engine_assistant.host.execution import ToolFailed, ToolReturned, fitting
from engine_assistant.model.events import TurnError
from engine_assistant.model.limits import LIMITS

__all__ = ["Ended", "TurnReport", "Unsettled", "told"]

_FAILED: Final = "host_failed"


class Ended(StrEnum):
    """How a run ended. All but the last two rested the turn."""

    DONE = "done"
    REFUSED = "refused"
    AWAITING_APPROVAL = "awaiting-approval"
    MAX_TOKENS = "max-tokens"
    LIMIT = "limit"
    INTERRUPTED = "interrupted"
    ERROR = "error"
    """Something broke. The turn ended with a `turn-error`, or waits for people as it did before."""
    RELEASED = "released"
    """An approved call cannot run here and now. It stays approved, and the turn open."""
    LOST = "lost"
    """The lease went to somebody else, or could not be trusted any longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsettled:
    """A result that came when the lease was lost, so that the record does not have it.

    `settle_execution` takes it without a lease, under the `claimed_fence` that stands here.
    """

    call_id: str
    claimed_fence: int
    outcome: ToolReturned | ToolFailed = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnReport:
    """What became of a run.

    Attributes:
        thread_id: of which thread.
        run_id: under which name it held the lease.
        fence: under which fence.
        ended: how it ended.
        error: what broke, what was not ready, or what was refused when the lease was lost.
        unsettled: results that the record does not have.
    """

    thread_id: str
    run_id: str
    fence: int
    ended: Ended
    error: Exception | None = field(default=None, repr=False)
    unsettled: tuple[Unsettled, ...] = ()


def told(error: Exception) -> TurnError:
    """Return what the record, and so the person, is told of an error.

    Errors of ours hold no content. Of any other nothing is told but that it came: it may hold
    secrets, and goes to the log of the process alone.
    """
    if isinstance(error, AssistantError):
        return TurnError(
            code=fitting(error.code, LIMITS.id_bytes),
            message=fitting(error.message, LIMITS.reason_bytes),
            retryable=error.retry is Retry.NOW,
        )
    return TurnError(code=_FAILED, message="The assistant broke down.")
