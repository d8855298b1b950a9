"""A busy thread: what is said meanwhile waits, and is taken up once, in its order."""

from collections.abc import Callable
from functools import partial

from engine_assistant import ConflictReason
from engine_assistant.model.events import UserMessage
from engine_assistant.model.views import MessageReceipt
from engine_assistant.testing.conformance.scenario import shows
from engine_assistant.testing.conformance.stage import Held, Stage, finish, later, words


def _say(
    stage: Stage,
    held: Held,
    text: str,
    when_busy: str = "queue",
    *,
    key: str | None = None,
    priority: str = "normal",
    coalesce: bool = False,
) -> MessageReceipt:
    """Say something that may wait, under its own text as key."""
    return stage.me.send_message(
        thread_id=held["thread_id"],
        text=text,
        key=key or text,
        when_busy=when_busy,
        priority=priority,
        coalesce=coalesce,
    )


def _waiting(stage: Stage, thread_id: str) -> list[str | None]:
    """Return what waits, in the order in which it will be taken up."""
    items = stage.me.list_inputs(thread_id=thread_id, state="queued").items
    assert stage.me.get_thread(thread_id=thread_id).queued == len(items)
    return [item.text for item in items]


def _said(stage: Stage, thread_id: str) -> list[tuple[int, str]]:
    """Return what the person said by the log, each with its turn."""
    log = stage.log(thread_id)
    return [(event.turn, event.text) for event in log if isinstance(event, UserMessage)]


def _finish_all(stage: Stage, thread_id: str) -> None:
    """Answer one turn after the other, until nobody waits."""
    while stage.me.get_thread(thread_id=thread_id).turn_state == "open":
        stage.bot.append_events(**stage.take(thread_id), events=[words("Yes."), finish()])


@shows("G-QUEUE-02", "G-QUEUE-03", "G-QUEUE-05", "G-QUEUE-15")
def messages_wait_and_each_opens_its_turn(stage: Stage) -> None:
    """The end of a turn opens the next one, in order; the run before writes nothing into it."""
    held = stage.running()
    thread_id = held["thread_id"]
    before = stage.log(thread_id)
    told = [
        _say(stage, held, "first"),
        _say(stage, held, "second"),
        _say(stage, held, "urgent", priority="next"),
    ]
    assert {(one.state, one.turn, one.first_seq, one.last_seq) for one in told} == {
        ("queued", 0, 0, 0)
    }
    assert stage.log(thread_id) == before
    assert _waiting(stage, thread_id) == ["urgent", "first", "second"]
    rest = stage.bot.append_events(**held, events=[words("Done."), finish()])
    # The next turn is there with the answer to what ended the one before.
    assert [event.type for event in rest.events][1:] == [
        "turn-finish",
        "user-message",
        "turn-start",
    ]
    with stage.refused(ConflictReason.RUN_FENCED, thread_id):
        stage.bot.append_events(**held, events=[words("late")])
    _finish_all(stage, thread_id)
    opened = [(2, "urgent"), (3, "first"), (4, "second")]
    assert _said(stage, thread_id)[1:] == opened
    assert stage.me.get_thread(thread_id=thread_id).turn_state == "idle"


@shows("G-QUEUE-07")
def a_run_takes_steering_messages_into_its_turn(stage: Stage) -> None:
    """In order, once, and under its lease; what steers too late is next."""
    held = stage.running()
    thread_id = held["thread_id"]
    _say(stage, held, "later")
    for text in ("left", "right"):
        _say(stage, held, text, when_busy="steer")
    with stage.refused(ConflictReason.RUN_FENCED, thread_id):
        stage.bot.take_inputs(**later(held))
    taken = stage.bot.take_inputs(**held).events
    assert taken == stage.log(thread_id)[-2:]
    assert _said(stage, thread_id)[1:] == [(1, "left"), (1, "right")]
    assert stage.bot.take_inputs(**held).events == ()
    _say(stage, held, "too late", when_busy="steer")
    stage.bot.append_events(**held, events=[finish()])
    _finish_all(stage, thread_id)
    assert _said(stage, thread_id)[3:] == [(2, "too late"), (3, "later")]


@shows("G-QUEUE-06")
def messages_that_join_open_in_one_turn(stage: Stage) -> None:
    """Each is an event of its own, in the order in which they came."""
    held = stage.running()
    _say(stage, held, "a")
    for text in ("b", "c"):
        _say(stage, held, text, coalesce=True)
    _say(stage, held, "d")
    stage.bot.append_events(**held, events=[finish()])
    _finish_all(stage, held["thread_id"])
    joined = [(2, "a"), (2, "b"), (2, "c"), (3, "d")]
    assert _said(stage, held["thread_id"])[1:] == joined


@shows("G-QUEUE-08", "G-QUEUE-01")
def a_message_that_interrupts_is_next(stage: Stage) -> None:
    """A live run is asked to stop; without one the turn ends, and the message opens at once."""
    held = stage.running()
    thread_id = held["thread_id"]
    _say(stage, held, "later")
    assert _say(stage, held, "stop", when_busy="interrupt").state == "queued"
    assert stage.bot.beat_run(**held).interrupt_requested is True
    stage.bot.append_events(**held, events=[finish("interrupted")])
    assert _said(stage, thread_id)[1:] == [(2, "stop")]
    sent = _say(stage, held, "not that either", when_busy="interrupt")
    assert (sent.state, sent.turn) == ("opened", 3)
    assert _waiting(stage, thread_id) == ["later"]
    idle = Held(thread_id=stage.me.create_thread().id, run_id="run-a", fence=0)
    assert _say(stage, idle, "Hello", when_busy="interrupt").state == "opened"


