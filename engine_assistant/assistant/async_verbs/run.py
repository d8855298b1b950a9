"""What a system principal does: holds the lease, writes the assistant's side, executes. Awaited."""

from collections.abc import Mapping, Sequence

from engine_assistant.assistant.async_verbs.base import AsyncVerbs
from engine_assistant.assistant.given import ABSENT, Absent, given
from engine_assistant.model.codec import JsonValue
from engine_assistant.model.commands import ToolFailure
from engine_assistant.model.events import Known
from engine_assistant.model.usage import Usage
from engine_assistant.model.views import (
    Appended,
    Beat,
    Claim,
    File,
    Lease,
    Request,
    Settled,
)
from engine_assistant.operations import approvals, calls, files, runs
from engine_assistant.operations import events as log

__all__ = ["AsyncRunVerbs"]


class AsyncRunVerbs(AsyncVerbs):
    """What a system principal does: holds the lease, writes the assistant's side, executes."""

    async def acquire_run(
        self,
        *,
        thread_id: str,
        run_id: str,
        fence: int | None = None,
        stale_after: float = 15.0,
    ) -> Lease:
        """See `Operations.acquire_run`."""
        return await self._run(
            runs.ACQUIRE_RUN,
            thread_id=thread_id,
            run_id=run_id,
            fence=fence,
            stale_after=stale_after,
        )

    async def beat_run(
        self,
        *,
        thread_id: str,
        run_id: str,
        fence: int,
    ) -> Beat:
        """See `Operations.beat_run`."""
        return await self._run(runs.BEAT_RUN, thread_id=thread_id, run_id=run_id, fence=fence)

    async def release_run(
        self,
        *,
        thread_id: str,
        run_id: str,
        fence: int,
    ) -> bool:
        """See `Operations.release_run`."""
        return (
            await self._run(runs.RELEASE_RUN, thread_id=thread_id, run_id=run_id, fence=fence)
        ).released

    async def append_events(
        self,
        *,
        thread_id: str,
        run_id: str,
        fence: int,
        events: Sequence[Known | Mapping[str, object]],
        batch: int | None = None,
        usage: Usage | Mapping[str, object] | None = None,
    ) -> Appended:
        """See `Operations.append_events`."""
        return await self._run(
            log.APPEND_EVENTS,
            thread_id=thread_id,
            run_id=run_id,
            fence=fence,
            events=events,
            batch=batch,
            usage=usage,
        )

    async def request_approval(
        self,
        *,
        thread_id: str,
        run_id: str,
        fence: int,
        call_id: str,
        operation: str,
        version: str,
        expires_in: float,
        approvers: Sequence[str] | None = None,
        required: int = 1,
        reissue: bool = False,
        why: str | None = None,
    ) -> Request:
        """See `Operations.request_approval`."""
        return await self._run(
            approvals.REQUEST_APPROVAL,
            thread_id=thread_id,
            run_id=run_id,
            fence=fence,
            call_id=call_id,
            operation=operation,
            version=version,
            expires_in=expires_in,
            approvers=approvers,
            required=required,
            reissue=reissue,
            why=why,
        )

    async def claim_execution(
        self,
        *,
        thread_id: str,
        run_id: str,
        fence: int,
        call_id: str,
        operation: str,
        version: str,
        input: JsonValue,
        attempt: int | None = None,
    ) -> Claim:
        """See `Operations.claim_execution`."""
        return await self._run(
            calls.CLAIM_EXECUTION,
            thread_id=thread_id,
            run_id=run_id,
            fence=fence,
            call_id=call_id,
            operation=operation,
            version=version,
            input=input,
            attempt=attempt,
        )

    async def settle_execution(
        self,
        *,
        thread_id: str,
        call_id: str,
        claimed_fence: int,
        output: JsonValue | Absent = ABSENT,
        error: ToolFailure | Mapping[str, str] | None = None,
    ) -> Settled:
        """See `Operations.settle_execution`."""
        return await self._run(
            calls.SETTLE_EXECUTION,
            **given(
                thread_id=thread_id,
                call_id=call_id,
                claimed_fence=claimed_fence,
                output=output,
                error=error,
                absent=ABSENT,
            ),
        )

    async def register_file(
        self,
        *,
        thread_id: str,
        filename: str,
        content_type: str,
        size: int,
        sha256: str,
    ) -> File:
        """See `Operations.register_file`."""
        return await self._run(
            files.REGISTER_FILE,
            thread_id=thread_id,
            filename=filename,
            content_type=content_type,
            size=size,
            sha256=sha256,
        )
