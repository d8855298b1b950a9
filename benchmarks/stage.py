"""The stage of a benchmark: the engine over one database, and threads whose turn is open."""

import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeAlias

import sqlalchemy as sa

from engine_assistant import RUN, USE, Assistant, Caller, Conflict, Operations

__all__ = ["BODY_BYTES", "TENANT", "Event", "Stage", "Talk", "deltas"]

TENANT: Final = "acme"
BODY_BYTES: Final = 199
_FRAME: Final = '{"text":"","type":"text-delta"}'
_FILL: Final = 128

Event: TypeAlias = dict[str, object]
"""An event as a host gives it."""

_ALICE: Final = Caller(tenant=TENANT, principal="usr_alice", permissions={USE})
_ROBOT: Final = Caller(tenant=TENANT, principal="sys_robot", permissions={RUN}, system=True)


def deltas(count: int) -> list[Event]:
    """Answer events whose stored bodies have 199 bytes, as a host gives them."""
    text = ("A piece of an answer, neither short nor long. " * 5)[: BODY_BYTES - len(_FRAME)]
    return [{"type": "text-delta", "text": text} for _ in range(count)]


@dataclass(frozen=True)
class Talk:
    """A thread whose turn is open, and the lease of the run that writes it."""

    thread_id: str
    run_id: str
    fence: int


class Stage:
    """The engine over one database, for a person and for a run."""

    def __init__(self, engine: sa.Engine) -> None:
        """Bring the tables in."""
        self.engine = engine
        self.assistant = Assistant(engine)
        self.assistant.migrate()
        self.person: Operations = self.assistant.acting_as(_ALICE)
        self.run: Operations = self.assistant.acting_as(_ROBOT)

    def talk(self, history: int = 0) -> Talk:
        """Open a turn in a new thread, and write `history` events into it."""
        thread = self.person.create_thread()
        self.person.send_message(thread_id=thread.id, text="Tell me everything.")
        run_id = f"run_{secrets.token_hex(4)}"
        lease = self.run.acquire_run(thread_id=thread.id, run_id=run_id, stale_after=300)
        talk = Talk(thread.id, run_id, lease.fence)
        while history > 0:
            self.append(talk, deltas(min(history, _FILL)))
            history -= _FILL
        return talk

    def append(self, talk: Talk, events: Sequence[Event]) -> None:
        """Append a batch."""
        self.run.append_events(
            thread_id=talk.thread_id, run_id=talk.run_id, fence=talk.fence, events=events
        )

    def refused_summary(self, talk: Talk) -> None:
        """Ask for a summary of an answer that goes on: it is judged like any, and refused."""
        with suppress(Conflict):
            self._compact(talk, self.run.get_thread(thread_id=talk.thread_id).last_seq)

    def summarise(self, talk: Talk) -> None:
        """Let a summary stand for all that a thread holds."""
        self.append(talk, [{"type": "step-finish"}])
        self._compact(talk, self.run.get_thread(thread_id=talk.thread_id).last_seq)

    def _compact(self, talk: Talk, head: int) -> None:
        self.run.compact(
            thread_id=talk.thread_id,
            from_seq=1,
            to_seq=head,
            summary="They talked.",
            expected_head=head,
        )
