"""A message in its owner's hands while it waits: sent again, looked at, edited, taken back."""

from collections.abc import Callable

import pytest

from engine_assistant import ConflictReason, NotFound, ValidationFailed
from engine_assistant.model.views import Answer
from tests.operations.test_queue import DONE, finish_all, say, waiting
from tests.rig.stage import AUDITOR, ROBOT, TWIN, Stage, Values, delta, dump, refused

# ---------------------------------------------------------------- the same key again


@pytest.mark.guarantee("G-QUEUE-10")
def test_a_key_answers_how_its_message_stands_and_keeps_it_once(stage: Stage) -> None:
    run = stage.open_turn()
    first = say(stage, run, "Next", key="m-2")

    def stands(**wanted: object) -> None:
        before = dump(stage.engine)
        for given in ({}, {"when_busy": "refuse"}, {"when_busy": "interrupt", "priority": "next"}):
            again = say(stage, run, "Next", key="m-2", **given)
            found = again.model_dump()
            assert (again.input_id, again.duplicate) == (first.input_id, True)
            assert wanted.items() <= found.items(), found
        for other in ({"text": "Other"}, {"attachment_ids": []}):
            with refused(ConflictReason.KEY_REUSED, input_id=first.input_id):
                stage.me.send_message(
                    **{"thread_id": run["thread_id"], "text": "Next", "key": "m-2", **other}
                )
        assert dump(stage.engine) == before

    nowhere = {"turn": 0, "first_seq": 0, "last_seq": 0, "answer": None}
    stands(state="queued", **nowhere)
    stage.me.edit_input(thread_id=run["thread_id"], input_id=first.input_id, text="Edited")
    stands(state="queued", **nowhere)
    stage.rest(run)
    stands(state="opened", turn=2, first_seq=4, last_seq=5, answer=None)
    stage.rest(stage.take(str(run["thread_id"])))
    answer = {"turn": 2, "reason": "done", "text": "", "code": None}
    stands(state="opened", turn=2, answer=answer)
    stage.me.close_thread(thread_id=run["thread_id"])
    stands(state="opened", turn=2, answer=answer)


@pytest.mark.guarantee("G-QUEUE-10")
def test_a_message_that_was_taken_back_is_not_sent_by_its_key(stage: Stage) -> None:
    run = stage.open_turn()
    first = say(stage, run, "Next", key="m-2")
    stage.me.cancel_input(thread_id=run["thread_id"], input_id=first.input_id)
    stage.rest(run)
    again = say(stage, run, "Next", key="m-2")
    assert (again.input_id, again.state, again.turn) == (first.input_id, "cancelled", 0)
    assert stage.me.get_thread(thread_id=run["thread_id"]).turn_state == "idle"


ENDINGS: dict[str, tuple[Callable[[Stage, Values], object], Answer]] = {
    "done": (
        lambda s, r: s.append(r, DONE),
        Answer(turn=1, reason="done", text="Hi, Alice."),
    ),
    "limit": (
        lambda s, r: s.rest(r, "limit"),
        Answer(turn=1, reason="limit", text="Hi, Alice."),
    ),
    "error": (
        lambda s, r: s.append(r, {"type": "turn-error", "code": "model", "message": "gone"}),
        Answer(turn=1, reason="error", code="model", text="Hi, Alice."),
    ),
    "abandoned": (
        lambda s, r: s.bot.abandon_turn(thread_id=r["thread_id"], reason="gone", fence=r["fence"]),
        Answer(turn=1, reason="error", code="abandoned", text="Hi, Alice."),
    ),
    "closed": (
        lambda s, r: s.me.close_thread(thread_id=r["thread_id"]),
        Answer(turn=1, reason="interrupted", text="Hi, Alice."),
    ),
}


@pytest.mark.guarantee("G-QUEUE-11")
@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS.keys())
def test_a_key_answers_what_the_turn_said_and_how_it_ended(
    stage: Stage, ending: tuple[Callable[[Stage, Values], object], Answer]
) -> None:
    end, answer = ending
    thread_id = stage.me.create_thread().id
    sent = {"thread_id": thread_id, "text": "Hello", "key": "m-1"}
    stage.me.send_message(**sent)
    run = stage.take(thread_id)
    steered = say(stage, run, "I am Alice", when_busy="steer", key="m-2")
    stage.append(run, delta("Hi, "))
    stage.bot.take_inputs(**run)
    stage.append(run, delta("Alice"), {"type": "step-finish"}, delta("."))
    assert stage.me.send_message(**sent).answer is None
    end(stage, run)
    for repeated in (
        stage.me.send_message(**sent),
        say(stage, run, "I am Alice", when_busy="steer", key="m-2"),
    ):
        assert (repeated.duplicate, repeated.answer) == (True, answer)
    assert repeated.input_id == steered.input_id


