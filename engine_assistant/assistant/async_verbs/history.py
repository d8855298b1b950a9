"""What a model is told, how it is shortened, and what a thread may begin with. Awaited."""

from collections.abc import Mapping, Sequence

from engine_assistant.assistant.async_verbs.base import AsyncVerbs
from engine_assistant.model.commands.history import Seed
from engine_assistant.model.views import Page
from engine_assistant.model.views.history import Compaction, History, SeededThread
from engine_assistant.operations import history, seeds

__all__ = ["AsyncHistoryVerbs"]


class AsyncHistoryVerbs(AsyncVerbs):
    """What a model is told, how it is shortened, and what a thread may begin with."""

    async def history(
        self,
        *,
        thread_id: str,
        budget: int | None = None,
    ) -> History:
        """See `Operations.history`."""
        return await self._run(history.HISTORY, thread_id=thread_id, budget=budget)

    async def compact(
        self,
        *,
        thread_id: str,
        from_seq: int,
        to_seq: int,
        summary: str,
        expected_head: int,
    ) -> Compaction:
        """See `Operations.compact`."""
        return await self._run(
            history.COMPACT,
            thread_id=thread_id,
            from_seq=from_seq,
            to_seq=to_seq,
            summary=summary,
            expected_head=expected_head,
        )

    async def list_compactions(
        self,
        *,
        thread_id: str,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Compaction]:
        """See `Operations.list_compactions`."""
        return await self._run(
            history.LIST_COMPACTIONS, thread_id=thread_id, limit=limit, cursor=cursor
        )

    async def seed_thread(
        self,
        *,
        subject: str,
        key: str,
        messages: Sequence[Seed | Mapping[str, str]],
        title: str | None = None,
    ) -> SeededThread:
        """See `Operations.seed_thread`."""
        return await self._run(
            seeds.SEED_THREAD, subject=subject, key=key, messages=messages, title=title
        )
