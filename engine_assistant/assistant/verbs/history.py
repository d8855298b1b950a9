"""What a model is told, how it is shortened, and what a thread may begin with."""

from collections.abc import Mapping, Sequence

from engine_assistant.assistant.verbs.base import Verbs
from engine_assistant.model.commands.history import Seed
from engine_assistant.model.views import Page
from engine_assistant.model.views.history import Compaction, History, SeededThread
from engine_assistant.operations import history, seeds

__all__ = ["HistoryVerbs"]


class HistoryVerbs(Verbs):
    """What a model is told, how it is shortened, and what a thread may begin with."""

    def history(
        self,
        *,
        thread_id: str,
        budget: int | None = None,
    ) -> History:
        """Return what a model is told of a thread: messages that have the shape of no provider.

        It is valid at every moment, with one result for each call, and what a model was told once
        stays as it was. For the thread's owner, `audit` and `run`.

        Args:
            thread_id: the thread.
            budget: bytes of UTF-8 that the content may take. The oldest whole turns are left out;
                summaries stay, and the newest turn always comes whole.

        Raises:
            NotFound: no such thread, or not for this caller.
        """
        return self._run(history.HISTORY, thread_id=thread_id, budget=budget)

    def compact(
        self,
        *,
        thread_id: str,
        from_seq: int,
        to_seq: int,
        summary: str,
        expected_head: int,
    ) -> Compaction:
        """Let a summary stand for a range of messages in the history. The log is not touched.

        The same range with the same summary answers what was made first.

        Args:
            thread_id: the thread.
            from_seq: the number of the first event that the summary stands for.
            to_seq: the number of the last one. Earlier summaries in the range are covered.
            summary: 1 byte to 256 KiB.
            expected_head: the `head_seq` of the history that was summarised.

        Raises:
            NotFound: there is no such thread.
            Conflict: `thread_closed`; `stale_head`, when something was recorded since;
                `range_refused`, when the range goes through a message, a call and its result, or
                an earlier summary, or holds no message: `from_seq` and `to_seq` in the facts are
                the widest range within that does not.
        """
        return self._run(
            history.COMPACT,
            thread_id=thread_id,
            from_seq=from_seq,
            to_seq=to_seq,
            summary=summary,
            expected_head=expected_head,
        )

    def list_compactions(
        self,
        *,
        thread_id: str,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Compaction]:
        """Return the summaries of a thread in the order in which they were made.

        Those that a later one covers are among them: what was said in whose place stays known.

        Args:
            thread_id: the thread.
            limit: rows of this page, 1 to 1,000.
            cursor: from the page before.

        Raises:
            NotFound: no such thread, or not for this caller.
        """
        return self._run(history.LIST_COMPACTIONS, thread_id=thread_id, limit=limit, cursor=cursor)

    def seed_thread(
        self,
        *,
        subject: str,
        key: str,
        messages: Sequence[Seed | Mapping[str, str]],
        title: str | None = None,
    ) -> SeededThread:
        """Open a thread for a person that begins with what was said elsewhere.

        The messages stand in turn 0. No turn is opened; the person's first message opens turn 1.

        Args:
            subject: the person who will own it.
            key: the same key answers the same thread, also when its beginning was summarised.
            messages: 1 to 256, `{"role": "user" or "assistant", "text": …}`, oldest first.
            title: at most 1 KiB.

        Raises:
            Conflict: `key_reused`, when the key opened a thread with another title or beginning.
        """
        return self._run(
            seeds.SEED_THREAD, subject=subject, key=key, messages=messages, title=title
        )
