"""`threads` and `runs`: what is in the database, and what is being run or waits to be."""

from collections.abc import Callable, Iterator

from rich.text import Text

from engine_assistant import Assistant
from engine_assistant.cli.exits import ExitCode
from engine_assistant.cli.look import looked_at
from engine_assistant.cli.screen import Screen, printable
from engine_assistant.model.service import Surveyed
from engine_assistant.model.times import to_text

__all__ = ["runs", "threads"]

_PAGE = 500


def _every(
    assistant: Assistant, tenant: str | None, *, unrested: bool, limit: int
) -> Iterator[Surveyed]:
    """Yield threads page by page, so that memory stays flat."""
    after: tuple[str, str] | None = None
    while limit > 0:
        page = assistant.survey(
            tenant=tenant, unrested=unrested, limit=min(limit, _PAGE), after=after
        )
        yield from page
        if not page:
            return
        limit -= len(page)
        after = (page[-1].tenant_id, page[-1].id)


def threads(screen: Screen, url: str, *, tenant: str | None, limit: int) -> ExitCode:
    """List threads, one a line."""
    return _list(screen, url, tenant, limit=limit, unrested=False, line=_thread_line)


def runs(screen: Screen, url: str, *, tenant: str | None, limit: int) -> ExitCode:
    """List the threads whose turn is not at rest, with who holds the lease."""
    return _list(screen, url, tenant, limit=limit, unrested=True, line=_run_line)


def _list(
    screen: Screen,
    url: str,
    tenant: str | None,
    *,
    limit: int,
    unrested: bool,
    line: Callable[[Surveyed], Text],
) -> ExitCode:
    count = 0
    with looked_at(url) as assistant:
        for thread in _every(assistant, tenant, unrested=unrested, limit=limit):
            count += 1
            if screen.json:
                screen.data(thread.model_dump(mode="json"))
            else:
                screen.out.print(line(thread))
    if not count:
        screen.say("No turn is open." if unrested else "No threads.", "dim")
    return ExitCode.GOOD


def _thread_line(thread: Surveyed) -> Text:
    state = thread.status if thread.closed_at else thread.turn_state
    return Text.assemble(
        (thread.id, "bold"),
        f"  {printable(thread.tenant_id)}/{printable(thread.subject_id)}  ",
        (f"{state.value:<9}", "cyan"),
        f"turn {thread.turn}, {thread.last_seq} events",
        (f"  {printable(thread.title)}" if thread.title else "", "dim"),
    )


def _run_line(thread: Surveyed) -> Text:
    if thread.lease_until is not None:
        run = printable(thread.run_id or "")
        held = f"held by {run} under fence {thread.fence} until {to_text(thread.lease_until)}"
    elif thread.next_deadline is not None:
        held = f"waits for people until {to_text(thread.next_deadline)}"
    else:
        held = "nobody runs it"
    return Text.assemble(
        (thread.id, "bold"),
        f"  {printable(thread.tenant_id)}  ",
        (f"turn {thread.turn_state.value:<9}", "cyan"),
        held,
    )
