"""Turns: which event may stand where, and when somebody may speak.

A turn begins with a message, or with several that waited for it, and its turn-start. While it is
open everything may come, and a message that comes then was taken in by its run. While it waits for
people only they, a request asked again, and the end of a call may. When it rests nothing may come
but the next message, and what became of a call: its late result, or what a person knows of it. What
was said before the thread began stands in turn 0, before all turns.
"""

from engine_assistant.doctor.derived import Derived, Message
from engine_assistant.doctor.findings import Code
from engine_assistant.model.commands.inputs import ABANDONED
from engine_assistant.model.digests import arguments_digest
from engine_assistant.model.events import (
    STREAM_VERSION,
    ApprovalRequest,
    ApprovalResolved,
    CallClosed,
    Known,
    SeededMessage,
    ToolError,
    ToolOutput,
    TurnError,
    TurnFinish,
    TurnStart,
    UnknownResolved,
    UserMessage,
)
from engine_assistant.model.machines import CallState, TurnState
from engine_assistant.model.milestones import MilestoneType

__all__ = ["admit", "end", "rest", "turn_start", "user_message"]


def admit(derived: Derived, event: Known, seq: int, at: str, turn: object) -> None:
    """Note an event that may not stand where it stands. `turn` is the one it is counted to."""
    _date(derived, seq, at)
    if derived.starting and not isinstance(event, TurnStart | UserMessage):
        derived.starting.clear()
        derived.notes.add(Code.ORDER, f"event {seq}", "A turn-start must follow a message.")
    if not _admits(derived, event, seq, at, turn):
        state = derived.turn_state.value
        derived.notes.add(
            Code.ORDER,
            f"event {seq}",
            f"No {event.type} may stand here, where the turn is {state}.",
        )


def _date(derived: Derived, seq: int, at: str) -> None:
    """Keep where the log goes on after the thread was closed.

    Times do not order events: a clock may step back. But a closing leaves no turn open, so what
    was written after it begins at rest, and nothing dated before it follows.
    """
    if derived.closed_at is None or at <= derived.closed_at:
        derived.after_close = None
    elif derived.after_close is None and derived.turn_state is TurnState.IDLE:
        derived.after_close = seq


def _admits(derived: Derived, event: Known, seq: int, at: str, turn: object) -> bool:
    state = derived.turn_state
    match event:
        case TurnStart():
            return bool(derived.starting)
        case UserMessage():
            # The closings that let a waiting turn go are of the same moment as the message.
            passes_by = derived.let_go == (seq - 1, at)
            return state is TurnState.IDLE or passes_by or _joins(derived, turn)
        case SeededMessage():
            return derived.turn == 0
        case ToolOutput() | ToolError() if event.late:
            return True
        case UnknownResolved():
            return True
    if state is TurnState.AWAITING:
        match event:
            case ApprovalResolved() | CallClosed():
                return True
            case ApprovalRequest():
                call = derived.calls.get(event.call_id)
                waits = call is not None and call.state is CallState.AWAITING
                return event.reissue and waits
    return state is TurnState.OPEN


def user_message(derived: Derived, event: UserMessage, seq: int, at: str, turn: object) -> None:
    """A message opens the next turn, alone or with others, or is taken into the one that is open.

    `turn` is the one that it is counted to: it says which.
    """
    files = None if event.files is None else [part.id for part in event.files]
    message = Message(
        author=event.author,
        digest=arguments_digest([event.text, files]),
        turn=derived.turn,
        first_seq=seq,
    )
    if _joins(derived, turn) and not derived.starting:
        message.last_seq = seq
    else:
        if not derived.starting:
            _leave_none_open(derived, seq)
            derived.turn += 1
            derived.turn_state = TurnState.OPEN
            derived.open_since = at
            derived.last_active_at = max(derived.last_active_at, at)
        message.turn = derived.turn
        derived.starting.append(message)
    if event.input_id in derived.messages:
        derived.notes.add(Code.INPUT_ROW, f"event {seq}", "Its input id was used before.")
    derived.messages[event.input_id] = message


def _joins(derived: Derived, turn: object) -> bool:
    """Return whether a message counted to `turn` belongs to the turn that is open."""
    return derived.turn_state is TurnState.OPEN and turn == derived.turn


def turn_start(derived: Derived, event: TurnStart, seq: int, at: str) -> None:
    """The turn of the messages before begins."""
    if event.v != STREAM_VERSION:
        derived.notes.add(
            Code.STREAM_VERSION, f"event {seq}", f"It says {event.v} instead of {STREAM_VERSION}."
        )
    if derived.starting:
        for message in derived.starting:
            message.last_seq = seq
        derived.starting.clear()
        derived.milestones.expect(MilestoneType.TURN_STARTED, at, turn=derived.turn)


def rest(derived: Derived, event: TurnFinish | TurnError, seq: int, at: str) -> None:
    """The turn rests: for good, or until somebody answers."""
    waits = isinstance(event, TurnFinish) and event.reason == "awaiting-approval"
    _leave_none_open(derived, seq, besides=CallState.AWAITING if waits else None)
    if waits and not derived.waiting():
        derived.notes.add(Code.ORDER, f"event {seq}", "It waits, and no call waits for approval.")
    derived.turn_state = TurnState.AWAITING if waits else TurnState.IDLE
    derived.open_since = None
    derived.last_active_at = max(derived.last_active_at, at)
    derived.rests[at] += 1
    reason = event.reason if isinstance(event, TurnFinish) else "error"
    derived.rest_reasons.add((at, reason))
    if isinstance(event, TurnError):
        # Anybody may give a turn up, and only a run tells of any other error.
        derived.own_rests[at] += event.code != ABANDONED
        derived.milestones.expect(MilestoneType.TURN_FAILED, at, turn=derived.turn, code=event.code)
    else:
        # A person, too, ends a turn as interrupted; any other reason is a run's.
        derived.own_rests[at] += event.reason != "interrupted"
        derived.milestones.expect(
            MilestoneType.TURN_FINISHED, at, turn=derived.turn, reason=event.reason
        )


def end(derived: Derived) -> None:
    """Note what the end of the log leaves undone."""
    where = f"event {derived.last_seq}"
    if derived.starting:
        derived.notes.add(Code.ORDER, where, "The log ends between a message and its turn-start.")
    if derived.after_close is not None:
        place, message = f"event {derived.after_close}", "It is dated after the thread was closed."
        derived.notes.add(Code.AFTER_CLOSE, place, message)
    if derived.closed_at is not None and derived.turn_state is not TurnState.IDLE:
        derived.notes.add(Code.ORDER, where, "The thread is closed, and its last turn never ended.")


def _leave_none_open(derived: Derived, seq: int, *, besides: CallState | None = None) -> None:
    for call in derived.open_calls.values():
        if call.state is not besides:
            derived.notes.add(
                Code.LEFT_OPEN, call.where, f"It was {call.state.value} when event {seq} came."
            )
