"""`runs THREAD`: every run of one thread, newest first, and what became of each."""

from collections.abc import Iterator

from rich.text import Text

from engine_assistant import Operations
from engine_assistant.cli.exits import ExitCode
from engine_assistant.cli.look import auditor, located, looked_at
from engine_assistant.cli.screen import Screen, printable
from engine_assistant.model.times import to_text
from engine_assistant.model.usage import Usage
from engine_assistant.model.views.runs import RunView

__all__ = ["runs_of"]

_PAGE = 500


def runs_of(
    screen: Screen, url: str, thread_id: str, *, tenant: str | None, limit: int
) -> ExitCode:
    """List the runs of a thread, one a line."""
    with looked_at(url) as assistant:
        thread = located(assistant, thread_id, tenant)
        ops = assistant.acting_as(auditor(thread.tenant_id))
        count = 0
        for run in _every(ops, thread_id, limit):
            count += 1
            if screen.json:
                screen.data(run.model_dump(mode="json"))
            else:
                screen.out.print(_line(run))
    if not count:
        screen.say("Nobody has run it yet.", "dim")
    return ExitCode.GOOD


def _every(ops: Operations, thread_id: str, limit: int) -> Iterator[RunView]:
    cursor: str | None = None
    while limit > 0:
        page = ops.list_runs(thread_id=thread_id, limit=min(limit, _PAGE), cursor=cursor)
        yield from page.items
        limit -= len(page.items)
        cursor = page.cursor
        if cursor is None:
            return


def _line(run: RunView) -> Text:
    told = [_when(run), *_used(run.usage)]
    if run.operation is not None:
        told.append(f"{printable(run.operation.kind)} {printable(run.operation.phase)}")
    return Text.assemble(
        (f"fence {run.fence:<4}", "bold"),
        f"{printable(run.run_id)}  turn {run.turn}  ",
        (f"{run.state.value:<9}", "cyan"),
        ", ".join(told),
    )


def _when(run: RunView) -> str:
    if run.ended_at is None:
        until = "" if run.lease_until is None else f" until {to_text(run.lease_until)}"
        return f"holds the lease{until}"
    seconds = (run.ended_at - run.started_at).total_seconds()
    return f"{printable(run.reason or 'ended')} after {seconds:.1f} s"


def _used(usage: Usage | None) -> Iterator[str]:
    if usage is None:
        return
    for name in ("input", "output", "reasoning", "cache_read", "cache_write"):
        figure = getattr(usage, name)
        if figure is not None:
            yield f"{name.replace('_', ' ')} {figure.value:,}"
    if usage.cost is not None:
        yield f"{usage.cost.value} {usage.cost.currency}"
