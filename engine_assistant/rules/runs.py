"""The lease: who may write the assistant's side, and until when; and what its holder leaves behind.

A fence names one holding of the lease and is never given twice. It rises on every acquisition,
also by the same run id, because the second of two processes that share a run id is another
writer. Every write of a run carries its fence and is refused when the thread's fence is another.
A lease that has run out still writes, and is renewed by it, until somebody takes it.

Each holding is a row that stays: when and by what it ended, what it used up, what it did last.
"""

from dataclasses import replace

from engine_assistant.model.commands import AcquireRun, BeatRun, ReleaseRun
from engine_assistant.model.commands.runs import RecordOperation
from engine_assistant.model.errors import Conflict, ConflictReason, Internal
from engine_assistant.model.machines import RUN, Ending, Trigger, TurnState
from engine_assistant.model.rows import Plan, RunRow, ThreadRow
from engine_assistant.model.times import later
from engine_assistant.model.usage import Usage
from engine_assistant.model.views import Beat, Lease, Released
from engine_assistant.model.views.runs import RunOperation
from engine_assistant.rules.closing import (
    close_calls,
    end_run,
    expire_lapsed,
    raise_fence,
    reopen,
)
from engine_assistant.rules.draft import Draft
from engine_assistant.rules.turns import no_turn_open, refuse_closed

__all__ = [
    "acquire_run",
    "beat_run",
    "holds_lease",
    "keep_usage",
    "record_operation",
    "refuse_fenced",
    "release_run",
    "renew",
]


def holds_lease(thread: ThreadRow, run_id: str, fence: int) -> bool:
    """Return whether this run, under this fence, is the one writer of the assistant's side."""
    return thread.run_id == run_id and thread.fence == fence


def refuse_fenced(thread: ThreadRow, run_id: str, fence: int) -> None:
    """Refuse a run that no longer holds the lease.

    Raises:
        Conflict: `run_fenced`.
    """
    if not holds_lease(thread, run_id, fence):
        raise Conflict(
            ConflictReason.RUN_FENCED,
            "This run does not hold the lease any more. Stop, and write nothing.",
            fence=thread.fence,
        )


def renew(draft: Draft) -> None:
    """Let the lease run its full time again, from the clock after the lock."""
    if draft.thread.stale_after is not None:
        until = later(draft.now, draft.thread.stale_after)
        draft.thread = replace(draft.thread, lease_until=until)


def acquire_run(draft: Draft, command: AcquireRun) -> Plan[Lease]:
    """Take the lease of a turn that is not idle, or renew it by presenting its fence.

    Raises:
        Conflict: `thread_closed`; `no_turn_open` on an idle thread; `run_fenced` when the fence
            presented is not the one in force; `run_in_progress` while another run is live.
    """
    refuse_closed(draft.thread)
    if draft.thread.turn_state is TurnState.IDLE:
        raise no_turn_open()
    if command.fence is not None:
        refuse_fenced(draft.thread, command.run_id, command.fence)
    took_over = False
    if command.fence is None:
        took_over = _take_lease(draft, command.run_id)
    else:
        expire_lapsed(draft)
    if not draft.waiting_calls():
        reopen(draft, Trigger.LAPSE)
    draft.thread = replace(draft.thread, stale_after=command.stale_after)
    renew(draft)
    until = draft.thread.lease_until or draft.now
    return draft.plan(
        Lease(
            thread_id=draft.thread.id,
            run_id=command.run_id,
            fence=draft.thread.fence,
            took_over=took_over,
            lease_until=until,
        )
    )


def _take_lease(draft: Draft, run_id: str) -> bool:
    """Raise the fence for a new holder; return whether another run was replaced."""
    holder = draft.thread.run_id
    if holder not in (None, run_id) and draft.thread.has_live_run(draft.now):
        raise Conflict(
            ConflictReason.RUN_IN_PROGRESS,
            "Another run holds the lease. Try again when it has run out.",
            fence=draft.thread.fence,
        )
    close_calls(draft, Ending.FENCED, "taken-over")
    raise_fence(draft, "replaced")
    draft.thread = replace(draft.thread, run_id=run_id)
    draft.put(
        RunRow(
            tenant_id=draft.thread.tenant_id,
            thread_id=draft.thread.id,
            fence=draft.thread.fence,
            run_id=run_id,
            state=RUN.step(Trigger.ACQUIRE, None),
            started_at=draft.now,
            ended_at=None,
            turn=draft.thread.turn,
        )
    )
    return holder not in (None, run_id)


def beat_run(draft: Draft, command: BeatRun) -> Plan[Beat]:
    """Renew the lease and report whether the person asked the run to stop.

    Raises:
        Conflict: `thread_closed`, `run_fenced`.
    """
    refuse_closed(draft.thread)
    refuse_fenced(draft.thread, command.run_id, command.fence)
    renew(draft)
    return draft.plan(
        Beat(
            interrupt_requested=draft.thread.interrupt_requested_at is not None,
            lease_until=draft.thread.lease_until or draft.now,
        )
    )


def release_run(draft: Draft, command: ReleaseRun) -> Plan[Released]:
    """Give the lease up inside an open turn. Not holding it is an answer, not an error."""
    if not holds_lease(draft.thread, command.run_id, command.fence):
        return draft.plan(Released(released=False))
    close_calls(draft, Ending.FENCED, "released", lapsed=False)
    end_run(draft, Trigger.RELEASE, "released")
    return draft.plan(Released(released=True))


def record_operation(
    draft: Draft, command: RecordOperation, before: RunOperation | None
) -> Plan[RunOperation]:
    """Keep what the run does now. The clock is the engine's, from the first word of each operation.

    Raises:
        Conflict: `thread_closed`, `run_fenced`.
    """
    refuse_closed(draft.thread)
    refuse_fenced(draft.thread, command.run_id, command.fence)
    if before is not None and before.operation_id != command.operation_id:
        before = None
    first_output_at = None if before is None else before.first_output_at
    if first_output_at is None and command.first_output:
        first_output_at = draft.now
    now = RunOperation(
        operation_id=command.operation_id,
        kind=command.kind,
        phase=command.phase,
        step=command.step,
        started_at=draft.now if before is None else before.started_at,
        first_output_at=first_output_at,
    )
    draft.put(replace(_holder(draft), operation=now.stored()))
    renew(draft)
    return draft.plan(now)


def keep_usage(draft: Draft, usage: Usage) -> None:
    """Keep what the run has used up so far, in place of what was kept before."""
    draft.put(replace(_holder(draft), usage=usage.stored()))


def _holder(draft: Draft) -> RunRow:
    if draft.run is None:
        raise Internal("The run that holds the lease has no row.", fence=draft.thread.fence)
    return draft.run
