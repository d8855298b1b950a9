"""Opening, finding, listing, closing threads, and the files that may go with them."""

from datetime import timedelta

import pytest
import sqlalchemy as sa

from engine_assistant import USE, Assistant, Caller, ConflictReason, NotFound
from engine_assistant.context import Context
from engine_assistant.testing.clock import START
from tests.rig.stage import ALICE, AUDITOR, BOB, Play, Stage, delta, dump, refused


@pytest.mark.guarantee("G-OPS-04")
def test_a_new_thread_is_the_callers_own_open_idle_and_empty(stage: Stage) -> None:
    thread = stage.me.create_thread()
    assert (thread.subject_id, thread.title, thread.key) == ("usr_alice", None, None)
    assert (thread.status, thread.turn_state, thread.turn) == ("open", "idle", 0)
    assert (thread.last_seq, thread.closed_at) == (0, None)
    assert thread.created_at == thread.last_active_at == START
    assert len(thread.id) == 26
    assert stage.me.get_thread(thread_id=thread.id) == thread
    page = stage.me.read_events(thread_id=thread.id)
    assert (page.events, page.last_seq, page.head_seq) == ((), 0, 0)
    assert stage.me.create_thread().id != thread.id


@pytest.mark.guarantee("G-OPS-05")
def test_a_key_opens_one_thread_for_ever(stage: Stage) -> None:
    first = stage.me.create_thread(title="Refund", key="k")
    stage.clock.forward(60)
    before = dump(stage.engine)
    assert stage.me.create_thread(title="Refund", key="k") == first
    for title in ("Another", None, "refund"):
        with refused(ConflictReason.KEY_REUSED, thread_id=first.id):
            stage.me.create_thread(title=title, key="k")
    assert dump(stage.engine) == before
    assert stage.bob.create_thread(title="Another", key="k").id != first.id
    stage.me.close_thread(thread_id=first.id)
    assert stage.me.create_thread(title="Refund", key="k").status == "closed"


@pytest.mark.guarantee("G-OPS-05")
def test_a_key_that_was_taken_between_look_and_write_answers_the_first_thread(
    postgres_url: str,
) -> None:
    """The clock stands between them, so another creator can be let in there, and commits."""
    from engine_assistant import make_engine

    engine = make_engine(postgres_url)
    rival = Assistant(engine).acting_as(ALICE)
    first = []

    def clock() -> object:
        if not first:
            first.append(rival.create_thread(title="Refund", key="k"))
        return START

    late = Assistant(engine, clock=clock).acting_as(ALICE)
    assert late.create_thread(title="Refund", key="k").id == first[0].id
    first.clear()
    rival.create_thread(title="x", key="other")
    with refused(ConflictReason.KEY_REUSED):
        late.create_thread(title="Another", key="k")
    engine.dispose()


@pytest.mark.guarantee("G-OPS-06")
def test_reading_needs_no_ownership_with_audit_and_changes_nothing(stage: Stage) -> None:
    run = stage.open_turn()
    thread_id = str(run["thread_id"])
    auditor = stage.assistant.acting_as(AUDITOR)
    before = dump(stage.engine)
    assert auditor.get_thread(thread_id=thread_id) == stage.me.get_thread(thread_id=thread_id)
    assert auditor.read_events(thread_id=thread_id).head_seq == 2
    assert stage.bot.read_events(thread_id=thread_id).head_seq == 2
    for read in (stage.bob.get_thread, stage.bob.read_events, stage.bob.list_calls):
        with pytest.raises(NotFound):
            read(thread_id=thread_id)
    assert dump(stage.engine) == before


