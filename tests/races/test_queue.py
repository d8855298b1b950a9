"""Messages that wait, while somebody moves the line."""

import pytest

from engine_assistant import ConflictReason
from engine_assistant.model.machines import InputState, TurnState
from engine_assistant.model.rows import RunRow
from tests.rig.duels import Arena, Stop
from tests.rig.sides import (
    Scene,
    Side,
    abandon,
    acquire,
    append,
    cancel,
    close,
    decide,
    edit,
    finish,
    interrupt,
    proposal,
    send,
    take,
    words,
)


def said(arena: Arena, thread_id: str) -> list[tuple[int, str]]:
    """Answer what the person said in which turn, of a record that must be whole."""
    arena.log(thread_id)
    assert list(arena.assistant.doctor(thread_id=thread_id)) == []
    events = arena.me.read_events(thread_id=thread_id).events
    return [(event.turn, event.text) for event in events if event.type == "user-message"]


def waiting(arena: Arena, thread_id: str) -> list[str | None]:
    """Answer what waits, in its order."""
    return [one.text for one in arena.me.list_inputs(thread_id=thread_id, state="queued").items]


def queue(scene: Scene | str, text: str, **given: str | bool) -> Side[object]:
    thread_id = scene if isinstance(scene, str) else scene.thread_id
    return send(thread_id, text, **{"when_busy": "queue", **given})


# ---------------------------------------------------------------- getting in line


@pytest.mark.guarantee("G-QUEUE-20")
@pytest.mark.parametrize("place", ["idle", "busy"])
def test_two_messages_under_one_key_are_one(arena: Arena, stop: Stop, place: str) -> None:
    """A client sends twice, because it saw no answer: the second is told of the first."""
    thread_id = arena.idle() if place == "idle" else arena.running().thread_id
    same = queue(thread_id, "again", key="k")
    ahead, behind = arena.race(same, same, stop=stop)
    first, second = ahead.get(), behind.get()
    assert (first.duplicate, second.duplicate) == (False, True)
    assert second == first.model_copy(update={"duplicate": True})
    assert [text for _, text in said(arena, thread_id)] == (
        ["again"] if place == "idle" else ["hello"]
    )
    assert waiting(arena, thread_id) == ([] if place == "idle" else ["again"])


@pytest.mark.guarantee("G-QUEUE-20")
def test_a_key_with_other_content_is_refused_however_close_it_comes(
    arena: Arena, stop: Stop
) -> None:
    scene = arena.running()
    ahead, behind = arena.race(
        queue(scene, "one", key="k"), queue(scene, "two", key="k"), stop=stop
    )
    behind.refused(ConflictReason.KEY_REUSED)
    assert waiting(arena, scene.thread_id) == ["one"]
    assert ahead.get().state is InputState.QUEUED


@pytest.mark.guarantee("G-QUEUE-20")
def test_keys_of_two_threads_are_two_and_hold_what_they_like(arena: Arena) -> None:
    """A key is a column of its own beside thread and author, so none runs into another."""
    for key in ("a|b", "a", "b|a", "a\x1fb", "|"):
        for thread_id in (arena.running().thread_id, arena.running().thread_id):
            assert not arena.does(queue(thread_id, key, key=key)).duplicate
            assert arena.does(queue(thread_id, key, key=key)).duplicate
            assert waiting(arena, thread_id) == [key]


@pytest.mark.guarantee("G-QUEUE-05")
def test_two_messages_at_once_stand_one_behind_the_other(arena: Arena, stop: Stop) -> None:
    scene = arena.running()
    arena.race(queue(scene, "one"), queue(scene, "two"), stop=stop)
    items = arena.me.list_inputs(thread_id=scene.thread_id, state="queued").items
    assert [(one.text, one.position) for one in items] == [("one", 1), ("two", 2)]


@pytest.mark.guarantee("G-QUEUE-21")
def test_two_messages_at_once_on_an_idle_thread_open_one_turn(arena: Arena, stop: Stop) -> None:
    thread_id = arena.idle()
    ahead, behind = arena.race(queue(thread_id, "one"), queue(thread_id, "two"), stop=stop)
    assert (ahead.get().state, behind.get().state) == (InputState.OPENED, InputState.QUEUED)
    assert said(arena, thread_id) == [(1, "one")]


# ---------------------------------------------------------------- while the turn ends


