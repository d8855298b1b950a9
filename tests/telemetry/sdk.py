"""The real SDK, keeping what it was told."""

from collections.abc import Sequence

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    HistogramDataPoint,
    InMemoryMetricReader,
    Metric,
)
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from engine_assistant import Observer
from engine_assistant.host import HostObserver
from engine_assistant.telemetry import observe, observe_host


class Sdk:
    """A tracer, a meter, and observers that write to them."""

    def __init__(self) -> None:
        self._spans, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        self._tracers = TracerProvider(shutdown_on_exit=False)
        self._tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self.meters = MeterProvider([self._reader], shutdown_on_exit=False)
        self.tracer = self._tracers.get_tracer("host")
        self.observer: Observer = observe(self._tracers, self.meters)

    def of_host(self, *, content: bool = False) -> HostObserver:
        return observe_host(self._tracers, self.meters, content=content)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self._spans.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def last(self, name: str) -> ReadableSpan:
        return self.named(f"engine_assistant.{name}")[-1]

    def metrics(self) -> Sequence[Metric]:
        data = self._reader.get_metrics_data()
        return [
            metric
            for resource in ([] if data is None else data.resource_metrics)
            for scope in resource.scope_metrics
            for metric in scope.metrics
        ]

    def points(self, name: str) -> list[tuple[dict[str, object], float]]:
        """Return the attributes and the number of each series of a metric."""
        return [
            (
                dict(point.attributes or {}),
                point.count if isinstance(point, HistogramDataPoint) else point.value,
            )
            for metric in self.metrics()
            if metric.name in (name, f"engine_assistant.{name}")
            for point in metric.data.data_points
        ]