@pytest.mark.guarantee("G-OPS-07")
def test_threads_are_listed_by_newest_activity_then_by_id(stage: Stage) -> None:
    made = []
    for group in range(3):
        stage.clock.forward(1)
        made += [(group, stage.me.create_thread().id) for _ in range(3)]
    expected = [one for _, one in sorted(made, reverse=True)]
    assert [one.id for one in stage.me.list_threads().items] == expected
    # Activity is a turn that begins or rests; deltas in between move nothing.
    oldest = expected[-1]
    stage.clock.forward(1)
    stage.me.send_message(thread_id=oldest, text="Hello")
    run = stage.take(oldest)
    began = stage.me.list_threads(limit=1).items[0]
    assert (began.id, began.last_active_at) == (oldest, START + timedelta(seconds=4))
    stage.clock.forward(1)
    stage.append(run, delta("x"))
    assert stage.me.get_thread(thread_id=oldest).last_active_at == began.last_active_at
    stage.rest(run)
    rested = stage.me.get_thread(thread_id=oldest).last_active_at
    assert rested == began.last_active_at + timedelta(seconds=1)


@pytest.mark.guarantee("G-OPS-08")
@pytest.mark.parametrize("limit", [1, 2, 3, 7, 50])
def test_pages_of_threads_join_without_a_gap_or_a_repeat(stage: Stage, limit: int) -> None:
    ids = set()
    for at in range(7):
        stage.clock.forward(at % 2)
        ids.add(stage.me.create_thread().id)
    stage.bob.create_thread()
    seen, cursor, pages = [], None, 0
    while True:
        page = stage.me.list_threads(limit=limit, cursor=cursor)
        seen += [one.id for one in page.items]
        pages += 1
        cursor = page.cursor
        if cursor is None:
            break
        assert len(page.items) == limit
    assert (len(seen), set(seen)) == (7, ids)
    assert pages == -(-7 // limit)
    assert seen == [one.id for one in stage.me.list_threads().items]


@pytest.mark.guarantee("G-OPS-07")
def test_threads_are_listed_by_status_and_subject(stage: Stage) -> None:
    closed, still_open = stage.me.create_thread(), stage.me.create_thread()
    stage.me.close_thread(thread_id=closed.id)
    for status, expected in (("open", still_open.id), ("closed", closed.id)):
        assert [one.id for one in stage.me.list_threads(status=status).items] == [expected]
    auditor = stage.assistant.acting_as(AUDITOR)
    assert auditor.list_threads().items == ()
    assert len(auditor.list_threads(subject="usr_alice").items) == 2
    assert stage.me.list_threads(subject="usr_alice") == stage.me.list_threads()


@pytest.mark.guarantee("G-OPS-09")
def test_closing_ends_everything_for_ever_and_twice_is_once(play: Play) -> None:
    stage, thread_id = play.stage, play.thread_id
    inputs = {name: play.right(name) for name in CLOSED_TO}
    stage.clock.forward(1)
    closed = stage.me.close_thread(thread_id=thread_id)
    assert (closed.status, closed.closed_at) == ("closed", stage.clock.now)
    assert closed.turn_state == "idle"
    assert stage.types(play.run)[-5:] == [*["call-closed"] * 4, "turn-finish"]
    states = {one.call_id: one.state for one in stage.me.list_calls(thread_id=thread_id).items}
    assert states == {
        **dict.fromkeys(("running", "executing"), "unknown"),
        **dict.fromkeys(("waiting", "approved"), "cancelled"),
    }
    before = dump(stage.engine)
    stage.clock.forward(60)
    assert stage.me.close_thread(thread_id=thread_id) == closed
    for name, values in inputs.items():
        with refused(ConflictReason.THREAD_CLOSED):
            play.call(name, {**values, "thread_id": thread_id})
    assert stage.bot.release_run(**play.run) is False
    assert stage.me.read_events(thread_id=thread_id).head_seq == closed.last_seq
    assert dump(stage.engine) == before


CLOSED_TO = [
    "assistant/authorize-file-upload",
    "assistant/send-message",
    "assistant/interrupt-turn",
    "assistant/resolve-approval",
    "assistant/register-file",
    "assistant/append-events",
    "assistant/acquire-run",
    "assistant/beat-run",
    "assistant/request-approval",
    "assistant/claim-execution",
]


@pytest.mark.guarantee("G-OPS-09")
def test_closing_an_idle_thread_appends_nothing(stage: Stage) -> None:
    thread = stage.me.create_thread()
    assert stage.me.close_thread(thread_id=thread.id).last_seq == 0
    for stranger in (stage.bob, stage.assistant.acting_as(AUDITOR)):
        with pytest.raises(NotFound):
            stranger.close_thread(thread_id=thread.id)


@pytest.mark.guarantee("G-OPS-10")
def test_an_upload_is_authorised_for_the_owner_and_writes_nothing(stage: Stage) -> None:
    thread = stage.me.create_thread()
    before = dump(stage.engine)
    assert stage.me.authorize_file_upload(thread_id=thread.id) == thread
    for stranger in (stage.bob, stage.assistant.acting_as(AUDITOR)):
        with pytest.raises(NotFound):
            stranger.authorize_file_upload(thread_id=thread.id)
    assert dump(stage.engine) == before


@pytest.mark.guarantee("G-OPS-11")
def test_a_message_keeps_its_files_as_they_stood(stage: Stage) -> None:
    thread = stage.me.create_thread()
    given = {"filename": "a.pdf", "content_type": "application/pdf", "size": 7, "sha256": "a" * 64}
    files = [stage.bot.register_file(thread_id=thread.id, **given) for _ in range(2)]
    assert files[0].id != files[1].id
    ids = [files[1].id, files[0].id]
    stage.me.send_message(thread_id=thread.id, text="two", attachment_ids=ids)
    message = stage.me.read_events(thread_id=thread.id).events[0]
    assert [part.id for part in message.files] == ids
    assert message.files[0].model_dump() == {"id": ids[0], **given}
    # What the files table says later changes no message.
    with stage.engine.begin() as connection:
        connection.execute(sa.text("UPDATE assistant_files SET filename = 'other'"))
    assert stage.me.read_events(thread_id=thread.id).events[0] == message


@pytest.mark.guarantee("G-OPS-11")
@pytest.mark.parametrize(("ids", "files"), [(None, None), ([], ())])
def test_no_files_and_an_empty_list_are_told_apart(
    stage: Stage, ids: list[str] | None, files: object
) -> None:
    thread = stage.me.create_thread()
    stage.me.send_message(thread_id=thread.id, text="hi", attachment_ids=ids)
    assert stage.me.read_events(thread_id=thread.id).events[0].files == files
    body = stage.me.read_events_json(thread_id=thread.id)
    assert (b'"files":[]' in body) is (ids == [])


@pytest.mark.guarantee("G-OPS-12")
def test_a_composing_module_asks_without_a_permission_and_owns_nothing_more(play: Play) -> None:
    from engine_assistant import OPERATIONS

    stage = play.stage
    nobody = Caller("acme", "usr_bob", ())
    with stage.engine.begin() as connection:
        ctx: Context = stage.assistant.bind(connection, nobody).context
        create = OPERATIONS["assistant/create-thread"]
        mine = create.within(ctx, create.parse({"title": "Mine"}))
        assert mine.subject_id == "usr_bob"
        read = OPERATIONS["assistant/get-thread"]
        assert read.within(ctx, read.parse({"thread_id": play.thread_id})).id == play.thread_id
        for name in ("close-thread", "interrupt-turn", "authorize-file-upload"):
            operation = OPERATIONS[f"assistant/{name}"]
            with pytest.raises(NotFound):
                operation.within(ctx, operation.parse({"thread_id": play.thread_id}))
        beat = OPERATIONS["assistant/beat-run"]
        with refused(ConflictReason.RUN_FENCED):
            beat.within(ctx, beat.parse({**play.run, "fence": 99}))
        claim = OPERATIONS["assistant/claim-execution"]
        wrong = {**play.right("assistant/claim-execution"), "version": "v2"}
        with refused(ConflictReason.DIGEST_MISMATCH, differs="version"):
            claim.within(ctx, claim.parse(wrong))
    assert stage.assistant.acting_as(BOB).get_thread(thread_id=mine.id) == mine
    assert USE not in nobody.permissions