@pytest.mark.guarantee("G-QUEUE-21")
@pytest.mark.parametrize("first", ["message", "end"])
def test_a_message_that_comes_with_the_end_of_a_turn_is_not_forgotten(
    arena: Arena, stop: Stop, first: str
) -> None:
    """It got in line, and the end opens it; or the turn was over, and it opens one itself."""
    scene = arena.running()
    sides = queue(scene, "next"), append(scene, finish())
    if first == "message":
        ahead, behind = arena.race(*sides, stop=stop)
        assert ahead.get().state is InputState.QUEUED
        assert behind.error is None
    else:
        ahead, behind = arena.race(*reversed(sides), stop=stop)
        assert ahead.error is None
        assert behind.get().state is InputState.OPENED
    assert said(arena, scene.thread_id) == [(1, "hello"), (2, "next")]
    head = arena.head(scene.thread_id)
    assert (head.turn_state, head.turn, head.queued, head.run_id) == (TurnState.OPEN, 2, 0, None)


@pytest.mark.guarantee("G-QUEUE-21")
def test_a_message_that_was_rolled_back_waits_nowhere(arena: Arena) -> None:
    scene = arena.running()
    _, behind = arena.race(
        queue(scene, "never"), append(scene, finish()), stop=Stop.WRITTEN, keep=False
    )
    assert behind.error is None
    assert said(arena, scene.thread_id) == [(1, "hello")]
    assert arena.head(scene.thread_id).turn_state is TurnState.IDLE


@pytest.mark.guarantee("G-QUEUE-22")
@pytest.mark.parametrize("given", [{"priority": "next"}, {"when_busy": "steer"}], ids=str)
@pytest.mark.parametrize("first", ["message", "end"])
def test_what_is_next_when_the_turn_ends_opens(
    arena: Arena, stop: Stop, given: dict[str, str], first: str
) -> None:
    """An urgent message comes with the end of the turn, while an ordinary one waits."""
    scene, _ = arena.lined_up("ordinary")
    sides = queue(scene, "urgent", **given), append(scene, finish())
    arena.race(*(sides if first == "message" else reversed(sides)), stop=stop)
    opened, waits = ("urgent", "ordinary") if first == "message" else ("ordinary", "urgent")
    assert said(arena, scene.thread_id) == [(1, "hello"), (2, opened)]
    assert waiting(arena, scene.thread_id) == [waits]


@pytest.mark.guarantee("G-QUEUE-22")
@pytest.mark.parametrize("first", ["message", "end"])
def test_who_wants_to_join_a_message_that_opens_joins_it_or_waits_alone(
    arena: Arena, stop: Stop, first: str
) -> None:
    scene, _ = arena.lined_up("one")
    sides = queue(scene, "two", coalesce=True), append(scene, finish())
    arena.race(*(sides if first == "message" else reversed(sides)), stop=stop)
    joined = first == "message"
    assert said(arena, scene.thread_id)[1:] == [(2, "one"), *([(2, "two")] if joined else [])]
    assert waiting(arena, scene.thread_id) == ([] if joined else ["two"])


@pytest.mark.guarantee("G-QUEUE-04")
@pytest.mark.parametrize("first", ["message", "close"])
def test_a_message_that_comes_with_the_close_is_taken_back_or_refused(
    arena: Arena, stop: Stop, first: str
) -> None:
    scene = arena.running()
    sides = queue(scene, "late"), close(scene.thread_id)
    if first == "message":
        arena.race(*sides, stop=stop)
    else:
        _, behind = arena.race(*reversed(sides), stop=stop)
        behind.refused(ConflictReason.THREAD_CLOSED)
    assert said(arena, scene.thread_id) == [(1, "hello")]
    assert (waiting(arena, scene.thread_id), arena.head(scene.thread_id).queued) == ([], 0)


@pytest.mark.guarantee("G-QUEUE-04")
def test_the_line_does_not_move_while_an_answer_is_given(arena: Arena, stop: Stop) -> None:
    """The person approves while a message gets in line: the turn goes on, the message waits."""
    scene = arena.waiting()
    _, behind = arena.race(decide(scene), queue(scene, "next"), stop=stop)
    assert behind.get().state is InputState.QUEUED
    assert said(arena, scene.thread_id) == [(1, "hello")]
    assert arena.head(scene.thread_id).turn_state is TurnState.OPEN


# ---------------------------------------------------------------- edited, taken back, taken in


