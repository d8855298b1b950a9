"""Cursors, numbers, ids and limits that are well formed and wrong all the same."""

from collections.abc import Callable

import pytest

from engine_assistant import (
    Assistant,
    Conflict,
    ConflictReason,
    Limits,
    NotFound,
    ValidationFailed,
)
from engine_assistant.model.cursors import write_cursor
from tests.rig.stage import (
    ALICE,
    INPUT,
    ROBOT,
    Play,
    Stage,
    Values,
    delta,
    dump,
    everything_said,
    propose,
    refused,
)

MARKER = "hunter2"


@pytest.mark.guarantee("G-INPUT-12")
def test_a_cursor_is_good_for_its_own_list_only(stage: Stage) -> None:
    run = stage.open_turn()
    stage.me.create_thread()
    for call_id in ("c1", "c2"):
        stage.propose(run, call_id)
        stage.ask(run, call_id)
    thread_id = str(run["thread_id"])
    lists: dict[str, Callable[..., object]] = {
        "threads": lambda **more: stage.me.list_threads(limit=1, **more),
        "open threads": lambda **more: stage.me.list_threads(limit=1, status="open", **more),
        "calls": lambda **more: stage.me.list_calls(thread_id=thread_id, limit=1, **more),
        "waiting calls": lambda **more: stage.me.list_calls(
            thread_id=thread_id, limit=1, state="awaiting-approval", **more
        ),
        "inbox": lambda **more: stage.me.list_approvals(limit=1, **more),
        "whole inbox": lambda **more: stage.me.list_approvals(limit=1, state=None, **more),
    }
    cursors = {name: lists[name]().cursor for name in lists}
    for name, cursor in cursors.items():
        assert cursor is not None
        for other, read in lists.items():
            if other == name:
                assert read(cursor=cursor).items
                continue
            with pytest.raises(ValidationFailed):
                read(cursor=cursor)
        for at in range(0, len(cursor), 7):
            tampered = cursor[:at] + ("A" if cursor[at] != "A" else "B") + cursor[at + 1 :]
            with pytest.raises(ValidationFailed):
                lists[name](cursor=tampered)
    # Another person's list has another cursor.
    with pytest.raises(ValidationFailed):
        stage.bob.list_threads(cursor=cursors["threads"])


@pytest.mark.guarantee("G-INPUT-12")
@pytest.mark.parametrize(
    "place",
    [
        (MARKER, "x"),
        ("2030-02-30T00:00:00.000Z", "x"),
        ("2030-01-01T00:00:00.000Z", "\0"),
        ("2030-01-01T00:00:00.000Z",),
        ("2030-01-01T00:00:00.000Z", 1),
        (1, "x"),
        (),
    ],
)
def test_a_cursor_that_somebody_computed_is_refused_like_any_other(
    stage: Stage, place: tuple[str | int, ...]
) -> None:
    forged = write_cursor(("threads", "acme", "usr_alice", None), place)
    with pytest.raises(ValidationFailed) as refusal:
        stage.me.list_threads(cursor=forged)
    assert MARKER not in everything_said(refusal.value)


@pytest.mark.guarantee("G-INPUT-12")
@pytest.mark.parametrize("seq", [2**63, -1, True, 1.5])
def test_a_computed_cursor_holds_no_number_that_a_column_cannot(play: Play, seq: int) -> None:
    forged = write_cursor(("calls", "acme", play.thread_id, None), (seq, "x"))
    with pytest.raises(ValidationFailed):
        play.stage.me.list_calls(thread_id=play.thread_id, cursor=forged)


@pytest.mark.guarantee("G-INPUT-13")
def test_numbers_as_large_as_a_column_holds_are_answered(play: Play) -> None:
    most, stage = 2**63 - 1, play.stage
    page = stage.me.read_events(thread_id=play.thread_id, after=most, limit=1000)
    assert (page.events, page.last_seq) == ((), page.head_seq)
    before = dump(stage.engine)
    run = {**play.run, "fence": most}
    for attempt in (
        lambda: stage.bot.beat_run(**run),
        lambda: stage.bot.acquire_run(**run),
        lambda: stage.append(run, delta("x"), batch=most),
        lambda: stage.append(run, propose("new")),
        lambda: stage.ask(run, "running"),
        lambda: stage.claim(run, "approved", attempt=most),
        lambda: stage.bot.settle_execution(
            thread_id=play.thread_id, call_id="executing", claimed_fence=most, output=1
        ),
    ):
        with refused(ConflictReason.RUN_FENCED):
            attempt()
    with refused(ConflictReason.BATCH_GAP, expected=1):
        stage.append(play.run, delta("x"), batch=most)
    assert stage.bot.release_run(**run) is False
    assert dump(stage.engine) == before


