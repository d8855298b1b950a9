"""One small tree of errors. Each has a stable `code`, `facts`, and says whether to try again.

No error carries message text, tool input, tool output or a secret: errors end up in logs.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import ClassVar, Final, Self

__all__ = [
    "AssistantError",
    "Conflict",
    "ConflictReason",
    "Fact",
    "Internal",
    "NotFound",
    "PermissionDenied",
    "Raced",
    "Retry",
    "Unavailable",
    "ValidationFailed",
    "not_found",
]

Fact = str | int | bool | None
"""A value that an error may carry: an id, a number, a state, never content."""


class Retry(StrEnum):
    """What a caller may do about a refusal."""

    NEVER = "never"
    """The same request will be refused for ever."""
    AFTER_CHANGE = "after_change"
    """It may succeed once something else has happened, or with other values."""
    NOW = "now"
    """Repeat it as it is, with the same key, batch or attempt."""


class ConflictReason(StrEnum):
    """Why a well-formed, permitted request was refused. Spellings are only ever added."""

    THREAD_CLOSED = "thread_closed"
    TURN_IN_PROGRESS = "turn_in_progress"
    APPROVAL_PENDING = "approval_pending"
    NO_APPROVAL_PENDING = "no_approval_pending"
    RUN_IN_PROGRESS = "run_in_progress"
    RUN_FENCED = "run_fenced"
    NOT_A_RUN_EVENT = "not_a_run_event"
    CALL_STATE = "call_state"
    APPROVAL_REQUIRED = "approval_required"
    APPROVAL_DENIED = "approval_denied"
    EXECUTION_NOT_CLAIMED = "execution_not_claimed"
    ALREADY_EXECUTED = "already_executed"
    ALREADY_RESOLVED = "already_resolved"
    DIGEST_MISMATCH = "digest_mismatch"
    APPROVAL_EXPIRED = "approval_expired"
    NO_TURN_OPEN = "no_turn_open"
    CALL_CLOSED = "call_closed"
    KEY_REUSED = "key_reused"
    BATCH_GAP = "batch_gap"
    THREAD_ERASED = "thread_erased"
    THREAD_EXISTS = "thread_exists"
    QUEUE_FULL = "queue_full"
    INPUT_SETTLED = "input_settled"
    NOT_REPEATABLE = "not_repeatable"
    STALE_HEAD = "stale_head"
    RANGE_REFUSED = "range_refused"
    ARCHIVE_UNSETTLED = "archive_unsettled"


_PASSING: Final = frozenset(
    {
        ConflictReason.TURN_IN_PROGRESS,
        ConflictReason.APPROVAL_PENDING,
        ConflictReason.NO_APPROVAL_PENDING,
        ConflictReason.RUN_IN_PROGRESS,
        ConflictReason.APPROVAL_REQUIRED,
        ConflictReason.EXECUTION_NOT_CLAIMED,
        ConflictReason.DIGEST_MISMATCH,
        ConflictReason.NO_TURN_OPEN,
        ConflictReason.BATCH_GAP,
        ConflictReason.QUEUE_FULL,
        ConflictReason.STALE_HEAD,
        ConflictReason.RANGE_REFUSED,
        ConflictReason.ARCHIVE_UNSETTLED,
    }
)
"""Conflicts that another event, or other values, can lift. The rest are final."""


class AssistantError(Exception):
    """The root of every error the engine raises.

    Attributes:
        code: a stable word for programs.
        message: one sentence for people; it says what to do.
        facts: ids, numbers and states that explain the refusal.
        retry: whether and when the same request may be made again.
    """

    code: ClassVar[str] = "error"
    retry: Retry = Retry.NEVER

    def __init__(self, message: str, **facts: Fact) -> None:
        """Keep the sentence and its facts."""
        super().__init__(message)
        self.message = message
        self.facts: Mapping[str, Fact] = MappingProxyType(facts)

    def __reduce__(self) -> tuple[object, ...]:
        """Let the error travel between processes, as a host's worker pool needs it."""
        state = {name: value for name, value in self.__dict__.items() if name != "facts"}
        return self._remade, (state, dict(self.facts))

    @classmethod
    def _remade(cls, state: dict[str, object], facts: dict[str, Fact]) -> Self:
        error = cls.__new__(cls, state["message"])
        error.__dict__.update(state, facts=MappingProxyType(facts))
        return error

    def to_dict(self) -> dict[str, object]:
        """Return the error as plain JSON, for a host that answers over a wire."""
        return {
            "code": self.code,
            "message": self.message,
            "retry": self.retry.value,
            "facts": dict(self.facts),
        }


class NotFound(AssistantError):
    """It does not exist, or the caller may not see it: the answer is the same on purpose."""

    code = "not_found"


def not_found() -> NotFound:
    """Return the one answer to what is missing and to what the caller may not see."""
    return NotFound("It does not exist, or this caller may not see it.")


class PermissionDenied(AssistantError):
    """The caller lacks the permission that the operation asks for."""

    code = "permission_denied"


class ValidationFailed(AssistantError):
    """The request itself is wrong. `facts["path"]` names the field, never its value."""

    code = "validation_failed"


class Conflict(AssistantError):
    """The record is in a state that forbids this. `reason` says which rule."""

    code = "conflict"

    def __init__(self, reason: ConflictReason, message: str, **facts: Fact) -> None:
        """Keep the reason beside the sentence and its facts."""
        super().__init__(message, **facts)
        self.reason = reason
        self.retry = Retry.AFTER_CHANGE if reason in _PASSING else Retry.NEVER

    def to_dict(self) -> dict[str, object]:
        """Return the error as plain JSON, with its reason."""
        return super().to_dict() | {"reason": self.reason.value}


class Raced(AssistantError):
    """Another transaction was in the way. Nothing was kept; roll back and repeat."""

    code = "raced"
    retry = Retry.NOW


class Unavailable(AssistantError):
    """The database went away, so it is not known whether the write was kept.

    `facts["outcome"]` is always `"unknown"`. Repeat with the same key, batch or attempt: the
    engine answers the first result if it was.
    """

    code = "unavailable"
    retry = Retry.NOW

    def __init__(self, message: str, **facts: Fact) -> None:
        """Mark the outcome as unknown."""
        super().__init__(message, outcome="unknown", **facts)


class Internal(AssistantError):
    """The record or the installation is broken; a person must look."""

    code = "internal"
