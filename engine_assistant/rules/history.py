"""What a model is told: the log of a thread as messages, valid at every moment of it.

An *answer* is what the model said and asked for at once. It is over when a result came, when the
person spoke, or when its step or turn ended; what the model says after that is its next answer.
The results of an answer stand right behind it, one for each call, and what the person said while
tools ran stands behind the results.

Nothing that a model was told is ever told differently. It is told when its next answer begins, so
results may change until then: `pending` or `unknown` gives way to the output that comes. From then
on they are frozen, and a result that comes later is a note, in the place where it was recorded.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from engine_assistant.model.events import (
    CallRetried,
    ExecutionClaimed,
    Known,
    SeededMessage,
    StepFinish,
    StepStart,
    TextDelta,
    ToolInput,
    TurnError,
    TurnFinish,
    Unknown,
    UserMessage,
)
from engine_assistant.model.rows import CompactionRow
from engine_assistant.model.views.history import (
    HistoryAssistant,
    HistoryCall,
    HistoryMessage,
    HistoryNote,
    HistoryResult,
    HistorySummary,
    HistoryTool,
    HistoryUser,
)
from engine_assistant.rules.results import RESULTS, pending, result_of

__all__ = ["TOLD", "Telling", "tell", "untold_calls"]

_HEARD: Final = (
    SeededMessage,
    UserMessage,
    StepStart,
    TextDelta,
    ToolInput,
    CallRetried,
    ExecutionClaimed,
    *RESULTS,
    StepFinish,
    TurnFinish,
    TurnError,
)

TOLD: Final = frozenset(str(kind.model_fields["type"].default) for kind in _HEARD)
"""The types of event that a history is made of. All others may be left unread."""


@dataclass(slots=True)
class _Answer:
    """The newest answer, what came of its calls, and what stands behind them."""

    turn: int
    from_seq: int
    to_seq: int
    texts: list[str] = field(default_factory=list)
    calls: dict[str, HistoryCall] = field(default_factory=dict)
    results: dict[str, tuple[int, HistoryResult]] = field(default_factory=dict)
    behind: list[HistoryMessage] = field(default_factory=list)
    over: bool = False

    def messages(self) -> list[HistoryMessage]:
        """Return the answer as it stands now: with a result for every call."""
        text, calls = "".join(self.texts), tuple(self.calls.values())
        found: list[HistoryMessage] = []
        if text or calls:
            said = HistoryAssistant(
                turn=self.turn, from_seq=self.from_seq, to_seq=self.to_seq, text=text, calls=calls
            )
            found.append(said)
        if calls:
            found.append(self._results(calls))
        return [*found, *self.behind]

    def _results(self, calls: Iterable[HistoryCall]) -> HistoryTool:
        # What has no result yet is told of where the answer ends.
        given = [self.results.get(call.call_id, (self.to_seq, pending(call))) for call in calls]
        return HistoryTool(
            turn=self.turn,
            from_seq=min(seq for seq, _ in given),
            to_seq=max(seq for seq, _ in given),
            results=tuple(result for _, result in given),
        )


class Telling:
    """Tells a log event by event. At any moment `messages` is a valid history."""

    def __init__(
        self, summaries: Iterable[CompactionRow] = (), tools: Mapping[str, str] | None = None
    ) -> None:
        """Begin with nothing told.

        Args:
            summaries: the ranges that are not told event by event. They do not meet.
            tools: the tools of calls whose proposals are in those ranges, by call id.
        """
        self._summaries = sorted(summaries, key=lambda row: row.from_seq, reverse=True)
        self._tools = dict(tools or {})
        self._told: set[str] = set()
        self._frozen: list[HistoryMessage] = []
        self._answer: _Answer | None = None

    @property
    def messages(self) -> list[HistoryMessage]:
        """Return what is told up to here."""
        if self._answer is None:
            return [*self._frozen]
        return [*self._frozen, *self._answer.messages()]

    @property
    def unfinished(self) -> int | None:
        """Return from which number on messages may still change, if they may."""
        answer = self._answer
        if answer is None or (answer.over and len(answer.results) == len(answer.calls)):
            return None
        return answer.from_seq

    def take(self, event: Known | Unknown) -> None:
        """Tell the next event."""
        self.summarise(before=event.seq)
        match event:
            case TextDelta():
                answer = self._content(event)
                answer.texts.append(event.text)
            case ToolInput():
                self._propose(event)
            case StepStart():
                self._freeze()
            case StepFinish() | TurnFinish() | TurnError():
                self._end()
            case UserMessage() | SeededMessage():
                self._say(event)
            case CallRetried() | ExecutionClaimed():
                # An unknown call that runs again has no result any more.
                if self._answer is not None:
                    self._answer.results.pop(event.call_id, None)
            case _:
                self._end_call(event)

    def summarise(self, *, before: int | None = None) -> None:
        """Tell the summaries whose ranges come next."""
        while self._summaries and (before is None or self._summaries[-1].to_seq < before):
            row = self._summaries.pop()
            self._freeze()
            self._frozen.append(
                HistorySummary(from_seq=row.from_seq, to_seq=row.to_seq, text=row.summary)
            )

    def _freeze(self) -> None:
        """Let everything stand as it was told."""
        if self._answer is not None:
            self._frozen += self._answer.messages()
            self._told.update(self._answer.calls)
            self._answer = None

    def _end(self) -> None:
        if self._answer is not None:
            self._answer.over = True

    def _content(self, event: TextDelta | ToolInput) -> _Answer:
        """Return the answer that this belongs to: the newest one, or the next."""
        if self._answer is None or self._answer.over:
            self._freeze()
            self._answer = _Answer(event.turn, event.seq, event.seq)
        self._answer.to_seq = event.seq
        return self._answer

    def _propose(self, event: ToolInput) -> None:
        if event.call_id in self._told:
            return
        call = HistoryCall(
            call_id=event.call_id,
            provider_call_id=event.provider_call_id,
            tool=event.tool,
            input=event.input,
        )
        answer = self._answer
        if answer is None or call.call_id not in answer.calls:
            answer = self._content(event)
        answer.calls[call.call_id] = call
        answer.to_seq = event.seq
        self._tools[call.call_id] = call.tool

    def _say(self, event: UserMessage | SeededMessage) -> None:
        seq, turn = event.seq, event.turn
        if isinstance(event, SeededMessage) and event.role == "assistant":
            self._add(HistoryAssistant(turn=turn, from_seq=seq, to_seq=seq, text=event.text))
            return
        files = event.files if isinstance(event, UserMessage) else None
        self._end()
        self._add(
            HistoryUser(turn=turn, from_seq=seq, to_seq=seq, text=event.text, files=files or ())
        )

    def _end_call(self, event: Known | Unknown) -> None:
        result = result_of(event, self._tools)
        if result is None:
            return
        seq, answer = event.seq, self._answer
        if answer is None or result.call_id not in answer.calls:
            self._add(HistoryNote(turn=event.turn, from_seq=seq, to_seq=seq, result=result))
            return
        answer.results[result.call_id] = (seq, result)
        answer.over = True

    def _add(self, message: HistoryMessage) -> None:
        """Put a message behind the newest answer and its results."""
        (self._frozen if self._answer is None else self._answer.behind).append(message)


def untold_calls(events: Iterable[Known | Unknown]) -> set[str]:
    """Return the calls that are given results among these events, and proposed in none."""
    proposed: set[str] = set()
    ended: set[str] = set()
    for event in events:
        if isinstance(event, ToolInput):
            proposed.add(event.call_id)
            continue
        result = result_of(event, {})
        if result is not None:
            ended.add(result.call_id)
    return ended - proposed


def tell(
    events: Iterable[Known | Unknown],
    summaries: Iterable[CompactionRow] = (),
    tools: Mapping[str, str] | None = None,
) -> Telling:
    """Tell a log, or what of it no summary stands for. See `Telling`."""
    telling = Telling(summaries, tools)
    for event in events:
        telling.take(event)
    telling.summarise()
    return telling
