"""`approvals`, `approve` and `deny`: one person's inbox, answered from the terminal."""

from dataclasses import dataclass

from rich.text import Text

from engine_assistant import USE, Caller, NotFound, Operations
from engine_assistant.cli.demo.telling import card
from engine_assistant.cli.exits import ExitCode
from engine_assistant.cli.look import located, looked_at
from engine_assistant.cli.screen import Screen, printable
from engine_assistant.model import codec
from engine_assistant.model.machines import ApprovalState
from engine_assistant.model.views import ApprovalView

__all__ = ["Answer", "answer", "approvals"]

_PAGE = 200
_WIDTH = 60


def _person(tenant: str, principal: str) -> Caller:
    return Caller(tenant=tenant, principal=principal, permissions={USE}, channel="terminal")


def approvals(screen: Screen, url: str, *, tenant: str, person: str, state: str | None) -> ExitCode:
    """List what waits for one person, across threads."""
    count = 0
    with looked_at(url) as assistant:
        inbox = assistant.acting_as(_person(tenant, person))
        cursor: str | None = None
        while True:
            page = inbox.list_approvals(state=state, limit=_PAGE, cursor=cursor)
            for view in page.items:
                count += 1
                _print(screen, view)
            cursor = page.cursor
            if cursor is None:
                break
    if count and state == ApprovalState.PENDING:
        screen.say("Answer with: engine-assistant approve THREAD CALL --as PERSON, or deny", "dim")
    if not count:
        screen.say(f"Nothing {state or 'at all'} for {printable(person)}.", "dim")
    return ExitCode.GOOD


def _print(screen: Screen, view: ApprovalView) -> None:
    if screen.json:
        screen.data(view.model_dump(mode="json"))
        return
    screen.out.print(
        Text.assemble(
            (view.thread_id, "bold"),
            f"  {printable(view.call_id)}  ",
            (printable(view.operation), "bold"),
            f" {_short(codec.dumps(view.input))}  ",
            (view.state.value, "cyan"),
            (f"  until {view.expires_at}", "dim"),
        )
    )


def _short(text: str) -> str:
    shown = printable(text)
    return shown if len(shown) <= _WIDTH else f"{shown[: _WIDTH - 1]}\N{HORIZONTAL ELLIPSIS}"


@dataclass(frozen=True)
class Answer:
    """What a person says about a call, and whether they need not be asked again."""

    thread_id: str
    call_id: str
    tenant: str | None
    person: str
    approved: bool
    reason: str | None
    sure: bool


def answer(screen: Screen, url: str, given: Answer) -> ExitCode:
    """Show the card and record the answer to exactly what it shows.

    Without a terminal nobody is asked, so nothing is decided unless `--yes` says it is meant.
    """
    if not given.sure and not screen.interactive:
        screen.error("nobody can be asked here: give --yes to decide without being asked")
        return ExitCode.USAGE
    with looked_at(url) as assistant:
        tenant = located(assistant, given.thread_id, given.tenant).tenant_id
        person = assistant.acting_as(_person(tenant, given.person))
        view = _asked(person, given)
        if view.state is ApprovalState.PENDING:
            card(screen, view)
        verb = "Approve" if given.approved else "Deny"
        if not given.sure and not _confirmed(screen, verb):
            screen.say("Nothing was recorded.")
            return ExitCode.FAILED
        decision = person.resolve_approval(
            thread_id=given.thread_id,
            call_id=given.call_id,
            approved=given.approved,
            digest=view.digest,
            version=view.version if given.approved else None,
            reason=given.reason,
        )
    if screen.json:
        screen.data({"ok": True, **decision.model_dump(mode="json")})
    else:
        rest = f"; {decision.missing} more needed" if decision.missing else ""
        screen.say(f"Recorded as event {decision.seq}: the call is {decision.state}{rest}.")
    return ExitCode.GOOD


def _asked(person: Operations, given: Answer) -> ApprovalView:
    """Return the newest request to this person about this call."""
    cursor: str | None = None
    found: ApprovalView | None = None
    while True:
        page = person.list_approvals(
            state=None, thread_id=given.thread_id, limit=_PAGE, cursor=cursor
        )
        for view in page.items:
            if (view.call_id, view.approver) == (given.call_id, given.person):
                found = view
        cursor = page.cursor
        if cursor is None:
            break
    if found is None:
        raise NotFound(f"Nobody asked {printable(given.person)} about this call.")
    return found


def _confirmed(screen: Screen, verb: str) -> bool:
    try:
        line = screen.out.input(f"{verb}? [y/N] ", markup=False)
    except EOFError:
        screen.say()
        return False
    return line.strip().lower() in ("y", "yes")
