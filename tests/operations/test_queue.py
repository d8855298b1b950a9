"""A busy thread: messages wait in line, and the end of a turn opens the next."""

from collections.abc import Callable

import pytest
import sqlalchemy as sa

from engine_assistant import Assistant, ConflictReason, Limits, ValidationFailed
from engine_assistant.model.views import MessageReceipt
from tests.rig.stage import ALICE, ROBOT, Stage, Values, delta, dump, refused

DONE = {"type": "turn-finish", "reason": "done"}
ERROR = {"type": "turn-error", "code": "model", "message": "gone"}


def say(stage: Stage, run: Values, text: str, **given: object) -> MessageReceipt:
    """Send a message that may wait."""
    values: Values = {"thread_id": run["thread_id"], "text": text, "when_busy": "queue", **given}
    return stage.me.send_message(**values)


def said(stage: Stage, run: Values) -> list[tuple[int, str]]:
    """Answer what the person said, and in which turn."""
    events = stage.me.read_events(thread_id=str(run["thread_id"])).events
    return [(event.turn, event.text) for event in events if event.type == "user-message"]


def waiting(stage: Stage, run: Values) -> list[str | None]:
    """Answer what waits, in the order in which it is taken up."""
    page = stage.me.list_inputs(thread_id=str(run["thread_id"]), state="queued")
    assert stage.me.get_thread(thread_id=str(run["thread_id"])).queued == len(page.items)
    return [item.text for item in page.items]


def finish_all(stage: Stage, run: Values) -> None:
    """Let a run end one turn after the other until nobody waits and the thread is idle."""
    while stage.me.get_thread(thread_id=str(run["thread_id"])).turn_state == "open":
        stage.append(stage.take(str(run["thread_id"])), DONE)


def wait_for_approval(stage: Stage, run: Values, expires_in: float = 600.0) -> str:
    stage.propose(run, "c")
    digest = stage.ask(run, "c", expires_in=expires_in)["usr_alice"]
    stage.rest(run, "awaiting-approval")
    return digest


# ---------------------------------------------------------------- into the queue


@pytest.mark.guarantee("G-QUEUE-01")
@pytest.mark.parametrize("when_busy", ["refuse", "queue", "steer", "interrupt"])
def test_an_idle_thread_takes_a_message_at_once(stage: Stage, when_busy: str) -> None:
    thread_id = stage.me.create_thread().id
    receipt = stage.me.send_message(
        thread_id=thread_id, text="Hello", when_busy=when_busy, priority="next", coalesce=True
    )
    assert (receipt.state, receipt.turn, receipt.first_seq, receipt.last_seq) == ("opened", 1, 1, 2)
    (item,) = stage.me.list_inputs(thread_id=thread_id).items
    assert (item.when_busy, item.priority, item.position, item.queued_at) == (
        None,
        "normal",
        0,
        None,
    )


@pytest.mark.guarantee("G-QUEUE-02")
@pytest.mark.parametrize("when_busy", ["queue", "steer", "interrupt"])
def test_a_busy_thread_keeps_it_and_nothing_of_it_is_in_the_log(
    stage: Stage, when_busy: str
) -> None:
    run = stage.open_turn()
    before = stage.types(run)
    receipt = say(stage, run, "And order 8?", when_busy=when_busy)
    assert (receipt.state, receipt.turn, receipt.first_seq, receipt.last_seq) == ("queued", 0, 0, 0)
    assert (receipt.duplicate, receipt.answer) == (False, None)
    assert stage.types(run) == before
    assert waiting(stage, run) == ["And order 8?"]
    (item,) = stage.me.list_inputs(thread_id=str(run["thread_id"]), state="queued").items
    assert (item.input_id, item.author, item.when_busy) == (
        receipt.input_id,
        "usr_alice",
        when_busy,
    )
    assert (item.position, item.joins, item.queued_at) == (1, 1, stage.clock.now)
    assert item.priority == ("normal" if when_busy == "queue" else "next")


