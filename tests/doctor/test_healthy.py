"""A record that only the engine wrote is clean, through every door."""

import asyncio
import gc
import tracemalloc

import pytest
import sqlalchemy as sa
from sqlalchemy import Engine

from engine_assistant import AsyncAssistant, NotFound, ValidationFailed
from engine_assistant.doctor import Code, Finding, Report, examine, reading_engine
from tests.rig.patient import Patient, change
from tests.rig.record import TENANT, Record, output, words

BATCH = 250


@pytest.mark.guarantee("G-DOCTOR-01")
def test_everything_the_engine_writes_is_clean(walked: Record) -> None:
    reports: list[Report] = []
    assert list(walked.assistant.doctor(progress=reports.append)) == []
    assert len(reports) == reports[-1].threads + 1
    assert reports[-1].threads == len(walked.threads) + 1
    with walked.engine.connect() as connection:
        for table in ("events", "tool_calls", "approvals"):
            count = connection.scalar(sa.text(f"SELECT count(*) FROM assistant_{table}"))
            assert getattr(reports[-1], table.removeprefix("tool_")) == count > 0
    assert reports[-1].findings == reports[-1].unknown_events == 0


def _through_asyncio(url: str, **only: str) -> tuple[list[Finding], Report]:
    reports: list[Report] = []

    async def examined() -> list[Finding]:
        assistant = AsyncAssistant.from_url(url)
        try:
            doctor = assistant.doctor(**only, progress=reports.append)
            return [finding async for finding in doctor]
        finally:
            await assistant.engine.dispose()

    return asyncio.run(examined()), reports[-1]


@pytest.mark.guarantee("G-DOCTOR-07")
def test_both_doors_say_the_same(record: Record, async_database_url: str) -> None:
    with record.engine.begin() as connection:
        connection.execute(sa.text("UPDATE assistant_threads SET turn = 9"))
    found = list(record.assistant.doctor())
    assert len({finding.thread_id for finding in found}) == len(record.threads) + 1
    assert _through_asyncio(async_database_url)[0] == found
    mine = [finding for finding in found if finding.tenant == TENANT]
    assert _through_asyncio(async_database_url, tenant=TENANT)[0] == mine == found[: len(mine)]


@pytest.mark.guarantee("G-DOCTOR-07")
def test_one_thread_alone_is_examined(patient: Patient) -> None:
    patient.suffer("everyday", change("threads", "turn = 9"))
    patient.suffer("quorum", change("threads", "turn = 9"))
    found, report = patient.examined("quorum")
    assert [(finding.code, finding.where) for finding in found] == [(Code.THREAD_ROW, "thread")]
    assert (report.threads, report.findings) == (1, 1)
    thread_id = patient.record.threads["quorum"]
    assert list(examine(patient.connection, tenant=TENANT, thread_id=thread_id)) == found


@pytest.mark.guarantee("G-DOCTOR-07")
def test_a_thread_that_is_not_there_is_not_called_healthy(walked: Record) -> None:
    for only in ({"thread_id": "nope"}, {"tenant": "other", "thread_id": walked.threads["quorum"]}):
        with pytest.raises(NotFound):
            list(walked.assistant.doctor(**only))


@pytest.mark.guarantee("G-DOCTOR-08")
def test_a_finding_repeats_nothing_that_was_written(patient: Patient) -> None:
    secret = "S3CRET"
    for name in ("everyday", "running", "closed running"):
        patient.suffer(
            name,
            change("events", f"body = replace(body, 'type', '{secret}')"),
            change("tool_calls", f"result = '{secret}', version = '{secret}'"),
            change("approvals", f"reason = '{secret}', nonce = '{secret}'"),
            change("outbox", f"payload = '{secret}'"),
            change("files", f"filename = '{secret}'"),
        )
    found, _ = patient.examined()
    assert {Code.UNREADABLE, Code.CALL_STRAY, Code.MILESTONE} <= {finding.code for finding in found}
    assert [finding for finding in found if secret in finding.model_dump_json()] == []


@pytest.fixture
def long_thread(engine: Engine) -> Record:
    """20,000 events on one thread: most are words, some are calls."""
    record = Record(engine)
    story = record.open("long").say().take()
    for number in range(20_000 // BATCH):
        call = f"c{number}"
        proposal = {"type": "tool-input", "call_id": call, "tool": "look", "step": "s1"}
        said = words(*("word " * 20 for _ in range(BATCH - 2)))
        story.write({**proposal, "input": "x" * 5_000}, *said, output(call, "y" * 20_000))
    story.rest()
    return record


def _peak(record: Record) -> tuple[Report, int]:
    reports: list[Report] = []
    with reading_engine(record.engine).connect() as connection:
        gc.collect()
        tracemalloc.start()
        try:
            assert list(examine(connection, progress=reports.append)) == []
            return reports[-1], tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


@pytest.mark.guarantee("G-DOCTOR-09")
def test_a_long_thread_is_not_held_in_memory(long_thread: Record) -> None:
    report, peak = _peak(long_thread)
    with long_thread.engine.connect() as connection:
        size = connection.scalar(sa.text("SELECT sum(length(body)) FROM assistant_events"))
    assert report.events > 20_000
    assert size > 4_000_000
    assert peak < 2_500_000


@pytest.mark.guarantee("G-DOCTOR-10")
def test_a_connection_without_a_snapshot_is_refused(postgres_record: Record) -> None:
    for level in ("READ COMMITTED", "AUTOCOMMIT"):
        engine = postgres_record.engine.execution_options(isolation_level=level)
        with engine.connect() as connection, pytest.raises(ValidationFailed):
            list(examine(connection))
