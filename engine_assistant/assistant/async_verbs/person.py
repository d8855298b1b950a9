"""What a person does: opens and closes threads, speaks, stops the assistant, decides. Awaited."""

from collections.abc import Sequence

from engine_assistant.assistant.async_verbs.base import AsyncVerbs
from engine_assistant.model.views import (
    Decision,
    Interrupt,
    MessageReceipt,
    Thread,
)
from engine_assistant.operations import approvals, files, messages, threads

__all__ = ["AsyncPersonVerbs"]


class AsyncPersonVerbs(AsyncVerbs):
    """What a person does: opens and closes threads, speaks, stops the assistant, decides."""

    async def create_thread(
        self,
        *,
        title: str | None = None,
        key: str | None = None,
    ) -> Thread:
        """See `Operations.create_thread`."""
        return await self._run(threads.CREATE_THREAD, title=title, key=key)

    async def close_thread(
        self,
        *,
        thread_id: str,
    ) -> Thread:
        """See `Operations.close_thread`."""
        return await self._run(threads.CLOSE_THREAD, thread_id=thread_id)

    async def send_message(
        self,
        *,
        thread_id: str,
        text: str,
        attachment_ids: Sequence[str] | None = None,
        key: str | None = None,
        supersede_approvals: bool = False,
        when_busy: str = "refuse",
        priority: str = "normal",
        coalesce: bool = False,
    ) -> MessageReceipt:
        """See `Operations.send_message`."""
        return await self._run(
            messages.SEND_MESSAGE,
            thread_id=thread_id,
            text=text,
            attachment_ids=attachment_ids,
            key=key,
            supersede_approvals=supersede_approvals,
            when_busy=when_busy,
            priority=priority,
            coalesce=coalesce,
        )

    async def interrupt_turn(
        self,
        *,
        thread_id: str,
    ) -> Interrupt:
        """See `Operations.interrupt_turn`."""
        return await self._run(messages.INTERRUPT_TURN, thread_id=thread_id)

    async def authorize_file_upload(
        self,
        *,
        thread_id: str,
    ) -> Thread:
        """See `Operations.authorize_file_upload`."""
        return await self._run(files.AUTHORIZE_FILE_UPLOAD, thread_id=thread_id)

    async def resolve_approval(
        self,
        *,
        thread_id: str,
        call_id: str,
        approved: bool,
        digest: str,
        version: str | None = None,
        reason: str | None = None,
    ) -> Decision:
        """See `Operations.resolve_approval`."""
        return await self._run(
            approvals.RESOLVE_APPROVAL,
            thread_id=thread_id,
            call_id=call_id,
            approved=approved,
            digest=digest,
            version=version,
            reason=reason,
        )
