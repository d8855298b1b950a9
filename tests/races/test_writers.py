"""Many writers share one run: exactly 1 to N, no batch lost or torn.

`ENGINE_ASSISTANT_TEST_BATCHES` is how many batches each of the 64 writers appends, 3 by default.
"""

import os
from collections import Counter

import pytest

from engine_assistant import Assistant
from tests.rig import writers
from tests.rig.duels import Arena
from tests.rig.sides import ROBOT

PROCESSES = 4
IN_EACH = 16
BATCHES = int(os.environ.get("ENGINE_ASSISTANT_TEST_BATCHES", "3"))


@pytest.mark.guarantee("G-RACE-29")
def test_64_writers_in_4_processes_lose_nothing_and_tear_nothing(arena: Arena) -> None:
    scene = arena.running()
    url = arena.url.render_as_string(hide_password=False)
    told = writers.race(
        [
            writers.start(scene, url, IN_EACH * number, IN_EACH, BATCHES)
            for number in range(PROCESSES)
        ]
    )
    wanted = [(w, b) for w in range(PROCESSES * IN_EACH) for b in range(BATCHES)]
    assert sorted((w, b) for w, b, _, _ in told) == wanted

    log = {event.seq: _mark(event) for event in _whole_log(arena, scene.thread_id)}
    end = arena.head(scene.thread_id).last_seq
    assert list(log) == list(range(1, end + 1))
    # The ranges that the writers were told lie end to end, from the turn's first two events on.
    at = 2
    for writer, batch, first, last in sorted(told, key=lambda line: line[2]):
        assert first == at + 1
        wrote = [_mark_of(fields) for fields in writers.events_of(writer, batch)]
        assert [log[seq] for seq in range(first, last + 1)] == wrote
        at = last
    assert at == end
    calls = Counter(call.state.value for call in _all_calls(arena, scene.thread_id))
    assert calls == {"done": sum((w + b) % 3 == 0 for w, b in wanted)}


def _mark(event: object) -> tuple[object, object]:
    return type(event).__name__, getattr(event, "call_id", None) or getattr(event, "text", None)


def _mark_of(fields: writers.Fields) -> tuple[object, object]:
    name = "".join(part.title() for part in str(fields["type"]).split("-"))
    return name, fields.get("call_id") or fields["text"]


def _whole_log(arena: Arena, thread_id: str):
    robot = Assistant(arena.engine).acting_as(ROBOT)
    after = 0
    while True:
        page = robot.read_events(thread_id=thread_id, after=after, limit=1000)
        yield from page.events
        after = page.last_seq
        if after == page.head_seq:
            return


def _all_calls(arena: Arena, thread_id: str):
    cursor = None
    while True:
        page = arena.bot.list_calls(thread_id=thread_id, limit=1000, cursor=cursor)
        yield from page.items
        cursor = page.cursor
        if cursor is None:
            return
