"""How big things may be. Bytes are bytes of what is stored, never characters."""

from dataclasses import dataclass, fields
from typing import Final, cast

from engine_assistant.model.errors import ValidationFailed

__all__ = ["LIMITS", "LONGEST_WAIT", "Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of every input. A host may lower each of them; none may be raised.

    The defaults are what the tables, the indexes and the hot path were measured with.
    """

    id_bytes: int = 128
    title_bytes: int = 1024
    reason_bytes: int = 2048
    message_bytes: int = 64 * 1024
    event_bytes: int = 256 * 1024
    batch_events: int = 256
    batch_bytes: int = 4 * 1024 * 1024
    nesting: int = 64
    integer_digits: int = 1000
    page: int = 1000
    approvers: int = 20
    queued_inputs: int = 100
    context_bytes: int = 1024 * 1024
    summary_bytes: int = 256 * 1024

    def __post_init__(self) -> None:
        """Refuse a limit above its default: the engine was not measured there.

        Raises:
            ValidationFailed: a limit is not an int between 1 and its default.
        """
        for field in fields(self):
            value = getattr(self, field.name)
            most = cast("int", field.default)
            if type(value) is not int or not 1 <= value <= most:
                raise ValidationFailed(
                    f"The limit {field.name} must be an int between 1 and {most}.",
                    path=field.name,
                )


LIMITS = Limits()

LONGEST_WAIT: Final = 366 * 86400
"""Seconds that a request for approval may wait at most."""
