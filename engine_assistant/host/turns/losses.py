"""A turn whose runs fall silent one after the other, as one that kills its process does."""

from functools import partial
from itertools import takewhile
from typing import Final

from engine_assistant.host.errors import RunsLost
from engine_assistant.host.turns.holding import Holding
from engine_assistant.model.views import Thread

__all__ = ["refuse_another"]

_REPLACED: Final = "replaced"
"""How the record says that a run was silent until another took its lease."""


async def refuse_another(holding: Holding, thread: Thread, most: int) -> None:
    """Refuse to run a turn of which too many runs fell silent in a row, up to this one.

    Raises:
        RunsLost: as many as `most`.
    """
    if not holding.took_over:
        return
    # Newest first, this one among them.
    page = await holding.read(partial(holding.ops.list_runs, thread_id=thread.id, limit=most + 1))
    before = [run for run in page.items if run.fence < holding.key["fence"]]
    silent = takewhile(lambda run: run.turn == thread.turn and run.reason == _REPLACED, before)
    if len(list(silent)) >= most:
        raise RunsLost(most)
