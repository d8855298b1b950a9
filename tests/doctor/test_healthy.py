"""A record that only the engine wrote is clean."""

from engine_assistant import Assistant
from engine_assistant.doctor import Report
from tests.rig.record import Record


def test_everything_the_engine_writes_is_clean(record: Record) -> None:
    reports: list[Report] = []
    found = list(Assistant(record.engine).doctor(progress=reports.append))
    assert found == []
    assert reports[-1].threads == len(record.threads) + 1
