"""What an imported thread may not bring along: a turn, a call or a message that is not over."""

from engine_assistant.model.machines import TurnState
from engine_assistant.model.rows import Plan
from engine_assistant.rules.draft import Draft
from engine_assistant.rules.queue import cancel_queue
from engine_assistant.rules.turns import end_or_ask

__all__ = ["settle_imported"]


def settle_imported(draft: Draft) -> Plan[None]:
    """End the turn as interrupted, with its calls, and take back every message that waits.

    Whoever ran it runs it somewhere else: nobody holds the lease here, so it ends at once.
    """
    cancel_queue(draft)
    if draft.thread.turn_state is not TurnState.IDLE:
        end_or_ask(draft)
    return draft.plan(None)