@pytest.mark.guarantee("G-QUEUE-02")
def test_a_message_keeps_its_files_while_it_waits(stage: Stage) -> None:
    run = stage.open_turn()
    file = stage.bot.register_file(
        thread_id=run["thread_id"], filename="a", content_type="b", size=0, sha256="0" * 64
    )
    say(stage, run, "See", attachment_ids=[file.id])
    (item,) = stage.me.list_inputs(thread_id=str(run["thread_id"]), state="queued").items
    assert item.files is not None
    assert [part.id for part in item.files] == [file.id]
    stage.rest(run)
    opened = stage.me.read_events(thread_id=str(run["thread_id"]), last=2).events[0]
    assert opened.files == item.files


@pytest.mark.guarantee("G-QUEUE-13")
def test_a_full_queue_refuses_and_has_room_again(engine: sa.Engine) -> None:
    stage = Stage(engine)
    run = stage.open_turn()
    few = Assistant(engine, clock=stage.clock, limits=Limits(queued_inputs=2)).acting_as(ALICE)
    for text in ("one", "two"):
        few.send_message(thread_id=run["thread_id"], text=text, when_busy="queue", key=text)
    before = dump(engine)
    for when_busy in ("queue", "steer", "interrupt"):
        with refused(ConflictReason.QUEUE_FULL, queued=2):
            few.send_message(thread_id=run["thread_id"], text="three", when_busy=when_busy)
    assert few.send_message(thread_id=run["thread_id"], text="two", key="two").duplicate
    assert dump(engine) == before
    stage.rest(run)
    few.send_message(thread_id=run["thread_id"], text="three", when_busy="queue")
    assert waiting(stage, run) == ["two", "three"]


# ---------------------------------------------------------------- out of the queue


def _stop(stage: Stage, run: Values) -> None:
    stage.clock.forward(15)
    assert stage.me.interrupt_turn(thread_id=run["thread_id"]).ended


def _give_up(stage: Stage, run: Values) -> None:
    stage.bot.abandon_turn(thread_id=run["thread_id"], reason="gone", fence=run["fence"])


ENDS: dict[str, Callable[[Stage, Values], object]] = {
    **{
        reason: lambda s, r, reason=reason: s.rest(r, reason)
        for reason in ("done", "interrupted", "max-tokens", "limit", "refused")
    },
    "error": lambda s, r: s.append(r, ERROR),
    "interrupt": _stop,
    "abandon": _give_up,
}


@pytest.mark.guarantee("G-QUEUE-03")
@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
def test_whatever_ends_a_turn_opens_the_next_in_the_same_transaction(
    stage: Stage, end: Callable[[Stage, Values], object]
) -> None:
    run = stage.open_turn()
    waits = say(stage, run, "Next", key="m-2")
    end(stage, run)
    *_, last, opened, start = stage.me.read_events(thread_id=str(run["thread_id"])).events
    assert last.type in ("turn-finish", "turn-error")
    assert (opened.type, opened.text, opened.turn) == ("user-message", "Next", 2)
    assert (opened.input_id, start.type, start.turn) == (waits.input_id, "turn-start", 2)
    assert last.at == opened.at == start.at
    thread = stage.me.get_thread(thread_id=str(run["thread_id"]))
    assert (thread.turn_state, thread.turn, thread.queued) == ("open", 2, 0)
    receipt = say(stage, run, "Next", key="m-2")
    assert (receipt.state, receipt.turn) == ("opened", 2)
    assert (receipt.first_seq, receipt.last_seq) == (opened.seq, start.seq)
    told: list[object] = []
    stage.assistant.drain_outbox(lambda one: told.append(one.type))
    assert told[-2] in ("turn-finished", "turn-failed")
    assert told[-1] == "turn-started"


