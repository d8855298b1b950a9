"""The lease: taken, renewed, given up; and its holdings, as a record."""

from typing import Final

from pydantic import ValidationError

from engine_assistant.context import Context
from engine_assistant.model.commands import AcquireRun, BeatRun, ReleaseRun
from engine_assistant.model.commands.runs import GetRun, ListRuns, RecordOperation
from engine_assistant.model.cursors import read_cursor, write_cursor
from engine_assistant.model.errors import Internal, not_found
from engine_assistant.model.machines import RunState
from engine_assistant.model.permissions import RUN, USE
from engine_assistant.model.rows import RunRow
from engine_assistant.model.usage import Usage
from engine_assistant.model.views import Beat, Lease, Page, Released
from engine_assistant.model.views.runs import RunOperation, RunView
from engine_assistant.operations.opening import lock, may_read, open_draft
from engine_assistant.operations.operation import Operation
from engine_assistant.rules import runs
from engine_assistant.store.runs import RunsRead, read_runs
from engine_assistant.store.writes import write

__all__ = [
    "ACQUIRE_RUN",
    "BEAT_RUN",
    "GET_RUN",
    "LIST_RUNS",
    "RECORD_OPERATION",
    "RELEASE_RUN",
]


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


def record_operation(ctx: Context, command: RecordOperation) -> RunOperation:
    """Say what the run does now, for whoever looks at it."""
    draft = open_draft(ctx, lock(ctx, command.thread_id), run=True)
    before = None if draft.run is None else _operation(draft.run)
    return write(ctx.database, runs.record_operation(draft, command, before))


def get_run(ctx: Context, command: GetRun) -> RunView:
    """Return one run, to whoever may read its thread."""
    read = _readable(ctx, read_runs(ctx.database, command.thread_id, fence=command.fence))
    if not read.rows:
        raise not_found()
    return _view(read, read.rows[0])


def list_runs(ctx: Context, command: ListRuns) -> Page[RunView]:
    """Return the runs of a thread, newest first."""
    scope = ("runs", ctx.caller.tenant, command.thread_id, command.state)
    before = None
    if command.cursor is not None:
        before = int(read_cursor(scope, command.cursor, (int,))[0])
    read = _readable(
        ctx,
        read_runs(
            ctx.database,
            command.thread_id,
            state=command.state,
            limit=command.limit + 1,
            before=before,
        ),
    )
    page = read.rows[: command.limit]
    more = len(read.rows) > command.limit
    cursor = write_cursor(scope, (page[-1].fence,)) if more else None
    return Page[RunView](items=tuple(_view(read, row) for row in page), cursor=cursor)


def _readable(ctx: Context, read: RunsRead | None) -> RunsRead:
    if read is None or not may_read(ctx, read.subject_id):
        raise not_found()
    return read


def _view(read: RunsRead, row: RunRow) -> RunView:
    live = row.state is RunState.RUNNING
    return RunView(
        thread_id=row.thread_id,
        fence=row.fence,
        run_id=row.run_id,
        state=row.state,
        turn=row.turn,
        started_at=row.started_at,
        ended_at=row.ended_at,
        reason=row.reason,
        lease_until=read.lease_until if live else None,
        interrupt_requested_at=read.interrupt_requested_at if live else None,
        usage=_usage(row),
        operation=_operation(row),
        head_seq=read.head_seq,
    )


def _usage(row: RunRow) -> Usage | None:
    try:
        return None if row.usage is None else Usage.model_validate_json(row.usage)
    except ValidationError:
        pass
    raise Internal("The usage of a run cannot be read.", fence=row.fence)


def _operation(row: RunRow) -> RunOperation | None:
    try:
        return None if row.operation is None else RunOperation.model_validate_json(row.operation)
    except ValidationError:
        pass
    raise Internal("The operation of a run cannot be read.", fence=row.fence)


ACQUIRE_RUN: Final = Operation("assistant/acquire-run", (RUN,), AcquireRun, Lease, acquire_run)
BEAT_RUN: Final = Operation("assistant/beat-run", (RUN,), BeatRun, Beat, beat_run)
RELEASE_RUN: Final = Operation("assistant/release-run", (RUN,), ReleaseRun, Released, release_run)
RECORD_OPERATION: Final = Operation(
    "assistant/record-operation", (RUN,), RecordOperation, RunOperation, record_operation
)
GET_RUN: Final = Operation(
    "assistant/get-run",
    (USE, RUN),
    GetRun,
    RunView,
    get_run,
    one_statement=lambda _: True,
    reads=True,
)
LIST_RUNS: Final = Operation(
    "assistant/list-runs",
    (USE, RUN),
    ListRuns,
    Page[RunView],
    list_runs,
    one_statement=lambda _: True,
    reads=True,
)