@pytest.mark.guarantee("G-QUEUE-23")
@pytest.mark.parametrize("by", ["edit", "cancel"])
@pytest.mark.parametrize("taken", ["opened", "absorbed"])
@pytest.mark.parametrize("first", ["owner", "turn"])
def test_a_message_is_changed_before_a_turn_takes_it_up_or_not_at_all(
    arena: Arena, stop: Stop, by: str, taken: str, first: str
) -> None:
    """The owner edits or takes back what a turn opens, or its run takes in, at that moment."""
    steer = taken == "absorbed"
    scene, (input_id,) = arena.lined_up("as sent", when_busy="steer" if steer else "queue")
    turn: Side[object] = take(scene) if steer else append(scene, finish())
    changes = edit if by == "edit" else cancel
    owner: Side[object] = changes(scene.thread_id, input_id)
    if first == "turn":
        ahead, behind = arena.race(turn, owner, stop=stop)
        assert ahead.error is None
        assert behind.refused(ConflictReason.INPUT_SETTLED).facts["state"] == taken
        texts = ["as sent"]
    else:
        ahead, behind = arena.race(owner, turn, stop=stop)
        assert (ahead.error, behind.error) == (None, None)
        texts = ["edited"] if by == "edit" else []
    where = 1 if steer else 2
    assert said(arena, scene.thread_id) == [(1, "hello"), *((where, text) for text in texts)]
    assert waiting(arena, scene.thread_id) == []


@pytest.mark.guarantee("G-QUEUE-23")
def test_of_an_edit_and_a_taking_back_the_second_finds_what_the_first_left(
    arena: Arena, stop: Stop
) -> None:
    scene, (input_id,) = arena.lined_up("as sent")
    which = (scene.thread_id, input_id)
    _, behind = arena.race(cancel(*which), edit(*which), stop=stop)
    behind.refused(ConflictReason.INPUT_SETTLED)
    assert arena.does(cancel(*which)).state is InputState.CANCELLED


@pytest.mark.guarantee("G-QUEUE-23")
def test_two_edits_at_once_are_one_after_the_other(arena: Arena, stop: Stop) -> None:
    scene, (input_id,) = arena.lined_up("as sent")
    sides = (edit(scene.thread_id, input_id, text) for text in ("first", "second"))
    ahead, behind = arena.race(*sides, stop=stop)
    assert (ahead.error, behind.error) == (None, None)
    assert waiting(arena, scene.thread_id) == ["second"]


@pytest.mark.guarantee("G-QUEUE-07")
@pytest.mark.parametrize("first", ["message", "run"])
def test_a_message_steers_the_turn_that_takes_it_or_waits_on(
    arena: Arena, stop: Stop, first: str
) -> None:
    scene = arena.running()
    sides = queue(scene, "left", when_busy="steer"), take(scene)
    arena.race(*(sides if first == "message" else reversed(sides)), stop=stop)
    in_time = first == "message"
    assert said(arena, scene.thread_id)[1:] == ([(1, "left")] if in_time else [])
    assert waiting(arena, scene.thread_id) == ([] if in_time else ["left"])


@pytest.mark.guarantee("G-QUEUE-07")
def test_what_a_turn_ends_with_and_takes_in_is_taken_up_once(arena: Arena, stop: Stop) -> None:
    """Two writers of one run: one ends the turn, the other takes in what steers it."""
    scene, _ = arena.lined_up("left", when_busy="steer")
    _, behind = arena.race(append(scene, finish()), take(scene), stop=stop)
    behind.refused(ConflictReason.RUN_FENCED)
    assert said(arena, scene.thread_id) == [(1, "hello"), (2, "left")]


@pytest.mark.guarantee("G-QUEUE-07")
def test_a_run_that_was_replaced_takes_nothing_in(arena: Arena, stop: Stop) -> None:
    scene, _ = arena.lined_up("left", when_busy="steer")
    arena.lapse_lease(scene.thread_id)
    ahead, behind = arena.race(acquire(scene.thread_id, "run-b"), take(scene), stop=stop)
    behind.refused(ConflictReason.RUN_FENCED)
    assert said(arena, scene.thread_id) == [(1, "hello")]
    arena.does(take(scene.under(ahead.get())))
    assert said(arena, scene.thread_id) == [(1, "hello"), (1, "left")]


# ---------------------------------------------------------------- two ends, one next


ENDS = ("finish", "interrupt", "abandon", "close")


@pytest.mark.guarantee("G-QUEUE-24")
@pytest.mark.parametrize("second", ENDS)
@pytest.mark.parametrize("first", ENDS)
def test_two_ends_of_a_turn_are_one_and_open_one_message(
    arena: Arena, stop: Stop, first: str, second: str
) -> None:
    """The owner and the run, or two of either, end a turn at once; two messages wait."""
    scene, _ = arena.lined_up("next", "last")
    arena.lapse_lease(scene.thread_id)
    sides: dict[str, Side[object]] = {
        "finish": append(scene, finish()),
        "interrupt": interrupt(scene.thread_id),
        "abandon": abandon(scene.thread_id, turn=1),
        "close": close(scene.thread_id),
    }
    ahead, behind = arena.race(sides[first], sides[second], stop=stop)
    assert ahead.error is None
    log = arena.log(scene.thread_id)
    ends = [kind for kind in log if kind in ("turn-finish", "turn-error")]
    if "close" in (first, second):
        assert arena.head(scene.thread_id).queued == 0
    elif second == "interrupt":
        # It stops the turn that is open by then: the one that the first end opened.
        assert behind.get().ended
        assert said(arena, scene.thread_id)[1:] == [(2, "next"), (3, "last")]
        assert len(ends) == 2
        return
    else:
        behind.refused(ConflictReason.RUN_FENCED, ConflictReason.NO_TURN_OPEN)
        assert said(arena, scene.thread_id)[1:] == [(2, "next")]
        assert waiting(arena, scene.thread_id) == ["last"]
    assert len(ends) == (2 if second == "close" and first != "close" else 1)
    assert list(arena.assistant.doctor(thread_id=scene.thread_id)) == []