@pytest.mark.guarantee("G-QUEUE-15")
def test_nobody_holds_the_lease_of_the_next_turn_and_a_run_finds_it(stage: Stage) -> None:
    run = stage.open_turn()
    say(stage, run, "Next")
    assert stage.assistant.list_runnable() == []
    answer = stage.bot.append_events(**run, events=[delta("hm"), DONE], batch=1)
    kinds = ["text-delta", "turn-finish", "user-message", "turn-start"]
    assert [event.type for event in answer.events] == kinds
    again = stage.bot.append_events(**run, events=[delta("hm"), DONE], batch=1)
    assert (again.events, again.duplicate) == (answer.events, True)
    (found,) = stage.assistant.list_runnable()
    assert (found.thread_id, found.turn, found.why) == (run["thread_id"], 2, "no-run")
    for act in (
        lambda: stage.append(run, delta("late")),
        lambda: stage.append(run, DONE),
        lambda: stage.bot.beat_run(**run),
        lambda: stage.bot.take_inputs(**run),
        lambda: stage.bot.acquire_run(**run),
    ):
        with refused(ConflictReason.RUN_FENCED):
            act()
    assert stage.take(str(run["thread_id"]))["fence"] == int(str(run["fence"])) + 1
    assert list(stage.assistant.doctor()) == []


@pytest.mark.guarantee("G-QUEUE-15")
def test_a_batch_writes_nothing_more_once_it_has_let_the_next_turn_begin(stage: Stage) -> None:
    run = stage.open_turn()
    say(stage, run, "Next")
    before = dump(stage.engine)
    with refused(ConflictReason.NO_TURN_OPEN):
        stage.append(run, DONE, delta("into the next turn"))
    assert dump(stage.engine) == before


@pytest.mark.guarantee("G-QUEUE-04")
def test_no_message_opens_while_an_approval_waits(stage: Stage) -> None:
    run = stage.open_turn()
    say(stage, run, "Next")
    digest = wait_for_approval(stage, run)
    say(stage, run, "After that")
    assert stage.me.get_thread(thread_id=run["thread_id"]).turn_state == "awaiting"
    assert said(stage, run) == [(1, "Hello")]
    stage.approve(run, "c", digest)
    held = stage.take(str(run["thread_id"]))
    assert said(stage, run) == [(1, "Hello")]
    stage.append(held, DONE)
    assert said(stage, run) == [(1, "Hello"), (2, "Next")]
    assert stage.state_of(run, "c") == "cancelled"
    assert waiting(stage, run) == ["After that"]


@pytest.mark.guarantee("G-QUEUE-04")
def test_closing_takes_back_what_waits(stage: Stage) -> None:
    run = stage.open_turn()
    waits = [say(stage, run, text, key=text) for text in ("one", "two")]
    stage.me.close_thread(thread_id=run["thread_id"])
    assert stage.types(run) == ["user-message", "turn-start", "turn-finish"]
    items = stage.me.list_inputs(thread_id=run["thread_id"], state="cancelled").items
    assert [item.input_id for item in items] == [one.input_id for one in waits]
    assert {item.text for item in items} == {None}
    assert waiting(stage, run) == []
    for receipt in waits:
        answer = stage.me.cancel_input(thread_id=run["thread_id"], input_id=receipt.input_id)
        assert answer.state == "cancelled"
    with refused(ConflictReason.THREAD_CLOSED):
        say(stage, run, "three")
    assert stage.assistant.list_runnable() == []
    assert list(stage.assistant.doctor()) == []


# ---------------------------------------------------------------- the order


@pytest.mark.guarantee("G-QUEUE-05")
def test_what_comes_next_goes_first_and_the_rest_as_it_came(stage: Stage) -> None:
    run = stage.open_turn()
    for text, given in {
        "a": {},
        "b": {"priority": "next"},
        "c": {},
        "d": {"when_busy": "steer"},
        "e": {"when_busy": "interrupt"},
        "f": {"priority": "next"},
    }.items():
        say(stage, run, text, **given)
    order = ["b", "d", "e", "f", "a", "c"]
    assert waiting(stage, run) == order
    finish_all(stage, run)
    assert [text for _, text in said(stage, run)] == ["Hello", *order]
    assert [turn for turn, _ in said(stage, run)] == [1, 2, 3, 4, 5, 6, 7]
    page = stage.me.list_inputs(thread_id=run["thread_id"])
    assert [item.turn for item in page.items] == [1, 2, 3, 4, 5, 6, 7]
    assert list(stage.assistant.doctor()) == []


