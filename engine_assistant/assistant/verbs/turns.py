"""Messages that wait for their turn, and a turn that nobody will finish."""

from collections.abc import Sequence

from engine_assistant.assistant.verbs.base import Verbs
from engine_assistant.model.views import Page
from engine_assistant.model.views.inputs import Abandoned, InputView, Taken
from engine_assistant.operations import inputs, messages

__all__ = ["TurnVerbs"]


class TurnVerbs(Verbs):
    """Messages that wait for their turn, and a turn that nobody will finish."""

    def list_inputs(
        self,
        *,
        thread_id: str,
        state: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[InputView]:
        """Return a thread's messages: as turns took them up, then as they will, then the rest.

        Args:
            thread_id: the thread.
            state: only `"queued"`, `"opened"`, `"absorbed"` or `"cancelled"` ones.
            limit: rows of this page, 1 to 1,000.
            cursor: from the page before; it belongs to this thread and state.

        Raises:
            NotFound: the thread does not exist, or is not for this caller.
        """
        return self._run(
            inputs.LIST_INPUTS, thread_id=thread_id, state=state, limit=limit, cursor=cursor
        )

    def edit_input(
        self,
        *,
        thread_id: str,
        input_id: str,
        text: str,
        attachment_ids: Sequence[str] | None = None,
    ) -> InputView:
        """Say a message that waits in other words. It keeps its place, and its key.

        The key goes on standing for what was sent first.

        Args:
            thread_id: a thread that the caller owns.
            input_id: the message.
            text: 1 byte to 64 KiB.
            attachment_ids: files of this thread, instead of those it has; None leaves them.

        Raises:
            NotFound: no such thread or message, or a file that is not of it.
            Conflict: `input_settled`, when it does not wait any more.
        """
        return self._run(
            inputs.EDIT_INPUT,
            thread_id=thread_id,
            input_id=input_id,
            text=text,
            attachment_ids=attachment_ids,
        )

    def cancel_input(
        self,
        *,
        thread_id: str,
        input_id: str,
    ) -> InputView:
        """Take a message back that waits. Taking it back again answers the same.

        Raises:
            NotFound: no such thread of the caller's, or no such message.
            Conflict: `input_settled`, when a turn holds it.
        """
        return self._run(inputs.CANCEL_INPUT, thread_id=thread_id, input_id=input_id)

    def take_inputs(
        self,
        *,
        thread_id: str,
        run_id: str,
        fence: int,
    ) -> Taken:
        """Take every steering message that waits into the open turn. Renews the lease.

        Asked again, it answers those that came since: what was taken stands in the log.

        Raises:
            NotFound: there is no such thread.
            Conflict: `thread_closed`, `run_fenced`, `no_turn_open`.
        """
        return self._run(inputs.TAKE_INPUTS, thread_id=thread_id, run_id=run_id, fence=fence)

    def abandon_turn(
        self,
        *,
        thread_id: str,
        reason: str,
        fence: int | None = None,
        turn: int | None = None,
    ) -> Abandoned:
        """End a turn that nobody will finish, as failed. The next message that waits opens one.

        Args:
            thread_id: the thread.
            reason: why, at most 2 KiB: the message of its turn-error, whose code is `abandoned`.
            fence: the fence in force. It ends the turn of a live run, too.
            turn: only this turn. Then asking again can never end the next one.

        Raises:
            NotFound: there is no such thread.
            Conflict: `thread_closed`; `no_turn_open` when the turn is over; `run_in_progress` while
                a run is live and its fence is not given; `run_fenced` when it is another.
        """
        return self._run(
            messages.ABANDON_TURN, thread_id=thread_id, reason=reason, fence=fence, turn=turn
        )
