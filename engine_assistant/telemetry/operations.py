"""A span for each operation, and the three numbers that say how the leases fare."""

from collections.abc import Callable
from typing import Final

from opentelemetry import metrics, trace
from opentelemetry.trace import Span

from engine_assistant.model.errors import (
    Conflict,
    ConflictReason,
    NotFound,
    PermissionDenied,
    ValidationFailed,
)
from engine_assistant.model.observing import OK, Observer, OperationBegun, OperationEnded
from engine_assistant.telemetry.names import (
    FENCE,
    NAME,
    OPERATION,
    OUTCOME,
    TENANT,
    THREAD,
    TURN,
    Attributes,
    finish,
    opened,
)
from engine_assistant.version import __version__

__all__ = ["observe"]

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
        trace.get_tracer(NAME, __version__, tracer_provider),
        metrics.get_meter(NAME, __version__, meter_provider),
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
        told: Attributes = {
            OPERATION: name,
            TENANT: begun.tenant,
            THREAD: begun.thread_id,
            FENCE: begun.fence,
        }
        close = opened(self._tracer, f"{NAME}.{name}", told)

        def tell(ended: OperationEnded) -> None:
            self._finish(close(), ended)
            self._count(name, ended)

        return tell

    def _finish(self, span: Span, ended: OperationEnded) -> None:
        told = {
            OUTCOME: ended.outcome,
            THREAD: ended.thread_id,
            TURN: ended.turn,
            FENCE: ended.fence,
        }
        error = None if ended.outcome == OK else ended.reason or ended.outcome
        finish(span, told, error, fault=ended.outcome not in _REFUSALS)

    def _count(self, name: str, ended: OperationEnded) -> None:
        operation = {OPERATION: name}
        if name == _APPEND:
            self._appends.record(ended.seconds * 1000, {OUTCOME: ended.outcome})
        if ended.took_over:
            self._losses.add(1)
        if ended.reason == ConflictReason.RUN_FENCED:
            self._refusals.add(1, operation)
