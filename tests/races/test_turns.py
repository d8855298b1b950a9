"""One turn at a time, and nothing after its end."""

import pytest

from engine_assistant import ConflictReason
from engine_assistant.model.machines import CallState, ThreadStatus, TurnState
from engine_assistant.model.rows import RunRow
from tests.rig.duels import Arena, Stop
from tests.rig.sides import (
    ROBOT,
    Fields,
    Scene,
    Side,
    acquire,
    append,
    ask,
    beat,
    claim,
    close,
    decide,
    finish,
    interrupt,
    proposal,
    release,
    send,
    words,
)

PLAIN = (words("plain words"),)
FOLDED = (words("a call"), proposal("c2"))


@pytest.mark.guarantee("G-RACE-15")
def test_two_messages_at_once_open_one_turn(arena: Arena, stop: Stop) -> None:
    """Two messages are sent to a resting thread at once: the second meets a turn in progress."""
    thread_id = arena.idle()
    ahead, behind = arena.race(send(thread_id, "one"), send(thread_id, "two"), stop=stop)
    assert ahead.get().turn == 1
    assert behind.refused(ConflictReason.TURN_IN_PROGRESS).facts["turn"] == 1
    assert arena.log(thread_id) == ["user-message", "turn-start"]


@pytest.mark.guarantee("G-RACE-15")
def test_a_message_that_was_rolled_back_keeps_nobody_out(arena: Arena) -> None:
    """A message rolls back while another waits: the other opens the turn."""
    thread_id = arena.idle()
    _, behind = arena.race(
        send(thread_id, "one"), send(thread_id, "two"), stop=Stop.WRITTEN, keep=False
    )
    receipt = behind.get()
    assert (receipt.turn, receipt.first_seq, receipt.duplicate) == (1, 1, False)
    assert arena.log(thread_id) == ["user-message", "turn-start"]


@pytest.mark.guarantee("G-RACE-16")
def test_nothing_is_sent_to_a_thread_that_was_just_closed(arena: Arena, stop: Stop) -> None:
    """The owner closes in one tab while she sends in another: the message is refused."""
    thread_id = arena.idle()
    ahead, behind = arena.race(close(thread_id), send(thread_id), stop=stop)
    assert ahead.get().closed_at is not None
    behind.refused(ConflictReason.THREAD_CLOSED)
    assert arena.log(thread_id) == []


@pytest.mark.guarantee("G-RACE-16")
@pytest.mark.parametrize("events", [PLAIN, FOLDED], ids=["plain", "folded"])
def test_nothing_is_appended_to_a_thread_that_was_just_closed(
    arena: Arena, stop: Stop, events: tuple[Fields, ...]
) -> None:
    """The owner closes while the run appends: the append is refused, the end is the end."""
    scene = arena.running()
    _, behind = arena.race(close(scene.thread_id), append(scene, *events), stop=stop)
    behind.refused(ConflictReason.THREAD_CLOSED)
    assert arena.log(scene.thread_id) == ["user-message", "turn-start", "turn-finish"]


@pytest.mark.guarantee("G-RACE-16")
@pytest.mark.parametrize("events", [PLAIN, FOLDED], ids=["plain", "folded"])
def test_a_close_that_waited_for_an_append_comes_after_it(
    arena: Arena, events: tuple[Fields, ...]
) -> None:
    """The run appends while the owner closes: the events stand before the end."""
    scene = arena.running()
    ahead, behind = arena.race(append(scene, *events), close(scene.thread_id), stop=Stop.WRITTEN)
    assert ahead.error is None
    assert behind.get().status is ThreadStatus.CLOSED
    kinds = [fields["type"] for fields in events]
    closed = ["call-closed"] if events is FOLDED else []
    assert arena.log(scene.thread_id)[2:] == [*kinds, *closed, "turn-finish"]


@pytest.mark.guarantee("G-RACE-17")
def test_no_message_slips_past_an_approval_that_was_just_asked_for(
    arena: Arena, stop: Stop
) -> None:
    """A run asks and rests in one transaction while the person sends: an approval is pending."""
    scene = arena.proposed()
    _, behind = arena.race(_ask_and_rest(scene), send(scene.thread_id, "again"), stop=stop)
    behind.refused(ConflictReason.APPROVAL_PENDING)
    assert arena.log(scene.thread_id)[-2:] == ["approval-request", "turn-finish"]
    assert arena.call(scene).state is CallState.AWAITING


def _ask_and_rest(scene: Scene) -> Side[None]:
    def both(ops: object) -> None:
        ask(scene).does(ops)
        append(scene, finish("awaiting-approval")).does(ops)

    return Side(ROBOT, both)


@pytest.mark.guarantee("G-RACE-17")
def test_a_message_that_supersedes_and_an_answer_do_not_both_win(arena: Arena, stop: Stop) -> None:
    """The person says something else in one tab while she approves in another: call closed."""
    scene = arena.waiting()
    ahead, behind = arena.race(
        send(scene.thread_id, "no, leave it", supersede=True), decide(scene), stop=stop
    )
    assert ahead.get().turn == 2
    behind.refused(ConflictReason.CALL_CLOSED)
    assert arena.call(scene).state is CallState.SUPERSEDED
    assert "approval-resolved" not in arena.log(scene.thread_id)


@pytest.mark.guarantee("G-RACE-16")
def test_nothing_is_approved_on_a_thread_that_was_just_closed(arena: Arena, stop: Stop) -> None:
    """The owner closes while she approves elsewhere: refused, the call was cancelled."""
    scene = arena.waiting()
    _, behind = arena.race(close(scene.thread_id), decide(scene), stop=stop)
    behind.refused(ConflictReason.THREAD_CLOSED)
    assert arena.call(scene).state is CallState.CANCELLED
    assert "approval-resolved" not in arena.log(scene.thread_id)


