"""A host that runs turns against the record: the same loop, with the record as its memory.

Start with `turn`, which is one run from the lease to the rest; each step of it has a file:
`holding` (the lease), `past` and `private` (what was said before), `recording` and `writing` (what
is said now), `doing` (what is done now), `gate` (what may run), `report` (what became of it).
`given` is what a host is made of, and `host` is the door.
"""

from engine_assistant.host.turns.gate import Approvals, Ask, Ready
from engine_assistant.host.turns.host import AssistantHost
from engine_assistant.host.turns.report import Ended, TurnReport, Unsettled
from engine_assistant.host.turns.writing import Batching

__all__ = [
    "Approvals",
    "Ask",
    "AssistantHost",
    "Batching",
    "Ended",
    "Ready",
    "TurnReport",
    "Unsettled",
]
