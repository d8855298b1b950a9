"""Recording one conversation as a host would, and going on wherever it was stopped.

Nothing is remembered beside the record. A message has a key, a batch a number, a claim an attempt;
and what a killed process left behind is read from the log. A call that ran when its process died
is `unknown`: its result is settled late, and it is never run again.
"""

from collections.abc import Sequence
from typing import Final

from engine_assistant import Operations
from engine_assistant.cli.replay.host import Host
from engine_assistant.cli.replay.progress import Done, read
from engine_assistant.cli.replay.script import Broken, Call, Conversation, Entry, Turn, batches
from engine_assistant.model.events import Known, ToolOutput, TurnFinish
from engine_assistant.model.machines import CallState

__all__ = ["record"]

RUN_ID: Final = "replay"
VERSION: Final = "recorded"
_EXPIRES_IN: Final = 30 * 86_400.0


def record(host: Host, conversation: Conversation) -> bool:
    """Bring the record to the end of the conversation; return whether anything was missing.

    Raises:
        Broken: the record holds something else under this id, or somebody else ended a call.
        AssistantError: what the engine refused.
    """
    person = host.assistant.acting_as(host.owner)
    thread = person.create_thread(title=conversation.id, key=conversation.id)
    done = read(person, thread.id, conversation) if thread.last_seq else []
    writer = _Writer(host, person, thread.id, conversation)
    missing = False
    for number in range(len(conversation.turns)):
        if number >= len(done) or not done[number].finished:
            writer.write(number, begun=number < len(done))
            missing = True
    return missing


class _Writer:
    """Writes the turns of one thread, under one lease after the other."""

    def __init__(
        self, host: Host, person: Operations, thread_id: str, conversation: Conversation
    ) -> None:
        self._host = host
        self._person = person
        self._process = host.assistant.acting_as(host.process)
        self._thread_id = thread_id
        self._conversation = conversation
        self._fence = 0
        self._batch = 0

    def write(self, number: int, *, begun: bool) -> None:
        """Write a turn from the person's message on, or what is missing of it."""
        turn = self._conversation.turns[number]
        last_seq = None if begun else self._say(turn)
        self._acquire()
        done = self._done(number, last_seq)
        if done.finished:
            return
        for entry in turn.entries[: done.entries]:
            self._settle(entry)
        rest = turn.entries[done.entries :]
        finish = TurnFinish(reason=turn.reason)
        for left, entry in zip(range(len(rest) - 1, -1, -1), rest, strict=True):
            last = left == 0 and not entry.calls
            self._propose(entry, [finish] if last else [])
            self._bring_results(entry)
        if not rest or rest[-1].calls:
            self._append([finish])

    def _say(self, turn: Turn) -> int | None:
        """Send the person's message; return the number the log then ends with, if it was new."""
        receipt = self._person.send_message(thread_id=self._thread_id, text=turn.text, key=turn.key)
        return None if receipt.duplicate else receipt.last_seq

    def _done(self, number: int, last_seq: int | None) -> Done:
        """Return what is recorded of the turn now that nobody else can write.

        Read before the lease was taken it could be short of what another replay wrote meanwhile.
        """
        if last_seq is not None:
            page = self._person.read_events(thread_id=self._thread_id, last=1)
            if page.head_seq == last_seq:
                return Done()
        self._approve_all()
        return read(self._person, self._thread_id, self._conversation)[number]

    def _acquire(self) -> None:
        # One run id for every replay: after a kill the lease is taken at once, and whoever was
        # thought dead and still writes is fenced.
        lease = self._process.acquire_run(thread_id=self._thread_id, run_id=RUN_ID)
        self._fence, self._batch = lease.fence, 0

    def _append(self, events: Sequence[Known], calls: Sequence[Call] = ()) -> None:
        """Append events, and request approval of calls among them, in one transaction.

        A gated call that was proposed and not yet asked about would not survive a kill.
        """
        numbered = list(enumerate(batches(events), self._batch + 1))

        def work(process: Operations) -> None:
            for number, batch in numbered:
                process.append_events(
                    thread_id=self._thread_id,
                    run_id=RUN_ID,
                    fence=self._fence,
                    events=batch,
                    batch=number,
                )
            for call in calls:
                process.request_approval(
                    thread_id=self._thread_id,
                    run_id=RUN_ID,
                    fence=self._fence,
                    call_id=call.call_id,
                    operation=call.tool,
                    version=VERSION,
                    expires_in=_EXPIRES_IN,
                )

        if len(numbered) == 1 and not calls:
            work(self._process)
        else:
            self._host.assistant.transact(self._host.process, work)
        self._batch += len(numbered)

    def _propose(self, entry: Entry, finish: list[Known]) -> None:
        gated = [call for call in entry.calls if self._host.gates(call)]
        self._append([*entry.events, *finish], gated)

    def _bring_results(self, entry: Entry) -> None:
        """Bring the results of an entry just written: ungated calls first, then the approved."""
        gated = [call for call in entry.calls if self._host.gates(call)]
        events: list[Known] = [
            ToolOutput(call_id=call.call_id, output=call.output)
            for call in entry.calls
            if call.answered and not self._host.gates(call)
        ]
        if gated:
            events.append(TurnFinish(reason="awaiting-approval"))
        if events:
            self._append(events)
        if gated:
            self._approve_all()
            self._acquire()
        for call in gated:
            self._execute(call)

    def _approve_all(self) -> None:
        """Answer every card in the owner's inbox for this thread, as the card stands."""
        while cards := self._person.list_approvals(thread_id=self._thread_id).items:
            for card in cards:
                self._person.resolve_approval(
                    thread_id=self._thread_id,
                    call_id=card.call_id,
                    approved=True,
                    digest=card.digest,
                    version=card.version,
                )

    def _execute(self, call: Call) -> None:
        """Claim the one right to run a call, run it, and write what it returned."""
        self._process.claim_execution(
            thread_id=self._thread_id,
            run_id=RUN_ID,
            fence=self._fence,
            call_id=call.call_id,
            operation=call.tool,
            version=VERSION,
            input=call.input,
            attempt=1,
        )
        output = self._host.execute(self._conversation.id, call)
        self._append([ToolOutput(call_id=call.call_id, output=output)])

    def _settle(self, entry: Entry) -> None:
        """Bring what is missing of an entry that was written before a kill.

        Taking the lease closed the calls that were running as `unknown`: what they returned may
        still be brought, but running them again is not ours to decide.
        """
        for call in entry.calls:
            if not call.answered:
                continue
            found = self._process.get_call(thread_id=self._thread_id, call_id=call.call_id)
            if found.state is CallState.APPROVED:
                self._execute(call)
            elif found.state is CallState.UNKNOWN and found.claimed_fence is not None:
                self._process.settle_execution(
                    thread_id=self._thread_id,
                    call_id=call.call_id,
                    claimed_fence=found.claimed_fence,
                    output=call.output,
                )
            elif found.state not in (CallState.DONE, CallState.FAILED):
                raise Broken(f"the call {call.call_id} ended as {found.state} in the record")