@pytest.mark.guarantee("G-QUEUE-24")
def test_a_stop_that_comes_too_late_asks_nobody(arena: Arena, stop: Stop) -> None:
    """The owner presses stop while her run ends the turn: no flag is left on a turn at rest."""
    scene = arena.running()
    _, behind = arena.race(append(scene, finish()), interrupt(scene.thread_id), stop=stop)
    assert behind.get().ended is False
    head = arena.head(scene.thread_id)
    assert (head.turn_state, head.interrupt_requested_at) == (TurnState.IDLE, None)


@pytest.mark.guarantee("G-QUEUE-24")
def test_a_message_that_stops_a_turn_which_ends_opens_the_next(arena: Arena, stop: Stop) -> None:
    scene = arena.running()
    ahead, behind = arena.race(
        append(scene, finish()), queue(scene, "no, this", when_busy="interrupt"), stop=stop
    )
    assert ahead.error is None
    assert behind.get().state is InputState.OPENED
    assert arena.head(scene.thread_id).interrupt_requested_at is None


@pytest.mark.guarantee("G-QUEUE-25")
@pytest.mark.parametrize(
    "events", [(words("one"),), (words("one"), proposal("c2"))], ids=["plain", "folded"]
)
def test_a_turn_that_is_abandoned_takes_no_more(
    arena: Arena, stop: Stop, events: tuple[dict[str, object], ...]
) -> None:
    """Somebody gives a run up that was only slow: what it writes then is refused."""
    scene = arena.running()
    gone = abandon(scene.thread_id, fence=scene.fence)
    ahead, behind = arena.race(gone, append(scene, *events), stop=stop)
    assert ahead.get().turn == 1
    behind.refused(ConflictReason.RUN_FENCED)
    assert arena.log(scene.thread_id) == ["user-message", "turn-start", "turn-error"]
    (run,) = arena.rows(RunRow, scene.thread_id)
    assert (run.state, run.reason) == ("lost", "abandoned")


@pytest.mark.guarantee("G-QUEUE-25")
def test_a_run_that_writes_in_time_is_not_given_up_without_its_fence(
    arena: Arena, stop: Stop
) -> None:
    """A lease that ran out is renewed by a write, while somebody judges that its run is dead."""
    scene = arena.running()
    arena.lapse_lease(scene.thread_id)
    _, behind = arena.race(append(scene, words("here")), abandon(scene.thread_id), stop=stop)
    behind.refused(ConflictReason.RUN_IN_PROGRESS)
    assert arena.log(scene.thread_id)[-1] == "text-delta"


@pytest.mark.guarantee("G-QUEUE-25")
@pytest.mark.parametrize("fence", [None, 1])
def test_a_turn_that_was_taken_over_is_not_given_up_unseen(
    arena: Arena, stop: Stop, fence: int | None
) -> None:
    scene = arena.running()
    arena.lapse_lease(scene.thread_id)
    ahead, behind = arena.race(
        acquire(scene.thread_id, "run-b"), abandon(scene.thread_id, fence=fence), stop=stop
    )
    behind.refused(ConflictReason.RUN_IN_PROGRESS, ConflictReason.RUN_FENCED)
    arena.does(append(scene.under(ahead.get()), finish()))


@pytest.mark.guarantee("G-QUEUE-21")
def test_a_thread_and_its_queue_are_read_of_one_moment(arena: Arena) -> None:
    """While the end of a turn has been written and not committed, a reader sees it before."""
    scene, _ = arena.lined_up("next")
    with arena.holding(append(scene, finish()), keep=True) as (ahead, gate):
        head = arena.head(scene.thread_id)
        assert (head.turn, head.turn_state, head.queued) == (1, TurnState.OPEN, 1)
        assert waiting(arena, scene.thread_id) == ["next"]
        gate.release()
        assert ahead.join().error is None
    assert said(arena, scene.thread_id) == [(1, "hello"), (2, "next")]
