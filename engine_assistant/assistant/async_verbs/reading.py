"""What everybody who may see a thread can look at. Awaited."""

from engine_assistant.assistant.async_verbs.base import AsyncVerbs
from engine_assistant.assistant.given import given
from engine_assistant.model.views import (
    ApprovalView,
    CallView,
    EventPage,
    Page,
    Thread,
)
from engine_assistant.operations import approvals, calls, events, threads

__all__ = ["AsyncReadingVerbs"]


class AsyncReadingVerbs(AsyncVerbs):
    """What everybody who may see a thread can look at."""

    async def get_thread(
        self,
        *,
        thread_id: str,
    ) -> Thread:
        """See `Operations.get_thread`."""
        return await self._run(threads.GET_THREAD, thread_id=thread_id)

    async def list_threads(
        self,
        *,
        subject: str | None = None,
        status: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Thread]:
        """See `Operations.list_threads`."""
        return await self._run(
            threads.LIST_THREADS, subject=subject, status=status, limit=limit, cursor=cursor
        )

    async def read_events(
        self,
        *,
        thread_id: str,
        after: int | None = None,
        limit: int | None = None,
        last: int | None = None,
    ) -> EventPage:
        """See `Operations.read_events`."""
        return await self._run(
            events.READ_EVENTS, **given(thread_id=thread_id, after=after, limit=limit, last=last)
        )

    async def read_events_json(
        self,
        *,
        thread_id: str,
        after: int | None = None,
        limit: int | None = None,
        last: int | None = None,
    ) -> bytes:
        """See `Operations.read_events_json`."""
        return await self._run(
            events.READ_EVENTS_JSON,
            **given(thread_id=thread_id, after=after, limit=limit, last=last),
        )

    async def get_call(
        self,
        *,
        thread_id: str,
        call_id: str,
    ) -> CallView:
        """See `Operations.get_call`."""
        return await self._run(calls.GET_CALL, thread_id=thread_id, call_id=call_id)

    async def list_calls(
        self,
        *,
        thread_id: str,
        state: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[CallView]:
        """See `Operations.list_calls`."""
        return await self._run(
            calls.LIST_CALLS, thread_id=thread_id, state=state, limit=limit, cursor=cursor
        )

    async def list_approvals(
        self,
        *,
        state: str | None = "pending",
        thread_id: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[ApprovalView]:
        """See `Operations.list_approvals`."""
        return await self._run(
            approvals.LIST_APPROVALS, state=state, thread_id=thread_id, limit=limit, cursor=cursor
        )
