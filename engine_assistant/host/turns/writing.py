"""What a run writes into the log: deltas in small batches, everything else at once.

Deltas are held back for a moment, so that a fast model does not cost a transaction for each word.
Anything else that is written takes what was held back along, in front of it and in one batch, so
the log has the order in which things happened.

Each batch has a number. When its answer is lost the same batch is given again under the same
number, and the record answers what it answered then.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from engine_assistant import AssistantError, Limits
from engine_assistant.host.model import Usage
from engine_assistant.host.turns.holding import Holding, LeaseLost
from engine_assistant.host.turns.spent import total
from engine_assistant.model.events import Known, ReasoningDelta, TextDelta

__all__ = ["Batching", "Scribe"]

_BYTES_OF_A_CHARACTER: Final = 6
"""What a character takes at most when it is stored: as an escape."""

_BODY: Final = 64
"""What an event takes beside its text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """How long deltas may be held back.

    Attributes:
        seconds: from the first of them on.
        bytes: until there are so many, as UTF-8. The model is listened to no further meanwhile.
    """

    seconds: float = 0.05
    bytes: int = 4096

    def __post_init__(self) -> None:
        """Refuse what would hold them for ever, or never."""
        if not self.seconds >= 0 or self.bytes < 1:
            raise ValueError("batching: seconds must be 0 or more, and bytes 1 or more")


class Scribe:
    """Writes the assistant's side of one thread, under one lease."""

    def __init__(self, holding: Holding, batching: Batching, limits: Limits) -> None:
        self._holding = holding
        self._batching = batching
        self._most = max(1, (limits.event_bytes - _BODY) // _BYTES_OF_A_CHARACTER)
        self._held: list[Known] = []
        self._bytes = 0
        self._batch = 0
        self._writing = asyncio.Lock()
        self._flushing: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        self._forgiving = False
        self._told: list[Usage] = []
        self._spent: Usage | None = None
        self._noted: Usage | None = None

    def spend(self, usage: Usage | None) -> None:
        """Note what a request used up. It is told with the next events that are not put off."""
        if usage is not None:
            self._told.append(usage)
            self._spent = total(self._told)

    async def say(self, event: Known) -> None:
        """Write an event soon: it may wait for those after it.

        Raises:
            LeaseLost, AssistantError: this write, or an earlier one that was put off, failed.
        """
        self._raise_failure()
        self._hold_back(event)
        if self._bytes >= self._batching.bytes:
            await self.write()
        elif self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush())

    async def write(self, *events: Known) -> None:
        """Write what was held back, and these events behind it, in one batch.

        Raises:
            LeaseLost: the lease is gone.
            AssistantError: the record refuses these events. None of them was kept; what was held
                back before them is written alone, unless the record refuses that too.
        """
        async with self._writing:
            self._raise_failure()
            held, self._held, self._bytes = self._held, [], 0
            if not held and not events:
                return
            # Deltas alone are the cheapest batch; what has not changed need not be told.
            news = self._spent if events and self._spent != self._noted else None
            try:
                await self._append([*held, *events], news)
            except AssistantError:
                # What was said before was said, whatever is wrong with these.
                if held and events:
                    with suppress(AssistantError):
                        await self._append(held, None)
                raise

    async def _append(self, batch: list[Known], news: Usage | None) -> None:
        number = self._batch + 1
        told = await self._holding.write(
            lambda: self._holding.ops.append_events(
                **self._holding.key, events=batch, batch=number, usage=news
            )
        )
        self._batch = number
        self._noted = news or self._noted
        self._holding.heard(interrupt_requested=told.interrupt_requested)

    def forgive(self) -> None:
        """Forget that a write which was put off failed, or will: what comes next alone matters."""
        self._forgiving = True

    async def aclose(self) -> None:
        """Write nothing more. What is held back is forgotten."""
        self._held = []
        if self._flushing is not None:
            self._flushing.cancel()
            await asyncio.wait({self._flushing})

    async def _flush(self) -> None:
        await asyncio.sleep(self._batching.seconds)
        try:
            await self.write()
        except LeaseLost:
            pass  # who waits in the run is cancelled by the lease itself
        except Exception as error:  # noqa: BLE001 - raised again where somebody waits for it
            self._failure = error

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None and not self._forgiving:
            raise failure

    def _hold_back(self, event: Known) -> None:
        """Join a delta to the one before it; the text stays the same."""
        if not isinstance(event, TextDelta | ReasoningDelta):
            self._held.append(event)
            return
        # A lone surrogate cannot be stored; models that stream bytes cut characters in two.
        text = event.text.encode(errors="replace").decode()
        self._bytes += len(text.encode())
        last = self._held[-1] if self._held else None
        if isinstance(last, TextDelta | ReasoningDelta) and last.type == event.type:
            text = last.text + text
            self._held.pop()
        kind = type(event)
        self._held += [
            kind(text=text[at : at + self._most]) for at in range(0, len(text), self._most)
        ]
