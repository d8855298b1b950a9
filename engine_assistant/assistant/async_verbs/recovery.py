"""Runs as a record, private context, calls that nobody can tell of. Awaited."""

from engine_assistant.assistant.async_verbs.base import AsyncVerbs
from engine_assistant.assistant.given import ABSENT, Absent, given
from engine_assistant.model.codec import JsonValue
from engine_assistant.model.views import Claim, Page, Settled
from engine_assistant.model.views.runs import ContextSize, ContextView, RunOperation, RunView
from engine_assistant.operations import calls, contexts, runs

__all__ = ["AsyncRecoveryVerbs"]


class AsyncRecoveryVerbs(AsyncVerbs):
    """What recovery stands on: runs as a record, private context, calls that nobody can tell of."""

    async def record_operation(
        self,
        *,
        thread_id: str,
        run_id: str,
        fence: int,
        operation_id: str,
        kind: str,
        phase: str,
        step: str | None = None,
        first_output: bool = False,
    ) -> RunOperation:
        """See `Operations.record_operation`."""
        return await self._run(
            runs.RECORD_OPERATION,
            thread_id=thread_id,
            run_id=run_id,
            fence=fence,
            operation_id=operation_id,
            kind=kind,
            phase=phase,
            step=step,
            first_output=first_output,
        )

    async def list_runs(
        self,
        *,
        thread_id: str,
        state: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[RunView]:
        """See `Operations.list_runs`."""
        return await self._run(
            runs.LIST_RUNS, thread_id=thread_id, state=state, limit=limit, cursor=cursor
        )

    async def get_run(
        self,
        *,
        thread_id: str,
        fence: int,
    ) -> RunView:
        """See `Operations.get_run`."""
        return await self._run(runs.GET_RUN, thread_id=thread_id, fence=fence)

    async def put_context(
        self,
        *,
        thread_id: str,
        run_id: str,
        fence: int,
        state: str,
    ) -> ContextSize:
        """See `Operations.put_context`."""
        return await self._run(
            contexts.PUT_CONTEXT, thread_id=thread_id, run_id=run_id, fence=fence, state=state
        )

    async def get_context(
        self,
        *,
        thread_id: str,
        run_id: str,
        fence: int,
    ) -> ContextView:
        """See `Operations.get_context`."""
        return await self._run(
            contexts.GET_CONTEXT, thread_id=thread_id, run_id=run_id, fence=fence
        )

    async def retry_call(
        self,
        *,
        thread_id: str,
        run_id: str,
        fence: int,
        call_id: str,
        operation: str | None = None,
        version: str | None = None,
        input: JsonValue | Absent = ABSENT,
        attempt: int | None = None,
    ) -> Claim:
        """See `Operations.retry_call`."""
        return await self._run(
            calls.RETRY_CALL,
            **given(
                thread_id=thread_id,
                run_id=run_id,
                fence=fence,
                call_id=call_id,
                operation=operation,
                version=version,
                input=input,
                attempt=attempt,
                absent=ABSENT,
            ),
        )

    async def resolve_unknown(
        self,
        *,
        thread_id: str,
        call_id: str,
        happened: bool,
        output: JsonValue = None,
        reason: str | None = None,
    ) -> Settled:
        """See `Operations.resolve_unknown`."""
        return await self._run(
            calls.RESOLVE_UNKNOWN,
            thread_id=thread_id,
            call_id=call_id,
            happened=happened,
            output=output,
            reason=reason,
        )
