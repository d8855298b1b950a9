"""Many turns at once in one process: `python -m benchmarks.turns [--turns N] [--database URL]`.

Each turn has a model that speaks for some seconds, a few words at a time, and uses a tool in the
middle. What is measured is how long the event loop was kept from everybody else:

    by us       the longest that one callback computed, in seconds of the thread's own time
    collector   the longest that Python's own collector took of it; `gc.freeze()` at the start of a
                process spares it what was imported, and is done here, as a host would do it
    late        the longest that a tick came too late, whoever was to blame: this machine, too

Nobody but this process should work meanwhile, if the last figure is to mean something.
"""

import argparse
import asyncio
import gc
import statistics
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from benchmarks.__main__ import _database
from engine_assistant import RUN, USE, AsyncAssistant, Caller
from engine_assistant.host import (
    AssistantHost,
    AssistantMessage,
    ModelRequest,
    ModelResult,
    StopReason,
    Text,
    TextDelta,
    ToolCall,
    ToolRegistry,
    tool,
)
from engine_assistant.testing.databases import awaited

_ALICE = Caller(tenant="acme", principal="usr_alice", permissions={USE})
_ROBOT = Caller(tenant="acme", principal="sys_robot", permissions={RUN}, system=True)
_BOUND = 0.05
_TICK = 0.005


@tool(effect="read", approval="never")
async def look(order: int) -> dict[str, int]:
    """Look an order up."""
    await asyncio.sleep(0.1)
    return {"order": order}


@dataclass(frozen=True)
class Talker:
    """A model that says so many words, `pause` seconds apart, calls, and says them again."""

    words: int
    pause: float

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelResult]:
        """Speak, as the port says."""
        text = [f"word {n}, and more; " for n in range(self.words)]
        for word in text:
            await asyncio.sleep(self.pause)
            yield TextDelta(text=word)
        said = Text("".join(text))
        if any(message.role == "assistant" for message in request.messages):
            yield ModelResult(message=AssistantMessage((said,)), stop_reason=StopReason.END_TURN)
            return
        call = ToolCall("look", {"order": 7})
        message = AssistantMessage((said, call))
        yield ModelResult(message=message, stop_reason=StopReason.TOOL_CALL)


@dataclass
class Watch:
    """What was seen of the event loop."""

    computed: list[float] = field(default_factory=list)
    collected: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    _begun: float = 0.0
    _of_this: float = 0.0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Take the time of every callback that the loop runs."""
        run = asyncio.Handle._run  # noqa: SLF001 - the one place that every callback passes

        def timed(handle: asyncio.Handle) -> None:
            self._of_this = 0.0
            begun = time.thread_time()
            try:
                run(handle)
            finally:
                self.computed.append(time.thread_time() - begun - self._of_this)

        asyncio.Handle._run = timed  # type: ignore[method-assign, assignment] # noqa: SLF001
        gc.callbacks.append(self._collecting)
        ticking = asyncio.create_task(self._tick())
        try:
            yield
        finally:
            gc.callbacks.remove(self._collecting)
            asyncio.Handle._run = run  # type: ignore[method-assign] # noqa: SLF001
            ticking.cancel()

    def _collecting(self, phase: str, _: object) -> None:
        if phase == "start":
            self._begun = time.thread_time()
            return
        took = time.thread_time() - self._begun
        self.collected.append(took)
        self._of_this += took

    async def _tick(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            begun = clock()
            await asyncio.sleep(_TICK)
            self.late.append(clock() - begun - _TICK)


async def _measure(url: str, turns: int, talker: Talker) -> tuple[Watch, Counter[str], int, float]:
    assistant = AsyncAssistant.from_url(awaited(url))
    await assistant.migrate()
    me = assistant.acting_as(_ALICE)
    host = AssistantHost(
        assistant=assistant, caller=_ROBOT, model=talker, tools=ToolRegistry([look])
    )
    threads = [(await me.create_thread()).id for _ in range(turns)]
    for thread_id in threads:
        await me.send_message(thread_id=thread_id, text="Tell me everything.")
    gc.collect()
    gc.freeze()
    watch = Watch()
    begun = time.perf_counter()
    with watch.watching():
        reports = await asyncio.gather(*(host.run_turn(thread_id) for thread_id in threads))
    seconds = time.perf_counter() - begun
    events = 0
    for thread_id in threads:
        events += (await me.get_thread(thread_id=thread_id)).last_seq
    await assistant.engine.dispose()
    return watch, Counter(report.ended.value for report in reports), events, seconds


def main() -> int:
    """Measure, print the report, and answer 1 when we kept the loop too long or lost a lease."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.turns", description=__doc__)
    parser.add_argument("--turns", type=int, default=50)
    parser.add_argument("--words", type=int, default=200, help="words of an answer")
    parser.add_argument("--pause", type=float, default=0.02, help="seconds between two words")
    parser.add_argument("--database", help="a Postgres URL; default is a server of our own")
    asked = parser.parse_args()
    with _database(asked.database) as url:
        address = url.render_as_string(hide_password=False)
        talker = Talker(asked.words, asked.pause)
        watch, ended, events, seconds = asyncio.run(_measure(address, asked.turns, talker))
    longest = max(watch.computed)
    table = Table("what", "measured")
    for what, measured in (
        ("turns at once", str(asked.turns)),
        ("how they ended", ", ".join(f"{count} {name}" for name, count in ended.items())),
        ("seconds", f"{seconds:.1f}"),
        ("events written", f"{events:,} ({events / seconds:,.0f}/s)"),
        ("callbacks of the loop", f"{len(watch.computed):,}"),
        ("by us, at the median", f"{statistics.median(watch.computed) * 1000:.2f} ms"),
        ("by us, longest", f"{longest * 1000:.1f} ms (bound {_BOUND * 1000:.0f})"),
        ("collector, longest", f"{max(watch.collected, default=0) * 1000:.1f} ms"),
        ("late, 99 of 100 ticks", f"{_percentile(watch.late) * 1000:.1f} ms"),
        ("late, longest", f"{max(watch.late) * 1000:.1f} ms"),
    ):
        table.add_row(what, measured)
    Console().print(table)
    return 0 if longest <= _BOUND and set(ended) == {"done"} else 1


def _percentile(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[-1]


if __name__ == "__main__":
    sys.exit(main())
