"""One run of one turn, from the lease to the rest. Read this first.

    take     the lease, which a task of its own keeps from here on      holding
    look     the history, the calls that were left, the private part     past, private
    converse the loop asks the model and runs what it asks for
               what it says is written in small batches                  recording, writing
               what it asks for is run, asked about, claimed             gate
    rest     turn-finish says why it ended, and gives the lease up

A round is one look and one conversation. Somebody may decide while the tools beside it still run;
then the turn cannot rest and there is another round, under the same lease.
"""

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import Final

from engine_assistant import AssistantError, Conflict, ConflictReason
from engine_assistant.host.conversation import Conversation, Status
from engine_assistant.host.loop import run_conversation
from engine_assistant.host.messages import AssistantMessage
from engine_assistant.host.turns import past as pasts
from engine_assistant.host.turns.doing import Doing
from engine_assistant.host.turns.gate import Gate, NotReady
from engine_assistant.host.turns.given import Given
from engine_assistant.host.turns.holding import Holding, LeaseLost
from engine_assistant.host.turns.losses import refuse_another
from engine_assistant.host.turns.past import Left, Past
from engine_assistant.host.turns.private import unpack
from engine_assistant.host.turns.recording import Recording
from engine_assistant.host.turns.report import Ended, TurnReport, Unsettled, told
from engine_assistant.host.turns.writing import Scribe
from engine_assistant.host.whose import ThreadRef
from engine_assistant.model.events import TurnError, TurnFinish
from engine_assistant.model.machines import OPEN_CALLS, CallState, TurnState
from engine_assistant.model.views import CallView, Thread
from engine_assistant.model.views.history import History

__all__ = ["Turn"]

_LOG: Final = logging.getLogger("engine_assistant.host")

_PATIENCE: Final = 2.0
"""Seconds that giving the lease up may take when the process is being stopped."""

_DECIDED: Final = frozenset(
    {ConflictReason.NO_APPROVAL_PENDING, ConflictReason.EXECUTION_NOT_CLAIMED}
)


_ENDED: Final = frozenset(CallState) - {*OPEN_CALLS, CallState.UNKNOWN}


