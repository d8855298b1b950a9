"""How a turn ends: a person stops or closes it, its own run rests it, or it is given up.

Whoever ends a turn that another one runs takes the lease with it, so that a process which slept
through the end can write nothing into the next turn.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Final

from engine_assistant.model.commands.inputs import ABANDONED, AbandonTurn
from engine_assistant.model.errors import Conflict, ConflictReason
from engine_assistant.model.events import TurnError, TurnFinish
from engine_assistant.model.machines import Ending, ThreadStatus, Trigger, TurnState
from engine_assistant.model.milestones import MilestoneType
from engine_assistant.model.rows import Plan, ThreadRow
from engine_assistant.model.views import Interrupt
from engine_assistant.model.views.inputs import Abandoned
from engine_assistant.rules.closing import close_calls, end_run, raise_fence, rest
from engine_assistant.rules.draft import Draft
from engine_assistant.rules.queue import cancel_queue, open_next

__all__ = [
    "INTERRUPT_PATIENCE",
    "abandon_turn",
    "close_thread",
    "end_or_ask",
    "finish_turn",
    "interrupt_turn",
    "no_turn_open",
    "refuse_closed",
]

INTERRUPT_PATIENCE: Final = timedelta(seconds=10)
"""How long a live run may take to stop. Asked again after that, the turn ends without it."""


def refuse_closed(thread: ThreadRow) -> None:
    """Refuse everything that would append to a closed thread.

    Raises:
        Conflict: `thread_closed`.
    """
    if thread.status is ThreadStatus.CLOSED:
        raise Conflict(ConflictReason.THREAD_CLOSED, "The thread is closed. Open a new one.")


def no_turn_open() -> Conflict:
    """Return the refusal of what only an open turn admits; the rule raises it."""
    return Conflict(ConflictReason.NO_TURN_OPEN, "No turn is open. There is nothing to run.")


def interrupt_turn(draft: Draft) -> Plan[Interrupt]:
    """Press the stop button. When the turn ends with it, the next in line opens.

    Raises:
        Conflict: `thread_closed`.
    """
    refuse_closed(draft.thread)
    if draft.thread.turn_state is TurnState.IDLE:
        return draft.plan(Interrupt(ended=False))
    told = end_or_ask(draft)
    if told.ended:
        open_next(draft)
    return draft.plan(told)


def end_or_ask(draft: Draft) -> Interrupt:
    """Stop the turn: now when nobody live runs it, else by asking its run.

    The owner is never locked out: asked again after `INTERRUPT_PATIENCE`, the turn ends.
    """
    asked = draft.thread.interrupt_requested_at
    if asked is not None:
        # A clock that was set back would else keep the owner out for as long.
        asked = min(asked, draft.now)
    runs = draft.thread.turn_state is TurnState.OPEN and draft.thread.has_live_run(draft.now)
    if runs and (asked is None or draft.now - asked < INTERRUPT_PATIENCE):
        asked = asked or draft.now
        draft.thread = replace(draft.thread, interrupt_requested_at=asked)
        return Interrupt(ended=False, requested_at=asked)
    _end_turn(draft, TurnFinish(reason="interrupted"), "interrupted")
    raise_fence(draft, "interrupted")
    return Interrupt(ended=True, requested_at=asked)


def abandon_turn(draft: Draft, command: AbandonTurn) -> Plan[Abandoned]:
    """Give a turn up as failed, whoever ran it. The next in line opens.

    Raises:
        Conflict: `thread_closed`; `no_turn_open` when it is over; `run_fenced` when the fence is
            not the one in force; `run_in_progress` while a run is live and its fence is not given.
    """
    refuse_closed(draft.thread)
    if draft.thread.turn_state is TurnState.IDLE or command.turn not in (None, draft.thread.turn):
        raise no_turn_open()
    if command.fence not in (None, draft.thread.fence):
        raise Conflict(
            ConflictReason.RUN_FENCED,
            "Another run took the turn over meanwhile.",
            fence=draft.thread.fence,
        )
    if command.fence is None and draft.thread.has_live_run(draft.now):
        raise Conflict(
            ConflictReason.RUN_IN_PROGRESS,
            "A run is at work. Give its fence to end its turn all the same.",
            fence=draft.thread.fence,
        )
    turn = draft.thread.turn
    seq = _end_turn(draft, TurnError(code=ABANDONED, message=command.reason), ABANDONED)
    raise_fence(draft, ABANDONED)
    open_next(draft)
    return draft.plan(Abandoned(turn=turn, seq=seq))


def close_thread(draft: Draft) -> Plan[ThreadRow]:
    """Close the thread for ever. A turn that is not idle ends as interrupted, what waits too."""
    if draft.thread.status is ThreadStatus.CLOSED:
        return draft.plan(draft.thread)
    if draft.thread.turn_state is not TurnState.IDLE:
        _end_turn(draft, TurnFinish(reason="interrupted"), "closed")
    raise_fence(draft, "closed", Trigger.CLOSE)
    cancel_queue(draft)
    draft.thread = replace(draft.thread, status=ThreadStatus.CLOSED, closed_at=draft.now)
    draft.announce(MilestoneType.THREAD_CLOSED)
    return draft.plan(draft.thread)


def _end_turn(draft: Draft, event: TurnFinish | TurnError, why: str) -> int:
    """End a turn from outside; return the number of its last event."""
    close_calls(draft, Ending.ENDED, why)
    seq = draft.record(event)
    rest(draft, Trigger.END)
    _announce(draft, event)
    return seq


def finish_turn(draft: Draft, event: TurnFinish | TurnError, body: str) -> None:
    """Rest the turn by its own run's event, and give the lease up with it.

    A turn that is over lets the next in line open one; a turn that waits for people does not.

    Raises:
        Conflict: `no_approval_pending` when it would wait and nothing unlapsed waits;
            `approval_pending` when it says `done` while a call waits;
            `execution_not_claimed` when it would wait while an approved call is unclaimed.
    """
    reason = event.reason if isinstance(event, TurnFinish) else "error"
    if reason == "awaiting-approval":
        if all(draft.has_lapsed(call) for call in draft.waiting_calls()):
            raise Conflict(
                ConflictReason.NO_APPROVAL_PENDING, "No call waits for approval any more."
            )
        close_calls(draft, Ending.RESTED, "turn-finish")
    elif reason == "done":
        close_calls(draft, Ending.DONE, "turn-finish")
    else:
        close_calls(draft, Ending.FINISHED, event.type)
    draft.record(event, body)
    trigger = Trigger.REST if reason == "awaiting-approval" else Trigger.FINISH
    rest(draft, trigger)
    end_run(draft, trigger, reason)
    _announce(draft, event)
    if draft.thread.turn_state is TurnState.IDLE:
        open_next(draft)


def _announce(draft: Draft, event: TurnFinish | TurnError) -> None:
    if isinstance(event, TurnError):
        draft.announce(MilestoneType.TURN_FAILED, turn=draft.thread.turn, code=event.code)
    else:
        draft.announce(MilestoneType.TURN_FINISHED, turn=draft.thread.turn, reason=event.reason)
