"""A long thread takes no more memory than a short one; real conversations go there and back."""

import gc
import os
import tracemalloc
from collections.abc import Callable
from itertools import islice

import pytest
import sqlalchemy as sa

from engine_assistant import USE, Assistant, Caller
from engine_assistant.cli.replay import Order, record_files
from engine_assistant.cli.screen import Screen
from tests.rig.archives import archive_of, keeper
from tests.rig.record import Record, words
from tests.rig.replays import AIRLINE, WRITES

SHORT, LONG = 200, 2_200
BATCH = 200
SPOOL = 1024 * 1024
"""How much of an archive waits in memory."""

GIVEN = "ENGINE_ASSISTANT_TEST_CONVERSATIONS"
CONVERSATIONS = int(os.environ.get(GIVEN, "12"))
"""How many conversations go round; there are 100."""


def _thread(record: Record, events: int) -> str:
    """Make a thread of words, about 2 KiB each."""
    story = record.open(f"{events} events").say().take()
    said = words(*("word " * 400 for _ in range(BATCH)))
    for _ in range(events // BATCH):
        story.write(*said)
    story.rest()
    return story.thread_id


@pytest.fixture
def record(engine: sa.Engine) -> Record:
    return Record(engine)


def _peak(work: Callable[[], object]) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.guarantee("G-ARCH-11")
def test_memory_does_not_grow_with_the_thread(record: Record, tmp_path) -> None:
    def export(thread_id: str) -> None:
        with (tmp_path / thread_id).open("wb") as file:
            file.writelines(record.assistant.export_thread(keeper(), thread_id=thread_id))

    def bring_in(thread_id: str) -> None:
        with (tmp_path / thread_id).open("rb") as file:
            pieces = iter(lambda: file.read(65_536), b"")
            assert record.assistant.import_thread(keeper("elsewhere"), pieces).created

    short, long = _thread(record, SHORT), _thread(record, LONG)
    export(short)
    out = _peak(lambda: export(short)), _peak(lambda: export(long))
    size = (tmp_path / long).stat().st_size
    into = _peak(lambda: bring_in(short)), _peak(lambda: bring_in(long))
    assert size > 4_000_000
    assert out[1] < out[0] + SPOOL + 200_000
    assert into[1] < into[0] + SPOOL + 200_000
    assert archive_of(record.assistant, long) == archive_of(record.assistant, long, "elsewhere")


@pytest.mark.guarantee("G-ARCH-03")
def test_conversations_go_to_the_other_database_and_back(
    sqlite_url: str, postgres_url: str, tmp_path
) -> None:
    if not AIRLINE.exists():
        pytest.skip("the conversations are not at ../shared/data/conversations")
    here, there = Assistant.from_url(sqlite_url), Assistant.from_url(postgres_url)
    some = tmp_path / "some.jsonl"
    with AIRLINE.open("rb") as file:
        some.write_bytes(b"".join(islice(file, CONVERSATIONS)))
    order = Order((some,), frozenset(WRITES), "airline", "usr_flyer")
    assert record_files(Screen(json=True), here, order).conversations == CONVERSATIONS
    flyer = Caller(tenant="airline", principal="usr_flyer", permissions={USE})
    archives = tmp_path / "flyer"
    with archives.open("wb") as file:
        file.writelines(here.export_subject(flyer, subject="usr_flyer"))
    with archives.open("rb") as file:
        moved = list(there.import_threads(keeper("flights"), file))
    assert len(moved) == CONVERSATIONS
    assert all(one.created for one in moved)
    assert list(there.doctor()) == []
    back = there.export_subject(keeper("flights"), subject="usr_flyer")
    with archives.open("rb") as file:
        assert all(line == file.readline() for line in back)
        assert file.read() == b""
    home = there.export_subject(keeper("flights"), subject="usr_flyer")
    assert not any(one.created for one in here.import_threads(keeper("airline"), home))
    here.engine.dispose()
    there.engine.dispose()