@pytest.mark.guarantee("G-INPUT-14")
@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("assistant/send-message", {"attachment_ids": ["no-such-file"]}),
        ("assistant/claim-execution", {"call_id": "no-such-call"}),
        ("assistant/settle-execution", {"call_id": "no-such-call"}),
        ("assistant/get-call", {"call_id": "no-such-call"}),
        ("assistant/resolve-approval", {"call_id": "no-such-call"}),
        ("assistant/request-approval", {"call_id": "no-such-call"}),
        ("assistant/resolve-approval", {"digest": "0" * 64}),
        ("assistant/resolve-approval", {"version": "v2"}),
        ("assistant/claim-execution", {"input": {**INPUT, "order": 1234567890123456788}}),
        ("assistant/claim-execution", {"operation": "refunds/delete"}),
        ("assistant/claim-execution", {"version": "v2"}),
    ],
)
def test_well_formed_and_wrong_is_a_typed_refusal_too(play: Play, name: str, wrong: Values) -> None:
    before = dump(play.stage.engine)
    with pytest.raises((NotFound, Conflict)) as refusal:
        play.call(name, {**play.right(name), **wrong})
    assert dump(play.stage.engine) == before
    said = everything_said(refusal.value)
    assert "123456789012345678" not in said
    assert "refunds" not in said


@pytest.mark.guarantee("G-INPUT-14")
def test_files_of_another_thread_or_tenant_cannot_be_attached(play: Play) -> None:
    stage = play.stage
    elsewhere = stage.me.create_thread().id
    before = dump(stage.engine)
    send = {"thread_id": elsewhere, "text": MARKER}
    for ids in ([play.file_id], [play.file_id, play.file_id], ["no-such-file"]):
        with pytest.raises(NotFound):
            stage.me.send_message(**send, attachment_ids=ids)
    assert dump(stage.engine) == before


@pytest.mark.guarantee("G-INPUT-15")
def test_a_host_may_lower_each_limit_and_raise_none(play: Play) -> None:
    low = Assistant(
        play.stage.engine,
        limits=Limits(
            id_bytes=40,
            title_bytes=4,
            message_bytes=4,
            reason_bytes=4,
            nesting=2,
            batch_events=1,
            batch_bytes=60,
            event_bytes=50,
            page=2,
            approvers=1,
            integer_digits=3,
        ),
    )
    me, bot = low.acting_as(ALICE), low.acting_as(ROBOT)
    me.create_thread(title="four", key="k")
    bot.append_events(**play.run, events=[{"type": "data", "kind": "k", "payload": [[999]]}])
    before = dump(play.stage.engine)
    fenced = dict(play.run)
    ask = {**fenced, "call_id": "running", "operation": "o", "version": "v", "expires_in": 9.0}
    for attempt in (
        lambda: me.create_thread(title="fours"),
        lambda: me.create_thread(key="k" * 41),
        lambda: me.send_message(thread_id=play.idle, text="fours"),
        lambda: me.list_threads(limit=3),
        lambda: me.read_events(thread_id=play.thread_id, last=3),
        lambda: bot.append_events(**fenced, events=[delta("a"), delta("b")]),
        lambda: bot.append_events(**fenced, events=[delta("a" * 30)]),
        lambda: bot.append_events(
            **fenced, events=[{"type": "data", "kind": "k", "payload": 1000}]
        ),
        lambda: bot.append_events(
            **fenced, events=[{"type": "data", "kind": "k", "payload": [[[]]]}]
        ),
        lambda: bot.request_approval(**ask, approvers=["a", "b"]),
        lambda: bot.request_approval(**ask, why="fours"),
        # A request repeats the input and does not fit into so small an event.
        lambda: bot.request_approval(**ask),
    ):
        with pytest.raises(ValidationFailed):
            attempt()
    assert dump(play.stage.engine) == before
    for raised in (
        {"id_bytes": 129},
        {"page": 1001},
        {"nesting": 0},
        {"page": True},
        {"page": "9"},
    ):
        with pytest.raises(ValidationFailed):
            Limits(**raised)