@pytest.mark.guarantee("G-RACE-16")
def test_nothing_is_claimed_on_a_thread_that_was_just_closed(arena: Arena, stop: Stop) -> None:
    """The owner closes while the run claims an approved call: refused, and nothing runs."""
    scene = arena.approved()
    _, behind = arena.race(close(scene.thread_id), claim(scene), stop=stop)
    behind.refused(ConflictReason.THREAD_CLOSED)
    assert arena.call(scene).state is CallState.CANCELLED
    assert "execution-claimed" not in arena.log(scene.thread_id)


@pytest.mark.guarantee("G-RACE-18")
@pytest.mark.parametrize("events", [PLAIN, FOLDED], ids=["plain", "folded"])
@pytest.mark.parametrize("reason", ["done", "awaiting-approval"])
def test_no_event_follows_the_rest_of_its_turn(
    arena: Arena, stop: Stop, events: tuple[Fields, ...], reason: str
) -> None:
    """One writer of a run rests the turn while another appends: the lease went with the turn."""
    scene = arena.running() if reason == "done" else arena.asked()
    _, behind = arena.race(append(scene, finish(reason)), append(scene, *events), stop=stop)
    behind.refused(ConflictReason.RUN_FENCED)
    assert arena.log(scene.thread_id)[-1] == "turn-finish"


@pytest.mark.guarantee("G-RACE-16")
def test_two_closes_are_one(arena: Arena, stop: Stop) -> None:
    """The owner closes in two tabs at once: one milestone, and the first time of closing stays."""
    scene = arena.running()
    ahead, behind = arena.race(close(scene.thread_id), close(scene.thread_id), stop=stop)
    assert behind.get().closed_at == ahead.get().closed_at
    assert arena.milestones(scene.thread_id).count("thread-closed") == 1
    assert arena.log(scene.thread_id).count("turn-finish") == 1
    assert len(arena.rows(RunRow, scene.thread_id)) == 1


@pytest.mark.guarantee("G-RACE-19")
@pytest.mark.parametrize("comes", ["append", "folded", "beat", "release", "acquire", "interrupt"])
@pytest.mark.parametrize("closing", ["first", "second"])
def test_closing_and_the_lease_never_wait_in_a_circle(
    arena: Arena, comes: str, closing: str
) -> None:
    """A close and an operation of the run, in either order: the second waits once and ends."""
    scene = arena.running()
    other: Side[object] = {
        "append": append(scene, *PLAIN),
        "folded": append(scene, *FOLDED),
        "beat": beat(scene),
        "release": release(scene),
        "acquire": acquire(scene.thread_id, scene.run_id),
        "interrupt": interrupt(scene.thread_id),
    }[comes]
    if closing == "first":
        ahead, behind = arena.race(close(scene.thread_id), other, stop=Stop.WRITTEN)
        assert ahead.error is None
        assert behind.answer is False or behind.refused(ConflictReason.THREAD_CLOSED)
    else:
        before, after = arena.race(other, close(scene.thread_id), stop=Stop.WRITTEN)
        assert (before.error, after.error) == (None, None)
    head = arena.head(scene.thread_id)
    assert (head.status, head.turn_state) == (ThreadStatus.CLOSED, TurnState.IDLE)
    assert arena.log(scene.thread_id)[-1] == "turn-finish"


@pytest.mark.guarantee("G-RACE-20")
def test_a_request_given_again_never_follows_its_answer(arena: Arena, stop: Stop) -> None:
    """The run repeats its request while the person answers: refused, the answer stands last."""
    scene = arena.asked()
    request = arena.me.read_events(thread_id=scene.thread_id).events[-1]
    again = request.model_dump(exclude={"seq", "turn", "at"})
    _, behind = arena.race(decide(scene), append(scene, again), stop=stop)
    behind.refused(ConflictReason.CALL_STATE)
    assert arena.log(scene.thread_id)[-1] == "approval-resolved"
    assert arena.call(scene).state is CallState.APPROVED


@pytest.mark.guarantee("G-RACE-20")
def test_an_answer_to_a_request_that_was_just_asked_again_is_refused(
    arena: Arena, stop: Stop
) -> None:
    """The run asks again on purpose while the person answers the old card: digest mismatch."""
    scene = arena.asked()
    ahead, behind = arena.race(ask(scene, reissue=True), decide(scene), stop=stop)
    assert ahead.error is None
    assert behind.refused(ConflictReason.DIGEST_MISMATCH).facts["differs"] == "digest"
    assert arena.call(scene).state is CallState.AWAITING
    assert arena.log(scene.thread_id)[-1] == "approval-request"


@pytest.mark.guarantee("G-RACE-18")
def test_no_turn_is_done_while_an_approval_waits(arena: Arena, stop: Stop) -> None:
    """One writer of a run asks while another finishes: `done` is refused, an approval waits."""
    scene = arena.proposed()
    _, behind = arena.race(ask(scene), append(scene, finish("done")), stop=stop)
    behind.refused(ConflictReason.APPROVAL_PENDING)
    assert arena.log(scene.thread_id)[-1] == "approval-request"
    assert arena.head(scene.thread_id).turn_state is TurnState.OPEN


@pytest.mark.guarantee("G-RACE-18")
def test_nothing_is_asked_in_a_turn_that_is_done(arena: Arena, stop: Stop) -> None:
    """One writer of a run finishes while another asks: the lease went with the turn."""
    scene = arena.proposed()
    _, behind = arena.race(append(scene, finish("done")), ask(scene), stop=stop)
    behind.refused(ConflictReason.RUN_FENCED)
    assert arena.log(scene.thread_id)[-2:] == ["call-closed", "turn-finish"]
    arena.does(send(scene.thread_id, "and now"))
