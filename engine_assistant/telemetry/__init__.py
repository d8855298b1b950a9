"""Spans and metrics for OpenTelemetry. It needs `pip install 'engine-assistant[otel]'`.

Nothing else of the package imports OpenTelemetry. Where spans and metrics go is the host's affair:
this writes to its providers and sets none up.
"""

try:
    import opentelemetry.metrics
    import opentelemetry.trace  # noqa: F401 - whether it is there at all
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "this needs an extra: pip install 'engine-assistant[otel]'", name=missing.name
    ) from None

from engine_assistant.telemetry.backlog import observe_backlog
from engine_assistant.telemetry.host import observe_host
from engine_assistant.telemetry.operations import observe

__all__ = ["observe", "observe_backlog", "observe_host"]
