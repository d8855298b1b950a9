"""What everybody who may see a thread can look at."""

from engine_assistant.assistant.given import given
from engine_assistant.assistant.verbs.base import Verbs
from engine_assistant.model.views import (
    ApprovalView,
    CallView,
    EventPage,
    Page,
    Thread,
)
from engine_assistant.operations import approvals, calls, events, threads

__all__ = ["ReadingVerbs"]


class ReadingVerbs(Verbs):
    """What everybody who may see a thread can look at."""

    def get_thread(
        self,
        *,
        thread_id: str,
    ) -> Thread:
        """Return one thread: one's own, or with `audit` or `run` anybody's.

        Raises:
            NotFound: it does not exist, or is not for this caller.
        """
        return self._run(threads.GET_THREAD, thread_id=thread_id)

    def list_threads(
        self,
        *,
        subject: str | None = None,
        status: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Thread]:
        """Return a person's threads, newest activity first.

        Args:
            subject: whose; the caller's own by default. Others' need `audit` or `run`.
            status: only `"open"` or only `"closed"` ones.
            limit: rows of this page, 1 to 1,000.
            cursor: from the page before; it belongs to this subject and status.

        Raises:
            PermissionDenied: another person's threads without `audit` or `run`.
        """
        return self._run(
            threads.LIST_THREADS, subject=subject, status=status, limit=limit, cursor=cursor
        )

    def read_events(
        self,
        *,
        thread_id: str,
        after: int | None = None,
        limit: int | None = None,
        last: int | None = None,
    ) -> EventPage:
        """Return events after a number, or the last few. One statement.

        Args:
            thread_id: the thread.
            after: the last number seen; 0 by default.
            limit: how many numbers on from there, 1 to 1,000; 200 by default.
            last: instead of both, the newest so many.

        Raises:
            NotFound: no such thread, or not for this caller.
        """
        return self._run(
            events.READ_EVENTS, **given(thread_id=thread_id, after=after, limit=limit, last=last)
        )

    def read_events_json(
        self,
        *,
        thread_id: str,
        after: int | None = None,
        limit: int | None = None,
        last: int | None = None,
    ) -> bytes:
        """Return the same page as JSON bytes, without making objects of it. See `read_events`."""
        return self._run(
            events.READ_EVENTS_JSON,
            **given(thread_id=thread_id, after=after, limit=limit, last=last),
        )

    def get_call(
        self,
        *,
        thread_id: str,
        call_id: str,
    ) -> CallView:
        """Return one call with its input, approvals and result.

        For the thread's owner, `audit`, `run`, and everybody who was asked about the call.

        Raises:
            NotFound: no such call, or not for this caller.
        """
        return self._run(calls.GET_CALL, thread_id=thread_id, call_id=call_id)

    def list_calls(
        self,
        *,
        thread_id: str,
        state: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[CallView]:
        """Return the calls of a thread in the order in which they were (last) proposed.

        Args:
            thread_id: the thread.
            state: only calls in this state.
            limit: rows of this page, 1 to 1,000.
            cursor: from the page before.

        Raises:
            NotFound: no such thread, or not for this caller.
        """
        return self._run(
            calls.LIST_CALLS, thread_id=thread_id, state=state, limit=limit, cursor=cursor
        )

    def list_approvals(
        self,
        *,
        state: str | None = "pending",
        thread_id: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[ApprovalView]:
        """Return one's own inbox across threads, or everyone's on a thread that one may read.

        Args:
            state: only approvals in this state; None for all.
            thread_id: only this thread.
            limit: rows of this page, 1 to 1,000.
            cursor: from the page before.

        Raises:
            NotFound: no such thread, or nothing on it for this caller.
        """
        return self._run(
            approvals.LIST_APPROVALS, state=state, thread_id=thread_id, limit=limit, cursor=cursor
        )
