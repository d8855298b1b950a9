"""What spans, metrics and their attributes are called, and how one is finished.

Those of `gen_ai.` are OpenTelemetry's conventions for generative AI, version 1.41.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

from opentelemetry.trace import Span, Status, StatusCode
from opentelemetry.util.types import AttributeValue

__all__ = [
    "ERROR",
    "FENCE",
    "NAME",
    "OPERATION",
    "OUTCOME",
    "TENANT",
    "THREAD",
    "TURN",
    "Attributes",
    "finish",
    "known",
]

NAME: Final = "engine_assistant"

OPERATION: Final = "engine_assistant.operation"
OUTCOME: Final = "engine_assistant.outcome"
TENANT: Final = "engine_assistant.tenant"
THREAD: Final = "engine_assistant.thread"
TURN: Final = "engine_assistant.turn"
FENCE: Final = "engine_assistant.fence"
ERROR: Final = "error.type"

Attributes: TypeAlias = Mapping[str, AttributeValue | None]


def known(attributes: Attributes) -> dict[str, AttributeValue]:
    """Return those that have a value."""
    return {name: value for name, value in attributes.items() if value is not None}


def finish(span: Span, attributes: Attributes, error: str | None, *, fault: bool) -> None:
    """End a span. What went wrong is said by its code, never by its message.

    Args:
        span: which.
        attributes: what became known.
        error: what went wrong, if something did.
        fault: whether that makes the span an error; otherwise it was an answer.
    """
    span.set_attributes(known({**attributes, ERROR: error}))
    if error is not None and fault:
        span.set_status(Status(StatusCode.ERROR))
    span.end()
