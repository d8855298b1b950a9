"""Gauges of what waits, as a real reader collects them."""

import pytest
from sqlalchemy import Engine

from engine_assistant import Assistant
from engine_assistant.model.service import Backlog
from engine_assistant.telemetry import observe_backlog
from engine_assistant.testing.clock import Clock
from tests.rig.stage import Stage
from tests.telemetry.sdk import Sdk

NAMES = [
    f"{what}.{figure}" for what in ("approvals", "milestones") for figure in ("waiting", "age")
]


def told(sdk: Sdk) -> dict[str, float]:
    points = {name: sdk.points(name) for name in NAMES}
    assert all(attributes == {} for series in points.values() for attributes, _ in series)
    return {name: value for name, series in points.items() for _, value in series}


@pytest.mark.guarantee("G-OTEL-10")
def test_what_waits_is_collected_with_one_question(engine: Engine, sdk: Sdk) -> None:
    clock = Clock()
    stage = Stage(engine, clock)
    asked: list[Backlog] = []

    def read() -> Backlog:
        asked.append(stage.assistant.backlog())
        return asked[-1]

    run = stage.open_turn()
    stage.propose(run, "c")
    stage.ask(run, "c")
    clock.forward(30)
    observe_backlog(read, sdk.meters)
    assert asked == []
    metrics = {metric.name: metric for metric in sdk.metrics()}
    assert len(asked) == 1
    assert {name: metric.unit for name, metric in metrics.items()} == {
        "engine_assistant.approvals.waiting": "{approval}",
        "engine_assistant.approvals.age": "s",
        "engine_assistant.milestones.waiting": "{milestone}",
        "engine_assistant.milestones.age": "s",
    }
    assert told(sdk) == {
        "approvals.waiting": 1,
        "approvals.age": 30,
        "milestones.waiting": asked[0].milestones.count,
        "milestones.age": 30,
    }


@pytest.mark.guarantee("G-OTEL-10")
def test_a_database_that_is_away_gives_no_figure_and_no_word(
    sdk: Sdk, caplog: pytest.LogCaptureFixture
) -> None:
    away = Assistant.from_url("postgresql://app@127.0.0.1:1/app?connect_timeout=1")
    observe_backlog(away.backlog, sdk.meters)
    assert told(sdk) == {}
    assert not caplog.records
    away.engine.dispose()