@pytest.mark.guarantee("G-QUEUE-11")
def test_the_answer_is_that_of_its_own_turn(stage: Stage) -> None:
    """Turns before and after have texts, too, and a turn may wait in its middle."""
    run = stage.open_turn()
    stage.append(run, delta("before"), DONE)
    sent = {"thread_id": run["thread_id"], "text": "Again", "key": "m-2"}
    stage.me.send_message(**sent)
    run = stage.take(str(run["thread_id"]))
    stage.append(run, delta("one "))
    stage.propose(run, "c")
    digest = stage.ask(run, "c")["usr_alice"]
    stage.rest(run, "awaiting-approval")
    assert stage.me.send_message(**sent).answer is None
    stage.approve(run, "c", digest)
    run = stage.take(str(run["thread_id"]))
    stage.append(run, delta("two"), DONE)
    wanted = Answer(turn=2, reason="done", text="one two")
    assert stage.me.send_message(**sent).answer == wanted
    stage.me.send_message(thread_id=run["thread_id"], text="More")
    assert stage.me.send_message(**sent).answer == wanted
    stage.append(stage.take(str(run["thread_id"])), delta("after"))
    assert stage.me.send_message(**sent).answer == wanted


@pytest.mark.guarantee("G-QUEUE-11")
def test_a_turn_that_was_passed_by_says_so(stage: Stage) -> None:
    run = stage.open_turn()
    stage.rest(run)
    sent = {"thread_id": run["thread_id"], "text": "Again", "key": "m-2"}
    stage.me.send_message(**sent)
    run = stage.take(str(run["thread_id"]))
    stage.propose(run, "c")
    stage.ask(run, "c")
    stage.append(run, delta("May I?"), {"type": "turn-finish", "reason": "awaiting-approval"})
    stage.me.send_message(thread_id=run["thread_id"], text="Leave it", supersede_approvals=True)
    wanted = Answer(turn=2, reason="superseded", text="May I?")
    assert stage.me.send_message(**sent).answer == wanted


@pytest.mark.guarantee("G-QUEUE-11")
def test_all_that_opened_one_turn_have_one_answer(stage: Stage) -> None:
    run = stage.open_turn()
    for text in ("a", "b"):
        say(stage, run, text, coalesce=True, key=text)
    stage.rest(run)
    stage.append(stage.take(str(run["thread_id"])), delta("both"), DONE)
    answers = [say(stage, run, text, key=text).answer for text in ("a", "b")]
    assert answers == [Answer(turn=2, reason="done", text="both")] * 2


# ---------------------------------------------------------------- edited, taken back


@pytest.mark.guarantee("G-QUEUE-12")
def test_an_edited_message_keeps_its_place_and_opens_as_edited(stage: Stage) -> None:
    run = stage.open_turn()
    files = [
        stage.bot.register_file(
            thread_id=run["thread_id"], filename=name, content_type="b", size=0, sha256="0" * 64
        ).id
        for name in ("one", "two")
    ]
    first = say(stage, run, "a", attachment_ids=files[:1], key="m-2")
    say(stage, run, "b")
    which = {"thread_id": run["thread_id"], "input_id": first.input_id}
    edited = stage.me.edit_input(**which, text="A")
    assert (edited.text, edited.state, edited.position, edited.key) == ("A", "queued", 1, "m-2")
    assert [part.id for part in edited.files or ()] == files[:1]
    edited = stage.me.edit_input(**which, text="A!", attachment_ids=files)
    assert [part.id for part in edited.files or ()] == files
    assert stage.me.edit_input(**which, text="A?", attachment_ids=[]).files == ()
    before = dump(stage.engine)
    assert stage.me.edit_input(**which, text="A?").text == "A?"
    with pytest.raises(NotFound):
        stage.me.edit_input(**which, text="A", attachment_ids=["nobody's"])
    assert dump(stage.engine) == before
    assert waiting(stage, run) == ["A?", "b"]
    stage.rest(run)
    opened = stage.me.read_events(thread_id=run["thread_id"], last=2).events[0]
    assert (opened.text, opened.files, opened.input_id) == ("A?", (), first.input_id)
    assert list(stage.assistant.doctor()) == []


@pytest.mark.guarantee("G-QUEUE-12")
def test_a_message_that_was_taken_back_opens_nothing(stage: Stage) -> None:
    run = stage.open_turn()
    receipts = [say(stage, run, text) for text in ("a", "b", "c")]
    which = {"thread_id": run["thread_id"], "input_id": receipts[1].input_id}
    answer = stage.me.cancel_input(**which)
    assert (answer.state, answer.text, answer.turn) == ("cancelled", None, 0)
    before = dump(stage.engine)
    assert stage.me.cancel_input(**which) == answer
    with refused(ConflictReason.INPUT_SETTLED, state="cancelled"):
        stage.me.edit_input(**which, text="B")
    assert dump(stage.engine) == before
    assert waiting(stage, run) == ["a", "c"]
    finish_all(stage, run)
    texts = [
        e.text
        for e in stage.me.read_events(thread_id=run["thread_id"]).events
        if e.type == "user-message"
    ]
    assert texts == ["Hello", "a", "c"]
    assert list(stage.assistant.doctor()) == []