@pytest.mark.guarantee("G-QUEUE-05")
def test_a_message_that_comes_between_two_turns_goes_behind(stage: Stage) -> None:
    """An answer stands right behind its question, before what was said after that question."""
    run = stage.open_turn()
    say(stage, run, "two")
    say(stage, run, "three")
    stage.append(run, delta("one."), DONE)
    run = stage.take(str(run["thread_id"]))
    say(stage, run, "four")
    stage.append(run, delta("two."), DONE)
    finish_all(stage, run)
    events = stage.me.read_events(thread_id=str(run["thread_id"])).events
    texts = [event.text for event in events if event.type in ("user-message", "text-delta")]
    assert texts == ["Hello", "one.", "two", "two.", "three", "four"]


@pytest.mark.guarantee("G-QUEUE-06")
def test_messages_that_join_open_in_one_turn(stage: Stage) -> None:
    run = stage.open_turn()
    say(stage, run, "a")
    say(stage, run, "x", priority="next", coalesce=True)
    receipts = [say(stage, run, text, coalesce=True, key=text) for text in ("b", "c")]
    say(stage, run, "y", priority="next", coalesce=True)
    say(stage, run, "d")
    say(stage, run, "e", coalesce=True)
    assert waiting(stage, run) == ["x", "y", "a", "b", "c", "d", "e"]
    items = stage.me.list_inputs(thread_id=run["thread_id"], state="queued").items
    assert [item.joins for item in items] == [2, 2, 1, 1, 1, 6, 6]
    assert [item.position for item in items] == [2, 5, 1, 3, 4, 6, 7]
    finish_all(stage, run)
    turns = [(2, "x"), (2, "y"), (3, "a"), (3, "b"), (3, "c"), (4, "d"), (4, "e")]
    assert said(stage, run) == [(1, "Hello"), *turns]
    starts = [event for event in stage.types(run) if event == "turn-start"]
    assert len(starts) == 4
    again = [say(stage, run, text, key=text) for text in ("b", "c")]
    assert [one.input_id for one in again] == [one.input_id for one in receipts]
    assert again[0].first_seq + 1 == again[1].first_seq == again[1].last_seq - 1
    assert again[0].last_seq == again[1].last_seq
    assert list(stage.assistant.doctor()) == []


@pytest.mark.guarantee("G-QUEUE-06")
def test_who_joins_a_message_that_is_taken_back_keeps_the_place(stage: Stage) -> None:
    run = stage.open_turn()
    first = say(stage, run, "a")
    say(stage, run, "b", coalesce=True)
    say(stage, run, "c")
    stage.me.cancel_input(thread_id=run["thread_id"], input_id=first.input_id)
    say(stage, run, "d", coalesce=True)
    assert waiting(stage, run) == ["b", "c", "d"]
    finish_all(stage, run)
    assert said(stage, run)[1:] == [(2, "b"), (3, "c"), (3, "d")]
    assert list(stage.assistant.doctor()) == []


# ---------------------------------------------------------------- steering


