"""`doctor`: examine the record, and say what in it cannot be true."""

import sys

from rich.text import Text

from engine_assistant import migrate
from engine_assistant.cli.exits import ExitCode
from engine_assistant.cli.look import looked_at
from engine_assistant.cli.screen import Screen, printable
from engine_assistant.doctor import Finding, Report

__all__ = ["doctor"]


def doctor(screen: Screen, url: str, *, tenant: str | None, thread_id: str | None) -> ExitCode:
    """Print each finding as it is found, and at the end how much was examined."""
    totals = Report()

    def note(report: Report) -> None:
        nonlocal totals
        totals = report

    with looked_at(url) as assistant:
        with assistant.engine.connect() as connection:
            migrate.check(connection)
        for finding in assistant.doctor(tenant=tenant, thread_id=thread_id, progress=note):
            _print(screen, finding)
            # Whoever reads this through a pipe sees it when it is found, not hours later.
            sys.stdout.flush()
    if screen.json:
        screen.data({"ok": not totals.findings, **totals.model_dump(mode="json")})
    else:
        _conclude(screen, totals)
    return ExitCode.FAILED if totals.findings else ExitCode.GOOD


def _print(screen: Screen, finding: Finding) -> None:
    if screen.json:
        screen.data(finding.model_dump(mode="json"))
        return
    screen.out.print(
        Text.assemble(
            f"{printable(finding.tenant)}/{printable(finding.thread_id)}  ",
            (printable(finding.where), "bold"),
            "  ",
            (finding.code.value, "red"),
            f"  {printable(finding.message)}",
        )
    )


def _conclude(screen: Screen, totals: Report) -> None:
    threads = _counted(totals.threads, "thread")
    seen = ", ".join(
        (
            threads,
            _counted(totals.events, "event"),
            _counted(totals.calls, "call"),
            _counted(totals.approvals, "approval"),
        )
    )
    if totals.findings:
        screen.say(f"{_counted(totals.findings, 'finding')} in {seen}.", "bold red")
    else:
        screen.say(f"All good: {seen}.", "bold green")
    if totals.unknown_events:
        screen.say(
            f"{_counted(totals.unknown_events, 'event')} of a newer release could not be judged.",
            "yellow",
        )


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
