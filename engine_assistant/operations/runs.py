"""The lease: taken, renewed, given up."""

from typing import Final

from engine_assistant.context import Context
from engine_assistant.model.commands import AcquireRun, BeatRun, ReleaseRun
from engine_assistant.model.permissions import RUN
from engine_assistant.model.views import Beat, Lease, Released
from engine_assistant.operations.opening import lock, open_draft
from engine_assistant.operations.operation import Operation
from engine_assistant.rules import runs
from engine_assistant.store.writes import write

__all__ = ["ACQUIRE_RUN", "BEAT_RUN", "RELEASE_RUN"]


def acquire_run(ctx: Context, command: AcquireRun) -> Lease:
    """Take the lease of a thread whose turn is not idle."""
    draft = open_draft(ctx, lock(ctx, command.thread_id), unended=True, run=True)
    return write(ctx.database, runs.acquire_run(draft, command))


def beat_run(ctx: Context, command: BeatRun) -> Beat:
    """Renew the lease, and hear whether the person wants it to stop."""
    draft = open_draft(ctx, lock(ctx, command.thread_id))
    return write(ctx.database, runs.beat_run(draft, command))


def release_run(ctx: Context, command: ReleaseRun) -> Released:
    """Give the lease up before the turn rests."""
    draft = open_draft(ctx, lock(ctx, command.thread_id), unended=True, run=True)
    return write(ctx.database, runs.release_run(draft, command))


ACQUIRE_RUN: Final = Operation("assistant/acquire-run", (RUN,), AcquireRun, Lease, acquire_run)
BEAT_RUN: Final = Operation("assistant/beat-run", (RUN,), BeatRun, Beat, beat_run)
RELEASE_RUN: Final = Operation("assistant/release-run", (RUN,), ReleaseRun, Released, release_run)
