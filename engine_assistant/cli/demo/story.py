"""The story of one refund, through the public API exactly as a host would use it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from engine_assistant import (
    RUN,
    USE,
    Assistant,
    AssistantError,
    Caller,
    Conflict,
    Internal,
    tool_version,
)
from engine_assistant.model.codec import JsonValue
from engine_assistant.model.events import (
    Event,
    Known,
    StepFinish,
    StepStart,
    TextDelta,
    ToolInput,
    ToolOutput,
    TurnFinish,
)
from engine_assistant.model.machines import CallState
from engine_assistant.model.views import ApprovalView

__all__ = ["REQUEST", "Refusal", "Story"]

TENANT: Final = "demo"
ALICE: Final = Caller(TENANT, "usr_alice", {USE}, channel="terminal")
MALLORY: Final = Caller(TENANT, "usr_mallory", {USE}, channel="terminal")
PLATFORM: Final = Caller(TENANT, "sys_assistant", {RUN}, system=True)

REQUEST: Final = "I was charged twice for order 1007. Please give me the second payment back."
PROPOSAL: Final = (
    "I see two payments of 49.90 EUR for order 1007, one minute apart. ",
    "The second is a mistake. ",
    "I would refund it to your card. ",
    "Please check the card below: nothing moves before you say yes.",
)
CALL: Final = "call_1"
TOOL: Final = "refund"
INPUT: Final[Mapping[str, JsonValue]] = {"order": "1007", "amount": "49.90", "currency": "EUR"}
CHANGED: Final[Mapping[str, JsonValue]] = {**INPUT, "amount": "4990.00"}
SCHEMA: Final[Mapping[str, JsonValue]] = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in INPUT},
    "required": list(INPUT),
}
VERSION: Final = tool_version(TOOL, dict(SCHEMA), "moves money")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Something that was tried, and what the engine answered."""

    tried: str
    code: str
    message: str


class Story:
    """One thread, two processes that run the assistant, and the tool that moves money."""

    def __init__(self, assistant: Assistant) -> None:
        """Let a person open a thread."""
        self._alice = assistant.acting_as(ALICE)
        self._mallory = assistant.acting_as(MALLORY)
        self._platform = assistant.acting_as(PLATFORM)
        self.thread_id = self._alice.create_thread(title="Refund for order 1007").id
        self.refunds: list[JsonValue] = []
        self.refusals: list[Refusal] = []
        self._fences = {"run_1": 0, "run_2": 0}

    def ask(self) -> None:
        """Alice sends her message, and the first process takes the lease."""
        self._alice.send_message(thread_id=self.thread_id, text=REQUEST, key="message-1")
        self._acquire("run_1")

    def answer(self) -> Iterator[str]:
        """Stream the answer into the record, and tell each piece once it is kept."""
        self._append("run_1", StepStart(step="step_1"))
        for piece in PROPOSAL:
            self._append("run_1", TextDelta(text=piece))
            yield piece

    def propose(self) -> ApprovalView:
        """Propose the call, request approval, let the turn rest; return the card of Alice."""
        self._append(
            "run_1",
            ToolInput(call_id=CALL, tool=TOOL, input=dict(INPUT), step="step_1"),
            StepFinish(stop_reason="tool_calls"),
        )
        self._platform.request_approval(
            thread_id=self.thread_id,
            run_id="run_1",
            fence=self._fences["run_1"],
            call_id=CALL,
            operation=TOOL,
            version=VERSION,
            expires_in=3600,
        )
        self._append("run_1", TurnFinish(reason="awaiting-approval"))
        return self._alice.list_approvals(thread_id=self.thread_id).items[0]

    def decide(self, card: ApprovalView, *, approved: bool) -> None:
        """Let a stranger try first; then Alice decides, and a second process takes over."""
        self._refused(
            "somebody else approve it",
            lambda: self._mallory.resolve_approval(
                thread_id=self.thread_id,
                call_id=CALL,
                approved=True,
                digest=card.digest,
                version=VERSION,
            ),
        )
        self._resolve(card, approved=approved)
        self._acquire("run_2")

    def run(self) -> str:
        """Claim the call and run it, once, while others try what they must not; tell Alice."""
        self._refused(
            f"the refund run with {CHANGED['amount']} instead of {INPUT['amount']}",
            lambda: self._claim(dict(CHANGED)),
        )
        self._claim(dict(INPUT))
        self._refused("it be claimed a second time", lambda: self._claim(dict(INPUT)))
        output = self._refund(dict(INPUT))
        self._append("run_2", ToolOutput(call_id=CALL, output=output))
        self._write_as_replaced()
        return self._finish("Done: 49.90 EUR are on the way back to your card.")

    def leave(self, card: ApprovalView) -> str:
        """After a denial nobody can run it, and nobody can change the answer; tell Alice."""
        self._refused("it be run all the same", lambda: self._claim(dict(INPUT)))
        self._refused("it be approved after all", lambda: self._resolve(card, approved=True))
        self._write_as_replaced()
        return self._finish("I have not refunded anything. Tell me if you change your mind.")

    @property
    def state(self) -> CallState:
        """How the call stands in the record."""
        return self._alice.get_call(thread_id=self.thread_id, call_id=CALL).state

    def timeline(self) -> tuple[Event, ...]:
        """Return every event of the thread."""
        return self._alice.read_events(thread_id=self.thread_id).events

    def _acquire(self, run_id: str) -> None:
        lease = self._platform.acquire_run(thread_id=self.thread_id, run_id=run_id)
        self._fences[run_id] = lease.fence

    def _append(self, run_id: str, *events: Known) -> None:
        self._platform.append_events(
            thread_id=self.thread_id, run_id=run_id, fence=self._fences[run_id], events=events
        )

    def _finish(self, text: str) -> str:
        self._append(
            "run_2",
            StepStart(step="step_2"),
            TextDelta(text=text),
            StepFinish(stop_reason="stop"),
            TurnFinish(reason="done"),
        )
        return text

    def _resolve(self, card: ApprovalView, *, approved: bool) -> None:
        self._alice.resolve_approval(
            thread_id=self.thread_id,
            call_id=CALL,
            approved=approved,
            digest=card.digest,
            version=VERSION,
        )

    def _claim(self, tool_input: JsonValue) -> None:
        self._platform.claim_execution(
            thread_id=self.thread_id,
            run_id="run_2",
            fence=self._fences["run_2"],
            call_id=CALL,
            operation=TOOL,
            version=VERSION,
            input=tool_input,
        )

    def _refund(self, tool_input: JsonValue) -> JsonValue:
        """Move the money: the tool of this host."""
        self.refunds.append(tool_input)
        return {"refunded": INPUT["amount"], "to": "card ending 4242"}

    def _write_as_replaced(self) -> None:
        """Let the first process wake up and write under the fence it once had."""
        self._refused(
            "the replaced process go on writing",
            lambda: self._append("run_1", TextDelta(text="I was only asleep.")),
        )

    def _refused(self, tried: str, attempt: Callable[[], object]) -> None:
        """Try what must be refused, and keep the engine's own answer."""
        try:
            attempt()
        except AssistantError as error:
            code = error.reason.value if isinstance(error, Conflict) else error.code
            self.refusals.append(Refusal(tried, code, error.message))
        else:
            raise Internal(f"The engine should have refused this: {tried}.")
