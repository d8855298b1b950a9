"""Files: may one be added, and what is known of it. Their bytes live with the host."""

from typing import Final

from engine_assistant.context import Context
from engine_assistant.model.commands import OnThread, RegisterFile
from engine_assistant.model.ids import new_id
from engine_assistant.model.permissions import RUN, USE
from engine_assistant.model.rows import FileRow
from engine_assistant.model.views import File, Thread
from engine_assistant.operations.opening import lock, open_draft
from engine_assistant.operations.operation import Operation
from engine_assistant.operations.threads import thread_view
from engine_assistant.rules import turns
from engine_assistant.store.writes import write

__all__ = ["AUTHORIZE_FILE_UPLOAD", "REGISTER_FILE"]


def authorize_file_upload(ctx: Context, command: OnThread) -> Thread:
    """Say whether the caller may add files to a thread. Writes nothing."""
    locked = lock(ctx, command.thread_id, owner=ctx.caller.principal)
    turns.refuse_closed(locked.thread)
    return thread_view(locked.thread)


def register_file(ctx: Context, command: RegisterFile) -> File:
    """Note a file whose bytes the host has stored, so that a message can name it."""
    locked = lock(ctx, command.thread_id)
    turns.refuse_closed(locked.thread)
    draft = open_draft(ctx, locked)
    row = FileRow(
        tenant_id=ctx.caller.tenant,
        id=new_id(),
        **{name: getattr(command, name) for name in RegisterFile.model_fields},
    )
    draft.put(row)
    view = File(**{name: getattr(row, name) for name in File.model_fields})
    return write(ctx.database, draft.plan(view))


AUTHORIZE_FILE_UPLOAD: Final = Operation(
    "assistant/authorize-file-upload", (USE,), OnThread, Thread, authorize_file_upload
)
REGISTER_FILE: Final = Operation(
    "assistant/register-file", (RUN,), RegisterFile, File, register_file
)
