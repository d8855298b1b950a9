"""What was said before a thread began: given to it once, in turn 0, when it is made."""

from collections.abc import Sequence

from engine_assistant.model.commands.history import SeedThread
from engine_assistant.model.errors import Conflict, ConflictReason
from engine_assistant.model.events import body_of
from engine_assistant.model.milestones import MilestoneType
from engine_assistant.model.rows import Plan, ThreadRow
from engine_assistant.rules.draft import Draft

__all__ = ["refuse_other_seeds", "seed_thread"]


def seed_thread(draft: Draft, command: SeedThread) -> Plan[ThreadRow]:
    """Let a new thread begin with messages. No turn is opened and nobody is called."""
    for event in command.events:
        draft.record(event)
    draft.announce(MilestoneType.THREAD_CREATED)
    return draft.plan(draft.thread)


def refuse_other_seeds(
    first: ThreadRow, command: SeedThread, stored: Sequence[tuple[str, str]]
) -> None:
    """Refuse a key that opened another thread than this command would.

    The log says what the thread began with, whatever was summarised since.

    Args:
        first: the thread of the key.
        command: what is asked now.
        stored: type and body of its first events, one more than the messages asked for.

    Raises:
        Conflict: `key_reused`, when title or messages are others, or there were none.
    """
    wanted = [(event.type, body_of(event)) for event in command.events]
    seeds = [(kind, body) for kind, body in stored if kind == wanted[0][0]]
    if first.title != command.title or seeds != wanted:
        raise Conflict(
            ConflictReason.KEY_REUSED,
            "This key opened a thread that began otherwise. Use a new key for a new thread.",
            thread_id=first.id,
        )
