"""What spans, metrics and their attributes are called, and how a span is begun and finished.

Those of `gen_ai.` are OpenTelemetry's conventions for generative AI, version 1.41.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from opentelemetry import context, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
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
    "opened",
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


def opened(
    tracer: Tracer, name: str, attributes: Attributes, kind: SpanKind = SpanKind.INTERNAL
) -> Callable[[], Span]:
    """Begin a span that what follows stands under; return what ends that and gives it back."""
    span = tracer.start_span(name, kind=kind, attributes=known(attributes))
    token = context.attach(trace.set_span_in_context(span))

    def close() -> Span:
        context.detach(token)
        return span

    return close


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