@pytest.mark.guarantee("G-QUEUE-07")
def test_a_run_takes_steering_messages_into_its_turn_in_order(stage: Stage) -> None:
    run = stage.open_turn()
    say(stage, run, "later")
    receipts = [say(stage, run, text, when_busy="steer", key=text) for text in ("left", "right")]
    stage.clock.forward(10)
    taken = stage.bot.take_inputs(**run)
    assert [(event.type, event.text, event.turn) for event in taken.events] == [
        ("user-message", "left", 1),
        ("user-message", "right", 1),
    ]
    assert taken.interrupt_requested is False
    page = stage.me.read_events(thread_id=run["thread_id"], last=2)
    assert page.events == taken.events
    assert stage.bot.take_inputs(**run).events == ()
    for receipt, event in zip(receipts, taken.events, strict=True):
        again = say(stage, run, event.text, key=event.text)
        assert (again.input_id, again.state, again.turn) == (receipt.input_id, "absorbed", 1)
        assert (again.first_seq, again.last_seq, again.answer) == (event.seq, event.seq, None)
    assert waiting(stage, run) == ["later"]
    # Taking renews the lease.
    stage.clock.forward(14)
    with refused(ConflictReason.RUN_IN_PROGRESS):
        stage.take(str(run["thread_id"]), "r2")
    finish_all(stage, run)
    assert said(stage, run) == [(1, "Hello"), (1, "left"), (1, "right"), (2, "later")]
    assert list(stage.assistant.doctor()) == []


@pytest.mark.guarantee("G-QUEUE-06", "G-QUEUE-07")
def test_who_joined_a_message_that_a_run_took_in_keeps_the_place(stage: Stage) -> None:
    """A run takes what steers, and not what merely wanted to be in one turn with it."""
    run = stage.open_turn()
    say(stage, run, "left", when_busy="steer")
    say(stage, run, "with it", priority="next", coalesce=True)
    say(stage, run, "later")
    assert [event.text for event in stage.bot.take_inputs(**run).events] == ["left"]
    say(stage, run, "and this", priority="next", coalesce=True)
    assert waiting(stage, run) == ["with it", "and this", "later"]
    finish_all(stage, run)
    turns = [(1, "left"), (2, "with it"), (2, "and this"), (3, "later")]
    assert said(stage, run)[1:] == turns
    assert list(stage.assistant.doctor()) == []


@pytest.mark.guarantee("G-QUEUE-07")
def test_steering_that_comes_too_late_is_next(stage: Stage) -> None:
    run = stage.open_turn()
    say(stage, run, "later")
    say(stage, run, "left", when_busy="steer")
    stage.rest(run)
    assert said(stage, run) == [(1, "Hello"), (2, "left")]
    with refused(ConflictReason.RUN_FENCED):
        stage.bot.take_inputs(**run)


@pytest.mark.guarantee("G-QUEUE-07")
def test_only_the_holder_of_an_open_turn_takes(stage: Stage) -> None:
    run = stage.open_turn()
    say(stage, run, "left", when_busy="steer")
    wait_for_approval(stage, run)
    held = stage.take(str(run["thread_id"]))
    before = dump(stage.engine)
    with refused(ConflictReason.NO_TURN_OPEN):
        stage.bot.take_inputs(**held)
    for wrong in ({"fence": 9}, {"run_id": "r9"}):
        with refused(ConflictReason.RUN_FENCED):
            stage.bot.take_inputs(**{**held, **wrong})
    assert dump(stage.engine) == before
    stage.me.interrupt_turn(thread_id=run["thread_id"])
    assert said(stage, run) == [(1, "Hello"), (2, "left")]
    held = stage.take(str(run["thread_id"]))
    stage.me.interrupt_turn(thread_id=run["thread_id"])
    assert stage.bot.take_inputs(**held).interrupt_requested is True
    stage.me.close_thread(thread_id=run["thread_id"])
    with refused(ConflictReason.THREAD_CLOSED):
        stage.bot.take_inputs(**held)


@pytest.mark.guarantee("G-QUEUE-07")
def test_what_is_taken_right_after_a_turn_was_let_go_is_of_that_turn(stage: Stage) -> None:
    """The closings and the message are of one moment, as with a message that passes a turn by."""
    run = stage.open_turn()
    wait_for_approval(stage, run, expires_in=5.0)
    say(stage, run, "left", when_busy="steer")
    stage.clock.forward(5)
    held = stage.take(str(run["thread_id"]))
    stage.bot.take_inputs(**held)
    assert stage.types(run)[-2:] == ["call-closed", "user-message"]
    assert said(stage, run) == [(1, "Hello"), (1, "left")]
    assert list(stage.assistant.doctor()) == []


