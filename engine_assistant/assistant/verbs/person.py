"""What a person does: opens and closes threads, speaks, stops the assistant, decides."""

from collections.abc import Sequence

from engine_assistant.assistant.verbs.base import Verbs
from engine_assistant.model.views import (
    Decision,
    Interrupt,
    MessageReceipt,
    Thread,
)
from engine_assistant.operations import approvals, files, messages, threads

__all__ = ["PersonVerbs"]


class PersonVerbs(Verbs):
    """What a person does: opens and closes threads, speaks, stops the assistant, decides."""

    def create_thread(
        self,
        *,
        title: str | None = None,
        key: str | None = None,
    ) -> Thread:
        """Open a thread that the caller owns.

        Args:
            title: at most 1 KiB.
            key: the same key answers the same thread, so a lost answer can be asked for again.

        Raises:
            Conflict: `key_reused` with another title.
        """
        return self._run(threads.CREATE_THREAD, title=title, key=key)

    def close_thread(
        self,
        *,
        thread_id: str,
    ) -> Thread:
        """Close a thread for ever, also in the middle of a turn. Closing it again changes nothing.

        Raises:
            NotFound: the caller does not own such a thread.
        """
        return self._run(threads.CLOSE_THREAD, thread_id=thread_id)

    def send_message(
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
        """Say something, and open the assistant's turn, now or when the turn before it is over.

        Args:
            thread_id: a thread that the caller owns.
            text: 1 byte to 64 KiB.
            attachment_ids: files of this thread.
            key: the same key answers how the first message stands, whatever happened since, and
                how it was answered.
            supersede_approvals: close the calls that wait, and say this instead.
            when_busy: while another turn is not over, `"refuse"` it; `"queue"` it; `"steer"`: let
                the run take it into its turn, or else be next; or `"interrupt"`: stop that turn,
                and be next.
            priority: `"normal"`, or `"next"`: before all that wait and are normal.
            coalesce: if it waits, open in one turn with the last that waits at its priority.

        Raises:
            NotFound: no such thread, or a file that is not of it.
            Conflict: `key_reused`, `thread_closed`, `turn_in_progress`, `approval_pending`,
                `queue_full`.
        """
        return self._run(
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

    def interrupt_turn(
        self,
        *,
        thread_id: str,
    ) -> Interrupt:
        """Press the stop button. Ends the turn now, unless a live run must be asked first.

        Asked again 10 seconds later, the turn ends whatever its run does.

        Raises:
            NotFound: the caller does not own such a thread.
            Conflict: `thread_closed`.
        """
        return self._run(messages.INTERRUPT_TURN, thread_id=thread_id)

    def authorize_file_upload(
        self,
        *,
        thread_id: str,
    ) -> Thread:
        """Say whether the caller may add a file, before the host takes its bytes. Writes nothing.

        Raises:
            NotFound: the caller does not own such a thread.
            Conflict: `thread_closed`.
        """
        return self._run(files.AUTHORIZE_FILE_UPLOAD, thread_id=thread_id)

    def resolve_approval(
        self,
        *,
        thread_id: str,
        call_id: str,
        approved: bool,
        digest: str,
        version: str | None = None,
        reason: str | None = None,
    ) -> Decision:
        """Approve or deny, as one of those who were asked. One need not own the thread.

        Args:
            thread_id: the thread.
            call_id: the call.
            approved: the decision.
            digest: the digest of the card that was shown.
            version: the version that is served now; needed to approve, not to deny.
            reason: at most 2 KiB.

        Raises:
            NotFound: nobody asked this caller.
            PermissionDenied: a system principal never decides.
            Conflict: `thread_closed`, `call_state`, `call_closed`, `already_resolved`,
                `approval_expired`, `digest_mismatch`.
        """
        return self._run(
            approvals.RESOLVE_APPROVAL,
            thread_id=thread_id,
            call_id=call_id,
            approved=approved,
            digest=digest,
            version=version,
            reason=reason,
        )
