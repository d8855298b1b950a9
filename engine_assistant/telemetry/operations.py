"""A span for each operation, and the three numbers that say how the leases fare."""

from collections.abc import Callable, Mapping
from typing import Final

from opentelemetry import context, metrics, trace
from opentelemetry.trace import Span, Status, StatusCode
from opentelemetry.util.types import AttributeValue

from engine_assistant.model.errors import (
    Conflict,
    ConflictReason,
    NotFound,
    PermissionDenied,
    ValidationFailed,
)
from engine_assistant.model.observing import OK, Observer, OperationBegun, OperationEnded
from engine_assistant.version import __version__

__all__ = ["observe"]

_NAME: Final = "engine_assistant"

_OPERATION: Final = "engine_assistant.operation"
_OUTCOME: Final = "engine_assistant.outcome"
_TENANT: Final = "engine_assistant.tenant"
_THREAD: Final = "engine_assistant.thread"
_TURN: Final = "engine_assistant.turn"
_FENCE: Final = "engine_assistant.fence"
_ERROR: Final = "error.type"

_REFUSALS: Final = frozenset(
    kind.code for kind in (Conflict, NotFound, PermissionDenied, ValidationFailed)
)
"""Answers, not faults: a span that ends so is no error, but says why."""

_APPEND: Final = "append_events"


def observe(
    tracer_provider: trace.TracerProvider | None = None,
    meter_provider: metrics.MeterProvider | None = None,
) -> Observer:
    """Return an observer that makes a span of each operation, and counts.

    Each span is named after its operation, `engine_assistant.append_events`. What SQLAlchemy's own
    instrumentation tells stands under it. Tenant and thread are on spans only: a metric has one
    series for each value of an attribute.

    Args:
        tracer_provider: where spans go; default is the process's.
        meter_provider: where metrics go; default is the process's.
    """
    return _Observed(
        trace.get_tracer(_NAME, __version__, tracer_provider),
        metrics.get_meter(_NAME, __version__, meter_provider),
    )


class _Observed:
    """The observer of one front door."""

    def __init__(self, tracer: trace.Tracer, meter: metrics.Meter) -> None:
        self._tracer = tracer
        self._appends = meter.create_histogram(
            "engine_assistant.append.duration",
            unit="ms",
            description="How long append_events takes, repeats after a race included.",
        )
        self._losses = meter.create_counter(
            "engine_assistant.lease.losses",
            unit="{lease}",
            description="Leases that another run took from a silent one.",
        )
        self._refusals = meter.create_counter(
            "engine_assistant.fence.refusals",
            unit="{operation}",
            description="Operations of a run that no longer holds its lease.",
        )

    def __call__(self, begun: OperationBegun, /) -> Callable[[OperationEnded], None]:
        name = begun.operation.rpartition("/")[2].replace("-", "_")
        span = self._tracer.start_span(
            f"{_NAME}.{name}",
            attributes=_known(
                {
                    _OPERATION: name,
                    _TENANT: begun.tenant,
                    _THREAD: begun.thread_id,
                    _FENCE: begun.fence,
                }
            ),
        )
        token = context.attach(trace.set_span_in_context(span))

        def tell(ended: OperationEnded) -> None:
            context.detach(token)
            _finish(span, ended)
            self._count(name, ended)

        return tell

    def _count(self, name: str, ended: OperationEnded) -> None:
        operation = {_OPERATION: name}
        if name == _APPEND:
            self._appends.record(ended.seconds * 1000, {_OUTCOME: ended.outcome})
        if ended.took_over:
            self._losses.add(1)
        if ended.reason == ConflictReason.RUN_FENCED:
            self._refusals.add(1, operation)


def _finish(span: Span, ended: OperationEnded) -> None:
    """End a span. What went wrong is said by its code, never by its message."""
    span.set_attributes(
        _known(
            {
                _OUTCOME: ended.outcome,
                _THREAD: ended.thread_id,
                _TURN: ended.turn,
                _FENCE: ended.fence,
            }
        )
    )
    if ended.outcome != OK:
        span.set_attribute(_ERROR, ended.reason or ended.outcome)
        if ended.outcome not in _REFUSALS:
            span.set_status(Status(StatusCode.ERROR))
    span.end()


def _known(attributes: Mapping[str, AttributeValue | None]) -> dict[str, AttributeValue]:
    return {name: value for name, value in attributes.items() if value is not None}