# ---------------------------------------------------------------- interrupting, superseding


@pytest.mark.guarantee("G-QUEUE-08")
def test_a_message_asks_a_live_run_to_stop_and_is_next(stage: Stage) -> None:
    run = stage.open_turn()
    say(stage, run, "later")
    receipt = say(stage, run, "no, stop", when_busy="interrupt")
    assert receipt.state == "queued"
    assert stage.bot.beat_run(**run).interrupt_requested
    stage.rest(run, "interrupted")
    assert said(stage, run) == [(1, "Hello"), (2, "no, stop")]
    assert not stage.bot.beat_run(**stage.take(str(run["thread_id"]))).interrupt_requested


@pytest.mark.guarantee("G-QUEUE-08")
@pytest.mark.parametrize("place", ["no live run", "waiting", "asked ten seconds ago"])
def test_a_message_ends_a_turn_that_nobody_runs_and_opens_the_next(
    stage: Stage, place: str
) -> None:
    run = stage.open_turn()
    say(stage, run, "later")
    if place == "waiting":
        wait_for_approval(stage, run)
    elif place == "no live run":
        stage.clock.forward(15)
    else:
        stage.me.interrupt_turn(thread_id=run["thread_id"])
        stage.clock.forward(10)
        stage.bot.beat_run(**run)
    receipt = say(stage, run, "no, this", when_busy="interrupt")
    assert (receipt.state, receipt.turn) == ("opened", 2)
    assert stage.types(run)[-3:] == ["turn-finish", "user-message", "turn-start"]
    with refused(ConflictReason.RUN_FENCED):
        stage.append(run, delta("late"))
    if place == "waiting":
        assert stage.state_of(run, "c") == "cancelled"
    finish_all(stage, run)
    assert said(stage, run) == [(1, "Hello"), (2, "no, this"), (3, "later")]
    assert list(stage.assistant.doctor()) == []


@pytest.mark.guarantee("G-QUEUE-08")
@pytest.mark.parametrize("lapsed", [True, False])
@pytest.mark.parametrize("coalesce", [True, False])
def test_of_two_that_interrupt_the_first_is_first(
    stage: Stage, *, lapsed: bool, coalesce: bool
) -> None:
    run = stage.open_turn()
    say(stage, run, "no, stop", when_busy="interrupt")
    if lapsed:
        stage.propose(run, "c")
        stage.ask(run, "c", expires_in=20)
        stage.rest(run, "awaiting-approval")
    stage.clock.forward(30)
    receipt = say(stage, run, "hello?", when_busy="interrupt", coalesce=coalesce)
    assert (receipt.state, receipt.turn) == (("opened", 2) if coalesce else ("queued", 0))
    finish_all(stage, run)
    turns = (2, 2) if coalesce else (2, 3)
    assert said(stage, run) == [(1, "Hello"), (turns[0], "no, stop"), (turns[1], "hello?")]
    assert list(stage.assistant.doctor()) == []


@pytest.mark.guarantee("G-QUEUE-09")
@pytest.mark.parametrize("when_busy", ["refuse", "queue", "steer", "interrupt"])
def test_a_message_that_supersedes_goes_before_the_queue(stage: Stage, when_busy: str) -> None:
    run = stage.open_turn()
    say(stage, run, "later", priority="next")
    wait_for_approval(stage, run)
    receipt = say(stage, run, "instead", supersede_approvals=True, when_busy=when_busy)
    assert (receipt.state, receipt.turn) == ("opened", 2)
    assert stage.state_of(run, "c") == "superseded"
    assert waiting(stage, run) == ["later"]
    finish_all(stage, run)
    assert said(stage, run) == [(1, "Hello"), (2, "instead"), (3, "later")]


