"""Messages that wait for their turn, and a turn that nobody will finish. Awaited."""

from collections.abc import Sequence

from engine_assistant.assistant.async_verbs.base import AsyncVerbs
from engine_assistant.model.views import Page
from engine_assistant.model.views.inputs import Abandoned, InputView, Taken
from engine_assistant.operations import inputs, messages

__all__ = ["AsyncTurnVerbs"]


class AsyncTurnVerbs(AsyncVerbs):
    """Messages that wait for their turn, and a turn that nobody will finish."""

    async def list_inputs(
        self,
        *,
        thread_id: str,
        state: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[InputView]:
        """See `Operations.list_inputs`."""
        return await self._run(
            inputs.LIST_INPUTS, thread_id=thread_id, state=state, limit=limit, cursor=cursor
        )

    async def edit_input(
        self,
        *,
        thread_id: str,
        input_id: str,
        text: str,
        attachment_ids: Sequence[str] | None = None,
    ) -> InputView:
        """See `Operations.edit_input`."""
        return await self._run(
            inputs.EDIT_INPUT,
            thread_id=thread_id,
            input_id=input_id,
            text=text,
            attachment_ids=attachment_ids,
        )

    async def cancel_input(
        self,
        *,
        thread_id: str,
        input_id: str,
    ) -> InputView:
        """See `Operations.cancel_input`."""
        return await self._run(inputs.CANCEL_INPUT, thread_id=thread_id, input_id=input_id)

    async def take_inputs(
        self,
        *,
        thread_id: str,
        run_id: str,
        fence: int,
    ) -> Taken:
        """See `Operations.take_inputs`."""
        return await self._run(inputs.TAKE_INPUTS, thread_id=thread_id, run_id=run_id, fence=fence)

    async def abandon_turn(
        self,
        *,
        thread_id: str,
        reason: str,
        fence: int | None = None,
        turn: int | None = None,
    ) -> Abandoned:
        """See `Operations.abandon_turn`."""
        return await self._run(
            messages.ABANDON_TURN, thread_id=thread_id, reason=reason, fence=fence, turn=turn
        )