@pytest.mark.guarantee("G-QUEUE-12")
@pytest.mark.parametrize(
    ("state", "at_once"), [("opened", True), ("opened", False), ("absorbed", False)]
)
def test_what_a_turn_holds_cannot_be_changed_any_more(
    stage: Stage, state: str, *, at_once: bool
) -> None:
    run = stage.open_turn()
    if at_once:
        stage.rest(run)
        input_id = say(stage, run, "now").input_id
    elif state == "opened":
        input_id = say(stage, run, "next").input_id
        stage.rest(run)
    else:
        input_id = say(stage, run, "left", when_busy="steer").input_id
        stage.bot.take_inputs(**run)
    which = {"thread_id": run["thread_id"], "input_id": input_id}
    for _ in range(2):
        before = dump(stage.engine)
        with refused(ConflictReason.INPUT_SETTLED, input_id=input_id, state=state):
            stage.me.cancel_input(**which)
        with refused(ConflictReason.INPUT_SETTLED, input_id=input_id, state=state):
            stage.me.edit_input(**which, text="else")
        assert dump(stage.engine) == before
        stage.me.close_thread(thread_id=run["thread_id"])


@pytest.mark.guarantee("G-QUEUE-12")
def test_only_its_owner_changes_a_message(stage: Stage) -> None:
    run = stage.open_turn()
    input_id = say(stage, run, "mine").input_id
    which = {"thread_id": run["thread_id"], "input_id": input_id}
    other = {"thread_id": stage.me.create_thread().id, "input_id": input_id}
    before = dump(stage.engine)
    strangers = [
        stage.bob,
        stage.assistant.acting_as(AUDITOR),
        stage.assistant.acting_as(TWIN["owner"]),
    ]
    for ops, place in [*((one, which) for one in strangers), (stage.me, other)]:
        with pytest.raises(NotFound):
            ops.cancel_input(**place)
        with pytest.raises(NotFound):
            ops.edit_input(**place, text="yours")
    with pytest.raises(NotFound):
        stage.me.cancel_input(thread_id=run["thread_id"], input_id="no-such-input")
    assert dump(stage.engine) == before


# ---------------------------------------------------------------- looked at


@pytest.mark.guarantee("G-QUEUE-19")
def test_its_readers_see_a_threads_messages_and_the_text_of_what_waits(stage: Stage) -> None:
    run = stage.open_turn(text="first")
    say(stage, run, "waits")
    say(stage, run, "left", when_busy="steer")
    stage.bot.take_inputs(**run)
    gone = say(stage, run, "gone")
    stage.me.cancel_input(thread_id=run["thread_id"], input_id=gone.input_id)
    seen = stage.me.list_inputs(thread_id=run["thread_id"]).items
    assert [(one.state, one.text) for one in seen] == [
        ("opened", None),
        ("absorbed", None),
        ("queued", "waits"),
        ("cancelled", None),
    ]
    for caller in (AUDITOR, ROBOT):
        page = stage.assistant.acting_as(caller).list_inputs(thread_id=run["thread_id"])
        assert page.items == seen
    for stranger in (stage.bob, stage.assistant.acting_as(TWIN["run"])):
        with pytest.raises(NotFound):
            stranger.list_inputs(thread_id=run["thread_id"])


@pytest.mark.guarantee("G-QUEUE-19")
def test_pages_of_messages_join_without_a_gap_or_a_repeat(stage: Stage) -> None:
    run = stage.open_turn()
    for number in range(9):
        given = {"priority": "next"} if number % 3 == 0 else {"coalesce": number % 2 == 0}
        waits = say(stage, run, str(number), **given)
        if number in (4, 5):
            stage.me.cancel_input(thread_id=run["thread_id"], input_id=waits.input_id)
    stage.rest(run)
    stage.rest(stage.take(str(run["thread_id"])))
    for state in (None, "queued", "opened", "cancelled"):
        whole = stage.me.list_inputs(thread_id=run["thread_id"], state=state)
        assert whole.cursor is None
        assert state is None or {one.state for one in whole.items} == {state}
        items, cursor = [], None
        while True:
            page = stage.me.list_inputs(
                thread_id=run["thread_id"], state=state, limit=2, cursor=cursor
            )
            items += page.items
            cursor = page.cursor
            if cursor is None:
                break
        assert tuple(items) == whole.items
    page = stage.me.list_inputs(thread_id=run["thread_id"], limit=2)
    with pytest.raises(ValidationFailed):
        stage.me.list_inputs(thread_id=run["thread_id"], state="queued", cursor=page.cursor)
