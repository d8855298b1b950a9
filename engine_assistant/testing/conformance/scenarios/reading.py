"""Reading: bounded, in order, and without a gap."""

import json

from engine_assistant.testing.conformance.scenario import shows
from engine_assistant.testing.conformance.stage import Stage, words


@shows("G-OPS-17", "G-OPS-18", "G-OPS-06")
def pages_of_events_join_without_a_gap(stage: Stage) -> None:
    """A page is a range of numbers, from the front or from the end, as objects or as bytes."""
    held = stage.running()
    thread_id = held["thread_id"]
    stage.bot.append_events(**held, events=[words(str(n)) for n in range(9)])
    seen: list[int | None] = []
    page = stage.me.read_events(thread_id=thread_id, after=0, limit=4)
    while page.events:
        seen += [event.seq for event in page.events]
        assert (page.last_seq, page.head_seq) == (len(seen), 11)
        page = stage.me.read_events(thread_id=thread_id, after=page.last_seq, limit=4)
    assert seen == list(range(1, 12))
    last = stage.me.read_events(thread_id=thread_id, last=3)
    assert [event.seq for event in last.events] == [9, 10, 11]
    told = json.loads(stage.me.read_events_json(thread_id=thread_id, last=3))
    assert [event["text"] for event in told["events"]] == ["6", "7", "8"]
    assert (told["last_seq"], told["head_seq"]) == (11, 11)
    for reader in (stage.auditor, stage.bot):
        assert reader.read_events(thread_id=thread_id, last=3) == last


@shows("G-OPS-07", "G-OPS-08")
def pages_of_threads_join_without_a_gap(stage: Stage) -> None:
    """Threads are listed by newest activity, and every one is listed once."""
    made = [stage.me.create_thread(title=str(n)).id for n in range(5)]
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = stage.me.list_threads(limit=2, cursor=cursor)
        seen += [thread.id for thread in page.items]
        cursor = page.cursor
        if cursor is None:
            break
    assert sorted(seen) == sorted(made)
    assert len(seen) == len(made)
    if stage.setup.clock is not None:
        stage.setup.clock.forward(1)
    stage.me.send_message(thread_id=made[0], text="Hello")
    assert stage.me.list_threads(limit=1).items[0].id == made[0]
    assert stage.me.list_threads(status="closed").items == ()
