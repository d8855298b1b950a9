"""Gauges of what waits: asked for when metrics are collected, and not before."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation

from engine_assistant.model.service import Backlog
from engine_assistant.telemetry.names import NAME
from engine_assistant.version import __version__

__all__ = ["observe_backlog"]

_FRESH: Final = 1.0
"""Seconds for which one answer serves the gauges that are collected together."""

_Figure: TypeAlias = Callable[[Backlog], float]


def observe_backlog(
    read: Callable[[], Backlog], meter_provider: metrics.MeterProvider | None = None
) -> None:
    """Register gauges of how much waits for people and for the relay, and for how long.

    One answer serves all of them. When `read` raises, as while the database is away, they have no
    figure and nothing is logged.

    Args:
        read: `Assistant.backlog`. It is called by whoever collects, in their thread. From an
            `AsyncAssistant`: `lambda: asyncio.run_coroutine_threadsafe(assistant.backlog(),
            loop).result(5)`, where metrics are collected outside of the loop.
        meter_provider: where metrics go; default is the process's.
    """
    meter = metrics.get_meter(NAME, __version__, meter_provider)
    asked = _Asked(read)
    for name, unit, description, figure in _GAUGES:
        meter.create_observable_gauge(
            name, callbacks=[asked.callback(figure)], unit=unit, description=description
        )


_GAUGES: Final[tuple[tuple[str, str, str, _Figure], ...]] = (
    (
        "engine_assistant.approvals.waiting",
        "{approval}",
        "Calls that people have been asked about and can still decide.",
        lambda backlog: backlog.approvals.count,
    ),
    (
        "engine_assistant.approvals.age",
        "s",
        "For how long the oldest of them has waited.",
        lambda backlog: backlog.approvals.age,
    ),
    (
        "engine_assistant.milestones.waiting",
        "{milestone}",
        "Milestones that no relay has handed out.",
        lambda backlog: backlog.milestones.count,
    ),
    (
        "engine_assistant.milestones.age",
        "s",
        "For how long the oldest of them has waited.",
        lambda backlog: backlog.milestones.age,
    ),
)


class _Asked:
    """The newest answer, for as long as it is fresh; None if there was none."""

    def __init__(self, read: Callable[[], Backlog]) -> None:
        self._read = read
        self._answer: Backlog | None = None
        self._until = 0.0

    def callback(self, figure: _Figure) -> Callable[[CallbackOptions], Iterable[Observation]]:
        """Return what a gauge asks for its figure."""

        def ask(options: CallbackOptions) -> Iterator[Observation]:
            del options
            answer = self._fresh()
            if answer is not None:
                yield Observation(figure(answer))

        return ask

    def _fresh(self) -> Backlog | None:
        if time.monotonic() >= self._until:
            try:
                self._answer = self._read()
            except Exception:  # noqa: BLE001 - a figure that is not to be had is no figure
                self._answer = None
            self._until = time.monotonic() + _FRESH
        return self._answer