class Turn:
    """One run of one turn, under a lease that is held.

    Attributes:
        number: which turn of its thread it is; None until that was read.
    """

    def __init__(self, given: Given, holding: Holding) -> None:
        self._given = given
        self._holding = holding
        self._thread_id = holding.key["thread_id"]
        self._scribe = Scribe(holding, given.batching, given.assistant.limits)
        self._tools = given.tools.within(given.assistant.limits)
        self._recording: Recording | None = None
        self._steps = 0
        self._rested = False
        self.number: int | None = None

    async def run(self) -> TurnReport:
        """Carry the turn on until it rests.

        Raises:
            LeaseLost: the lease is gone. Nothing more was written.
        """
        try:
            return await self._carry_on()
        except asyncio.CancelledError:
            if not self._holding.lost:
                with suppress(AssistantError, LeaseLost, TimeoutError):
                    async with asyncio.timeout(_PATIENCE):
                        await self._leave()
            raise
        finally:
            await self._scribe.aclose()

    async def _carry_on(self) -> TurnReport:
        try:
            return self.report(await self._rounds())
        except NotReady as error:
            await self._leave()
            return self.report(Ended.RELEASED, error)
        except Exception as error:  # noqa: BLE001 - whatever it is, the turn comes to rest
            if not isinstance(error, AssistantError):
                _LOG.exception("The turn of thread %s broke.", self._thread_id)
            self._scribe.forgive()
            if self._rested:
                # It waits for people, and nothing ends that but they, or time.
                await self._leave()
            else:
                await self._rest(told(error))
            return self.report(Ended.ERROR, error)

    def report(self, ended: Ended, error: Exception | None = None) -> TurnReport:
        """Say what became of the run."""
        left = () if self._recording is None else self._recording.unsettled
        fence = self._holding.key["fence"]
        return TurnReport(
            **self._holding.key,
            ended=ended,
            error=self._holding.why if ended is Ended.LOST else error,
            unsettled=tuple(
                Unsettled(call_id=call.call_id, claimed_fence=fence, outcome=outcome)
                for call, outcome in left
            ),
        )

    # ------------------------------------------------------------ rounds

    async def _rounds(self) -> Ended:
        # A person may have pressed stop while nobody ran the turn.
        await self._holding.beat()
        thread = await self._find_thread()
        if not self._rested:
            await refuse_another(self._holding, thread, self._given.max_lost_runs)
        while True:
            status = await self._converse(thread, await self._look(thread))
            if status is not Status.AWAITING_APPROVAL:
                await self._rest(TurnFinish.model_validate({"reason": status.value}))
                return Ended(status)
            if self._rested:
                await self._leave()
                return Ended.AWAITING_APPROVAL
            if await self._rest_awaiting():
                return Ended.AWAITING_APPROVAL
            thread = await self._find_thread()

    async def _find_thread(self) -> Thread:
        """Read the thread, and note where its turn stands."""
        thread = await self._holding.read(
            partial(self._holding.ops.get_thread, thread_id=self._thread_id)
        )
        self.number = thread.turn
        # It may have come to rest before this run came, which can only ask anew.
        self._rested = thread.turn_state is TurnState.AWAITING
        return thread

    async def _look(self, thread: Thread) -> Past:
        """Read everything that the turn goes on from."""
        history_of = partial(self._holding.ops.history, thread_id=self._thread_id)
        ended: set[str] = set()
        while True:
            before = ended
            history = await self._holding.read(partial(history_of, budget=self._given.budget))
            calls = {
                result.call_id: Left(await self._call(result.call_id), result)
                for result in pasts.undecided(history, thread)
            }
            ended = {one for one, left in calls.items() if left.view.state in _ENDED}
            # One that has ended since the history was read is told otherwise in the next one. One
            # that had ended before is told for good: as unknown, with what came of it in a note.
            if ended <= before:
                break
        left = {one: left for one, left in calls.items() if one not in ended}
        return pasts.tell(history, thread, left, await self._private(history, thread))

    async def _call(self, call_id: str) -> CallView:
        return await self._holding.read(
            partial(self._holding.ops.get_call, thread_id=self._thread_id, call_id=call_id)
        )

    async def _private(self, history: History, thread: Thread) -> tuple[AssistantMessage, ...]:
        """Read the private context, if there is a message that it could belong to."""
        if not pasts.has_answered(history, thread):
            return ()
        context = await self._holding.read(
            partial(self._holding.ops.get_context, **self._holding.key)
        )
        return unpack(context.state)

    async def _converse(self, thread: Thread, past: Past) -> Status:
        given = self._given
        doing = Doing(self._holding, self._steps)
        gate = Gate(
            self._holding,
            self._tools,
            thread=thread,
            past=past,
            doing=doing,
            approvals=given.approvals,
            ready=given.ready,
        )
        self._recording = recording = Recording(
            self._holding,
            self._scribe,
            self._tools,
            past=past,
            gate=gate,
            doing=doing,
            hooks=given.hooks,
            limits=given.assistant.limits,
            show_reasoning=given.show_reasoning,
        )
        outcome = await run_conversation(
            Conversation(
                model=given.model,
                messages=past.messages,
                tools=gate,
                system=given.system,
                settings=given.settings,
                max_steps=max(1, given.max_steps - past.answers),
                hooks=recording,
                interrupt=self._holding.interrupt,
                observer=given.observer,
                thread=ThreadRef(
                    tenant=given.caller.tenant,
                    id=thread.id,
                    subject_id=thread.subject_id,
                    turn=thread.turn,
                ),
                resume=True,
            )
        )
        self._steps += outcome.steps
        return outcome.status

    # ------------------------------------------------------------ rest

    async def _rest(self, event: TurnFinish | TurnError) -> None:
        """End the turn, and the lease with it."""
        last = () if self._recording is None else self._recording.ended()
        await self._holding.give_up(lambda: self._scribe.write(*last, event))

    async def _rest_awaiting(self) -> bool:
        """Rest until people have decided; False if somebody has by now."""
        try:
            await self._rest(TurnFinish(reason="awaiting-approval"))
        except Conflict as refused:
            if refused.reason not in _DECIDED:
                raise
        else:
            return True
        # Presenting the fence renews the lease, and ends what nobody answered in time.
        again = partial(self._holding.ops.acquire_run, **self._holding.key)
        await self._holding.write(partial(again, stale_after=self._given.stale_after))
        return False

    async def _leave(self) -> None:
        """Give the lease up and leave the turn as it is, for whoever comes next."""
        await self._scribe.aclose()
        await self._holding.give_up(self._release)

    async def _release(self) -> None:
        await self._holding.write(partial(self._holding.ops.release_run, **self._holding.key))
