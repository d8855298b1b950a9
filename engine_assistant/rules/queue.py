"""Messages that wait for their turn: how they get in line, and how the next of them opens one.

Nothing of a message that waits is in the log, so whatever the log says came before what follows it.
The line moves in the transaction that brings a turn to rest, and at no other time: a thread that is
idle has no line, and nobody has to come and look.
"""

from collections.abc import Sequence
from dataclasses import replace

from pydantic import ValidationError

from engine_assistant.model.errors import Conflict, ConflictReason, Internal
from engine_assistant.model.events import STREAM_VERSION, TurnStart, UserMessage
from engine_assistant.model.machines import INPUT, TURN, Trigger
from engine_assistant.model.milestones import MilestoneType
from engine_assistant.model.rows import InputRow
from engine_assistant.rules.closing import raise_fence
from engine_assistant.rules.draft import Draft

__all__ = ["begin_turn", "cancel_queue", "enqueue", "leave", "message_of", "open_next"]


def message_of(row: InputRow) -> UserMessage:
    """Return what waits: its body is that of the event it will be.

    Raises:
        Internal: it cannot be read, so the record is broken.
    """
    try:
        return UserMessage.model_validate_json(row.body or "")
    except ValidationError:
        pass
    raise Internal("A message that waits cannot be read.", input_id=row.id)


def enqueue(draft: Draft, row: InputRow, message: UserMessage, *, coalesce: bool) -> InputRow:
    """Put a new message in line and return it as it stands there.

    It goes behind all of its priority. `coalesce`: into the turn of the last of them.

    Raises:
        ValidationFailed: its event would be too long.
        Conflict: `queue_full`.
    """
    if draft.thread.queued >= draft.limits.queued_inputs:
        raise Conflict(
            ConflictReason.QUEUE_FULL,
            "As many messages wait as may. Wait for the next turn, or take one back.",
            queued=draft.thread.queued,
        )
    waiting = draft.queued_inputs()
    position = 1 + max((other.position for other in waiting), default=0)
    alike = [other.joins for other in waiting if other.priority is row.priority]
    queued = replace(
        row,
        state=INPUT.step(Trigger.QUEUE, None),
        position=position,
        joins=alike[-1] if coalesce and alike else position,
        body=draft.bounded(message),
        queued_at=draft.now,
    )
    draft.put(queued)
    draft.thread = replace(draft.thread, queued=draft.thread.queued + 1)
    return queued


def leave(
    draft: Draft,
    row: InputRow,
    trigger: Trigger,
    *,
    turn: int = 0,
    first_seq: int = 0,
    last_seq: int = 0,
) -> InputRow:
    """Let a message leave the line: a turn holds it, or it was taken back."""
    left = replace(
        row,
        state=INPUT.step(trigger, row.state),
        turn=turn,
        first_seq=first_seq,
        last_seq=last_seq,
        body=None,
    )
    draft.put(left)
    draft.thread = replace(draft.thread, queued=draft.thread.queued - 1)
    return left


def begin_turn(
    draft: Draft, trigger: Trigger, messages: Sequence[tuple[UserMessage, str | None]]
) -> tuple[list[int], int]:
    """Open a turn: a user-message each, then `turn-start`. Whoever still has a lease loses it.

    A body that is given was bounded when the message got in line.

    Returns:
        The number of each message, and that of the turn-start.
    """
    if draft.thread.run_id is not None:
        raise_fence(draft, "superseded")
    draft.thread = replace(
        draft.thread,
        turn_state=TURN.step(trigger, draft.thread.turn_state),
        turn=draft.thread.turn + 1,
        open_since=draft.now,
        next_deadline=None,
        interrupt_requested_at=None,
        last_active_at=max(draft.now, draft.thread.last_active_at),
        context_bytes=0,
    )
    firsts = [draft.record(event, body, admitted=body is not None) for event, body in messages]
    last = draft.record(TurnStart(v=STREAM_VERSION))
    draft.announce(MilestoneType.TURN_STARTED, turn=draft.thread.turn)
    return firsts, last


def open_next(draft: Draft) -> None:
    """Let the next in line open a turn, with all that joined it. The turn has come to rest."""
    waiting = draft.queued_inputs()
    if not waiting:
        return
    group = [row for row in waiting if row.joins == waiting[0].joins]
    firsts, last = begin_turn(
        draft, Trigger.OPEN_NEXT, [(message_of(row), row.body) for row in group]
    )
    for row, first in zip(group, firsts, strict=True):
        leave(
            draft,
            row,
            Trigger.OPEN_NEXT,
            turn=draft.thread.turn,
            first_seq=first,
            last_seq=last,
        )


def cancel_queue(draft: Draft) -> None:
    """Take back every message that waits: no turn will come."""
    for row in draft.queued_inputs():
        leave(draft, row, Trigger.CLOSE)