@pytest.mark.guarantee("G-QUEUE-09")
@pytest.mark.parametrize("when_busy", ["queue", "steer"])
def test_a_message_that_may_wait_passes_nobody_when_the_approvals_lapsed(
    stage: Stage, when_busy: str
) -> None:
    run = stage.open_turn()
    say(stage, run, "later", priority="next")
    wait_for_approval(stage, run, expires_in=10.0)
    stage.clock.forward(10)
    assert say(stage, run, "last", when_busy=when_busy).state == "queued"
    assert stage.state_of(run, "c") == "awaiting-approval"
    # The turn that waits in vain is found, goes on, and ends; then the line moves.
    (found,) = stage.assistant.list_runnable()
    assert (found.turn, found.why) == (1, "approvals-lapsed")
    finish_all(stage, stage.take(str(run["thread_id"])))
    assert said(stage, run) == [(1, "Hello"), (2, "later"), (3, "last")]


@pytest.mark.guarantee("G-QUEUE-09")
@pytest.mark.parametrize("when_busy", ["refuse", "queue", "steer", "interrupt"])
def test_with_nobody_in_line_lapsed_approvals_hold_no_message_back(
    stage: Stage, when_busy: str
) -> None:
    run = stage.open_turn()
    wait_for_approval(stage, run, expires_in=10.0)
    stage.clock.forward(10)
    assert say(stage, run, "now", when_busy=when_busy).state == "opened"
    assert stage.state_of(run, "c") == "expired"
    assert said(stage, run) == [(1, "Hello"), (2, "now")]


@pytest.mark.guarantee("G-QUEUE-09")
def test_a_message_that_may_not_wait_is_refused_as_ever(stage: Stage) -> None:
    run = stage.open_turn()
    say(stage, run, "later")
    with refused(ConflictReason.TURN_IN_PROGRESS, turn=1):
        say(stage, run, "now", when_busy="refuse")
    wait_for_approval(stage, run, expires_in=10.0)
    with refused(ConflictReason.APPROVAL_PENDING, turn=1):
        say(stage, run, "now", when_busy="refuse")
    stage.clock.forward(10)
    assert say(stage, run, "now", when_busy="refuse").turn == 2
    assert waiting(stage, run) == ["later"]


# ---------------------------------------------------------------- sizes


@pytest.mark.guarantee("G-QUEUE-14")
def test_text_at_the_edge_waits_and_opens_byte_for_byte(engine: sa.Engine) -> None:
    stage = Stage(engine)
    run = stage.open_turn()
    text = "\N{PILE OF POO}" * (64 * 256 - 1) + "a\0\n\\"
    assert len(text.encode()) == 64 * 1024
    say(stage, run, text)
    with pytest.raises(ValidationFailed):
        say(stage, run, text + "a")
    assert waiting(stage, run) == [text]
    stage.rest(run)
    assert said(stage, run)[-1] == (2, text)


@pytest.mark.guarantee("G-QUEUE-14")
def test_what_could_not_be_an_event_is_refused_when_it_is_sent(stage: Stage) -> None:
    """64 KiB of NUL are 384 KiB as JSON: too long for an event, also for one that comes later."""
    run = stage.open_turn()
    waits = say(stage, run, "short")
    before = dump(stage.engine)
    for when_busy in ("queue", "steer", "interrupt"):
        with pytest.raises(ValidationFailed):
            say(stage, run, "\0" * 64 * 1024, when_busy=when_busy)
    with pytest.raises(ValidationFailed):
        stage.me.edit_input(
            thread_id=run["thread_id"], input_id=waits.input_id, text="\0" * 64 * 1024
        )
    assert dump(stage.engine) == before


@pytest.mark.guarantee("G-QUEUE-14")
def test_what_was_admitted_opens_whatever_the_limits_are_by_then(stage: Stage) -> None:
    run = stage.open_turn()
    say(stage, run, "x" * 1000)
    say(stage, run, "y" * 1000)
    small = Limits(message_bytes=1, event_bytes=100, queued_inputs=1)
    host = Assistant(stage.engine, clock=stage.clock, limits=small).acting_as(ROBOT)
    host.append_events(**run, events=[DONE])
    assert said(stage, run)[-1] == (2, "x" * 1000)
