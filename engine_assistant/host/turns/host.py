"""`AssistantHost`: the door to all of this, and the one thing that it does."""

from dataclasses import dataclass

from engine_assistant.host.turns.given import Given
from engine_assistant.host.turns.holding import Holding, LeaseLost, take
from engine_assistant.host.turns.report import Ended, TurnReport
from engine_assistant.host.turns.turn import Turn
from engine_assistant.host.watching import watched_turn

__all__ = ["AssistantHost"]


@dataclass(frozen=True, kw_only=True, eq=False)
class AssistantHost(Given):
    """Runs turns of one tenant's threads, against the record. Its fields are those of `Given`.

    It holds no state beside them, so one may run any number of turns at once. For another tenant
    take `dataclasses.replace(host, caller=…)`.
    """

    async def run_turn(self, thread_id: str) -> TurnReport:
        """Take the lease of a thread's turn and carry the turn on until it rests.

        However it ends, the record says so: with a `turn-finish`, or with a `turn-error` if
        something broke, which the report has in full. A turn that waited for people when something
        broke goes on waiting. A run that loses its lease stops at once and
        writes nothing more. One that is cancelled gives its lease up.

        Raises:
            Conflict: `no_turn_open`: there is nothing to run; `run_in_progress`: another run is at
                work; `thread_closed`.
            AssistantError: the record gives no lease for another reason, or takes no event at all.
        """
        ops = self.assistant.acting_as(self.caller)
        holding = await take(ops, thread_id, stale_after=self.stale_after)
        turn = Turn(self, holding)
        with watched_turn(self.observer, tenant=self.caller.tenant, **holding.key) as watch:
            report = await _run(turn, holding)
            watch.ended, watch.error, watch.turn = report.ended.value, report.error, turn.number
        return report


async def _run(turn: Turn, holding: Holding) -> TurnReport:
    try:
        async with holding:
            return await turn.run()
    except (LeaseLost, BaseExceptionGroup):
        # In a group it comes out of a tool whose own tasks were writing.
        if not holding.lost:
            raise
        return turn.report(Ended.LOST)
