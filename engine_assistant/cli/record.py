"""The commands that look at a record and act on it. With `--json`: one object a line."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from engine_assistant.cli.exits import HELP, end
from engine_assistant.cli.options import DEFAULT, Database, Json, Limit, Person, Tenant

__all__ = ["add_to"]

Thread = Annotated[str, typer.Argument(metavar="THREAD", help="The id of a thread.")]
Call = Annotated[str, typer.Argument(metavar="CALL", help="The id of a call on it.")]
Every = Annotated[float, typer.Option(min=0.05, max=86_400, help="Seconds between two looks.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask again.")]
Why = Annotated[str | None, typer.Option(help="Recorded with the decision.", show_default=False)]


def add_to(app: typer.Typer) -> None:
    """Add the commands in the order in which the help shows them."""
    for command in (threads, show, tail, approvals, approve, deny, runs, relay, doctor, export):
        app.command(epilog=HELP)(command)
    app.command("import", epilog=HELP)(import_)


def threads(
    *, tenant: Tenant = None, limit: Limit = 100, database: Database = DEFAULT, json: Json = False
) -> None:
    """List threads."""
    from engine_assistant.cli.look import threads as look

    end(lambda screen: look.threads(screen, database, tenant=tenant, limit=limit), json=json)


def runs(
    *,
    thread: Annotated[
        str | None,
        typer.Argument(metavar="[THREAD]", help="The id of a thread.", show_default=False),
    ] = None,
    tenant: Tenant = None,
    limit: Limit = 100,
    database: Database = DEFAULT,
    json: Json = False,
) -> None:
    """List threads whose turn is not at rest, and who holds the lease; or all runs of a thread.

    Of a thread: by what each run ended, what it used up, and what it did last. Newest first.
    """
    from engine_assistant.cli.look import runs as one
    from engine_assistant.cli.look import threads as every

    if thread is None:
        end(lambda screen: every.runs(screen, database, tenant=tenant, limit=limit), json=json)
    else:
        end(
            lambda screen: one.runs_of(screen, database, thread, tenant=tenant, limit=limit),
            json=json,
        )


def show(
    *, thread: Thread, tenant: Tenant = None, database: Database = DEFAULT, json: Json = False
) -> None:
    """Show a thread: the conversation, its calls, and the numbered timeline."""
    from engine_assistant.cli.look import show as look

    end(lambda screen: look.show(screen, database, thread, tenant=tenant), json=json)


def tail(
    *,
    thread: Thread,
    tenant: Tenant = None,
    after: Annotated[
        int | None,
        typer.Option(min=0, help="Start after this number.", show_default="the last ten"),
    ] = None,
    every: Every = 0.5,
    database: Database = DEFAULT,
    json: Json = False,
) -> None:
    """Follow a thread live, until it is closed or Ctrl-C."""
    from engine_assistant.cli.look import show as look

    end(
        lambda screen: look.tail(screen, database, thread, tenant=tenant, after=after, every=every),
        json=json,
    )


def approvals(
    *,
    person: Person,
    tenant: Annotated[str, typer.Option(help="The tenant of the person.")],
    state: Annotated[
        str, typer.Option(help="pending, approved, denied, expired, superseded, cancelled, all.")
    ] = "pending",
    database: Database = DEFAULT,
    json: Json = False,
) -> None:
    """List what waits for a person, across threads."""
    from engine_assistant.cli.look import approvals as look
    from engine_assistant.model.machines import ApprovalState

    if state not in (*ApprovalState, "all"):
        states = ", ".join(ApprovalState)
        raise typer.BadParameter(f"--state is one of {states}, or all.")
    wanted = None if state == "all" else state
    end(
        lambda screen: look.approvals(screen, database, tenant=tenant, person=person, state=wanted),
        json=json,
    )


def approve(
    *,
    thread: Thread,
    call: Call,
    person: Person,
    tenant: Tenant = None,
    reason: Why = None,
    yes: Yes = False,
    database: Database = DEFAULT,
    json: Json = False,
) -> None:
    """Show what would run, and approve exactly that."""
    from engine_assistant.cli.look import approvals as look

    answer = look.Answer(thread, call, tenant, person, approved=True, reason=reason, sure=yes)
    end(lambda screen: look.answer(screen, database, answer), json=json)


def deny(
    *,
    thread: Thread,
    call: Call,
    person: Person,
    tenant: Tenant = None,
    reason: Why = None,
    yes: Yes = False,
    database: Database = DEFAULT,
    json: Json = False,
) -> None:
    """Show what would run, and deny it."""
    from engine_assistant.cli.look import approvals as look

    answer = look.Answer(thread, call, tenant, person, approved=False, reason=reason, sure=yes)
    end(lambda screen: look.answer(screen, database, answer), json=json)


def relay(
    *,
    to: Annotated[str, typer.Option(help="stdout, or an http(s) URL that takes POSTs.")] = "stdout",
    once: Annotated[bool, typer.Option("--once", help="Stop when nothing waits.")] = False,
    every: Every = 1.0,
    database: Database = DEFAULT,
) -> None:
    """Hand milestones out, one JSON object each, in order per thread and at least once.

    What was taken is removed from the outbox, also when it goes to standard output. Without
    `--once` it waits for more until Ctrl-C.
    """
    from engine_assistant.cli.look import relay as look

    end(lambda screen: look.relay(screen, database, to=to, once=once, every=every), json=False)


def doctor(
    *,
    tenant: Tenant = None,
    thread: Annotated[
        str | None,
        typer.Option(help="Only threads of this id.", show_default="all of them"),
    ] = None,
    database: Database = DEFAULT,
    json: Json = False,
) -> None:
    """Examine the record: reads only, and exits 1 when anything in it cannot be true.

    Every event is read, every state and digest is derived from the events again and compared with
    the rows. It may run beside a system that goes on writing. With --json the last line holds the
    totals.
    """
    from engine_assistant.cli.doctor import doctor as body

    end(lambda screen: body(screen, database, tenant=tenant, thread_id=thread), json=json)


def export(
    *,
    thread: Annotated[
        str | None,
        typer.Argument(metavar="THREAD", help="The id of a thread.", show_default=False),
    ] = None,
    subject: Annotated[
        str | None,
        typer.Option(
            metavar="PERSON",
            help="All that this person owns instead; needs --tenant.",
            show_default=False,
        ),
    ] = None,
    tenant: Tenant = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            dir_okay=False,
            help="Where to.",
            show_default="standard output",
        ),
    ] = None,
    database: Database = DEFAULT,
    json: Json = False,
) -> None:
    """Write a thread, or all of a person's, as an archive that `import` takes.

    The archive is JSON Lines, and holds everything that was said. Without -o it goes to standard
    output, and what is told, also with --json, to standard error. A file is there when it is whole.
    """
    from engine_assistant.cli.archive import export as archive

    if (thread is None) == (subject is None):
        raise typer.BadParameter("Give a THREAD, or a person with --subject.")
    if subject is not None and tenant is None:
        raise typer.BadParameter("Name the person's tenant with --tenant.")
    if output is None and sys.stdout.isatty():
        # It may hold what steers a terminal, and is not to be changed.
        raise typer.BadParameter("An archive is not for a terminal. Give -o FILE, or a pipe.")
    wanted = archive.Wanted(thread, subject, tenant, output)
    end(lambda screen: archive.export(screen, database, wanted), json=json)


def import_(
    *,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE…",
            dir_okay=False,
            readable=True,
            show_default=False,
            help="Archives; - is standard input.",
        ),
    ],
    tenant: Annotated[str, typer.Option(help="Whose data it becomes.")],
    cancel_open: Annotated[
        bool,
        typer.Option("--cancel-open", help="End what is not over in them, instead of refusing it."),
    ] = False,
    database: Database = DEFAULT,
    json: Json = False,
) -> None:
    """Bring in every thread of archives, each whole or not at all.

    A thread that is refused is told on standard error, and the others go on. Run again, it leaves
    alone what is in. Makes the tables when there are none.
    """
    from engine_assistant.cli.archive import importing as archive

    for path in files:
        if str(path) != "-" and not path.exists():
            raise typer.BadParameter(f"There is no file {path}.")
    order = archive.Order(tuple(files), tenant, cancel_open)
    end(
        lambda screen: archive.bring_in(screen, database, order),
        json=json,
        stopped="Stopped. Run the same command again: it continues where it was.",
    )
