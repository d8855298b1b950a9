"""A thread as a file: it comes back as it was, or not at all."""

import pytest

from engine_assistant import USE, ConflictReason, NotFound, PermissionDenied, ValidationFailed
from engine_assistant.testing.conformance.scenario import shows
from engine_assistant.testing.conformance.stage import Stage, finish, output, words


def _settled(stage: Stage) -> str:
    """Tell a story in which a bit of everything happened, and everything is over."""
    held = stage.approved()
    thread_id = held["thread_id"]
    stage.claim(held)
    figure = {"value": 12, "provenance": "reported"}
    rest = [words("Grüße \N{SNOWMAN}"), output(), finish()]
    stage.me.send_message(thread_id=thread_id, text="Thank you", key="msg-2", when_busy="queue")
    stage.bot.append_events(**held, events=rest, usage={"output": figure})
    head = len(stage.log(thread_id))
    stage.bot.compact(
        thread_id=thread_id, from_seq=1, to_seq=2, summary="She asked.", expected_head=head
    )
    stage.me.interrupt_turn(thread_id=thread_id)
    return thread_id


def _archive(stage: Stage, thread_id: str, *, there: bool = False) -> bytes:
    keeper = stage.keeper(stage.neighbour if there else None)
    return b"".join(stage.assistant.export_thread(keeper, thread_id=thread_id))


@shows("G-ARCH-01", "G-ARCH-03", "G-ARCH-04", "G-ARCH-05", "G-ARCH-14")
def a_thread_comes_back_as_it_was(stage: Stage) -> None:
    """In another tenant, byte for byte; a second time it is nothing new."""
    thread_id = _settled(stage)
    archive = _archive(stage, thread_id)
    assert archive == _archive(stage, thread_id)
    assert archive == b"".join(stage.assistant.export_thread(stage.owner(), thread_id=thread_id))
    for stranger in (stage.caller("bob", USE), stage.keeper(stage.neighbour)):
        with pytest.raises(NotFound):
            list(stage.assistant.export_thread(stranger, thread_id=thread_id))
    with pytest.raises(PermissionDenied):
        stage.assistant.import_thread(stage.owner(stage.neighbour), [archive])
    there = stage.keeper(stage.neighbour)
    for created in (True, False):
        told = stage.assistant.import_thread(there, [archive])
        assert (told.thread_id, told.events, told.created) == (thread_id, 12, created)
    assert _archive(stage, thread_id, there=True) == archive
    assert stage.stranger.get_thread(thread_id=thread_id).origin_tenant == stage.tenant
    mine, theirs = (
        ops.read_events(thread_id=thread_id).events for ops in (stage.me, stage.stranger)
    )
    assert mine == theirs
    assert stage.stranger.history(thread_id=thread_id) == stage.me.history(thread_id=thread_id)
    # It goes on where it is, and the archive of it is nothing new all the same.
    stage.stranger.send_message(thread_id=thread_id, text="And order 8?")
    assert stage.assistant.import_thread(there, [archive]).created is False
    assert list(stage.assistant.doctor(tenant=stage.neighbour)) == []


@shows("G-ARCH-08")
def a_damaged_archive_is_refused_whole(stage: Stage) -> None:
    """Cut off, changed, or out of order: the line is named, and nothing is there."""
    thread_id = _settled(stage)
    lines = _archive(stage, thread_id).splitlines(keepends=True)
    there = stage.keeper(stage.neighbour)
    for damaged in (
        lines[:-1],
        [*lines[:-1], lines[-1][:-1]],
        [*lines, lines[1]],
        [lines[0], lines[2], lines[1], *lines[3:]],
        [*lines[:3], *lines[4:]],
        [line.replace(b"refunds/create", b"refunds/delete") for line in lines],
        [line.replace(b'"claimed_fence":1', b'"claimed_fence":2') for line in lines],
        [],
    ):
        with pytest.raises(ValidationFailed) as refusal:
            stage.assistant.import_thread(there, damaged)
        assert isinstance(refusal.value.facts["line"], int)
        with pytest.raises(NotFound):
            stage.stranger.get_thread(thread_id=thread_id)
    assert stage.assistant.import_thread(there, lines).created is True


@shows("G-ARCH-06", "G-ARCH-07")
def what_is_not_over_or_is_another_is_not_imported(stage: Stage) -> None:
    """An open turn comes in only ended; a thread that is here otherwise stays as it is."""
    held = stage.running()
    thread_id = held["thread_id"]
    stage.me.send_message(thread_id=thread_id, text="And order 8?", when_busy="queue")
    stage.ask(held)
    archive = _archive(stage, thread_id)
    there = stage.keeper(stage.neighbour)
    with stage.refused(ConflictReason.ARCHIVE_UNSETTLED, thread_id):
        stage.assistant.import_thread(there, [archive])
    with pytest.raises(NotFound):
        stage.stranger.get_thread(thread_id=thread_id)
    assert stage.assistant.import_thread(there, [archive], cancel_open=True).created is True
    brought = stage.stranger.get_thread(thread_id=thread_id)
    assert (brought.turn_state, brought.queued, brought.status) == ("idle", 0, "open")
    assert stage.stranger.get_call(thread_id=thread_id, call_id="call-1").state == "cancelled"
    assert stage.state(thread_id) == "awaiting-approval"
    with stage.refused(ConflictReason.THREAD_EXISTS, thread_id):
        stage.assistant.import_thread(stage.keeper(), [_archive(stage, thread_id, there=True)])