@shows("G-QUEUE-12", "G-QUEUE-19")
def a_message_that_waits_can_be_changed_or_taken_back(stage: Stage) -> None:
    """It keeps its place; once a turn holds it, it is settled."""
    held = stage.running()
    thread_id = held["thread_id"]
    first, second, third = (_say(stage, held, text).input_id for text in ("a", "b", "c"))
    stage.me.edit_input(thread_id=thread_id, input_id=first, text="A")
    for _ in range(2):  # taken back again, it is answered as before
        assert stage.me.cancel_input(thread_id=thread_id, input_id=second).state == "cancelled"
    assert _waiting(stage, thread_id) == ["A", "c"]
    with stage.refused(ConflictReason.INPUT_SETTLED, thread_id):
        stage.me.edit_input(thread_id=thread_id, input_id=second, text="B")
    stage.bot.append_events(**held, events=[finish()])
    with stage.refused(ConflictReason.INPUT_SETTLED, thread_id):
        stage.me.cancel_input(thread_id=thread_id, input_id=first)
    with stage.refused(ConflictReason.INPUT_SETTLED, thread_id):
        stage.me.edit_input(thread_id=thread_id, input_id=first, text="again")
    _finish_all(stage, thread_id)
    assert _said(stage, thread_id)[1:] == [(2, "A"), (3, "c")]
    listed = stage.auditor.list_inputs(thread_id=thread_id).items[1:]
    assert [(item.input_id, item.state) for item in listed] == [
        (first, "opened"),
        (third, "opened"),
        (second, "cancelled"),
    ]


@shows("G-QUEUE-10", "G-QUEUE-11", "G-QUEUE-20")
def a_key_answers_how_its_message_stands(stage: Stage) -> None:
    """Waiting, edited, opened, answered and closed: one message, and at last what was answered."""
    held = stage.running()
    thread_id = held["thread_id"]
    sent = stage.at_once([partial(_say, stage, held, "And order 8?")] * 4)
    receipts = [one for one in sent if isinstance(one, MessageReceipt)]
    assert [one.duplicate for one in receipts].count(False) == 1
    (input_id,) = {one.input_id for one in receipts}
    stage.me.edit_input(thread_id=thread_id, input_id=input_id, text="And order 9?")

    def again() -> tuple[str, int, str | None]:
        told = _say(stage, held, "And order 8?")
        assert (told.input_id, told.duplicate) == (input_id, True)
        return told.state, told.turn, told.answer.text if told.answer else None

    assert again() == ("queued", 0, None)
    with stage.refused(ConflictReason.KEY_REUSED, thread_id):
        _say(stage, held, "And order 9?", key="And order 8?")
    stage.bot.append_events(**held, events=[finish()])
    assert again() == ("opened", 2, None)
    held = stage.take(thread_id)
    stage.bot.append_events(**held, events=[words("It was "), words("sent."), finish()])
    assert again() == ("opened", 2, "It was sent.")
    stage.me.close_thread(thread_id=thread_id)
    assert again() == ("opened", 2, "It was sent.")
    assert _said(stage, thread_id)[1:] == [(2, "And order 9?")]


@shows("G-QUEUE-04")
def nothing_opens_while_an_approval_waits_or_after_a_close(stage: Stage) -> None:
    """The turn that waits for people keeps its place; closing takes back what waits."""
    held = stage.running()
    thread_id = held["thread_id"]
    waits = _say(stage, held, "And order 8?").input_id
    stage.ask(held)
    stage.bot.append_events(**held, events=[finish("awaiting-approval")])
    assert stage.me.get_thread(thread_id=thread_id).turn_state == "awaiting"
    assert _waiting(stage, thread_id) == ["And order 8?"]
    stage.me.close_thread(thread_id=thread_id)
    assert _waiting(stage, thread_id) == []
    (item,) = stage.me.list_inputs(thread_id=thread_id, state="cancelled").items
    assert (item.input_id, item.text) == (waits, None)
    assert len(_said(stage, thread_id)) == 1


@shows("G-QUEUE-20", "G-QUEUE-21", "G-RACE-15")
def of_many_senders_nobody_is_forgotten(stage: Stage) -> None:
    """Sent at once, while turns end: each message is in the log once, one in each turn."""
    thread_id = stage.me.create_thread().id
    nobody = Held(thread_id=thread_id, run_id="run-a", fence=0)
    texts = [f"Hello {n}" for n in range(6)]
    _say(stage, nobody, texts[0])

    sides: list[Callable[[], object]] = [
        *(partial(_say, stage, nobody, text) for text in texts),
        partial(_finish_all, stage, thread_id),
    ]
    stage.at_once(sides)
    _finish_all(stage, thread_id)
    said = _said(stage, thread_id)
    assert sorted(text for _, text in said) == texts
    assert [turn for turn, _ in said] == list(range(1, len(texts) + 1))
