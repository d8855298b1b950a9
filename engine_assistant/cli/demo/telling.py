"""How the story looks on a screen: the card, the refusals, the timeline."""

from datetime import UTC, datetime
from typing import Final

from rich.box import ASCII, ROUNDED
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from engine_assistant.cli.demo.story import Refusal
from engine_assistant.cli.screen import Screen, printable
from engine_assistant.model import codec
from engine_assistant.model.codec import JsonValue
from engine_assistant.model.events import (
    ApprovalRequest,
    ApprovalResolved,
    CallClosed,
    CallRetried,
    Data,
    Event,
    ExecutionClaimed,
    StepFinish,
    StepStart,
    TextDelta,
    ToolError,
    ToolInput,
    ToolOutput,
    ToolProgress,
    TurnError,
    TurnFinish,
    Unknown,
    UnknownResolved,
    UserMessage,
)
from engine_assistant.model.times import from_text
from engine_assistant.model.views import ApprovalView

__all__ = ["card", "refusals", "timeline", "told"]

_DIGITS: Final = 12
_LABEL: Final = 9
_FRAME: Final = 4
_WIDTH: Final = 60


def card(screen: Screen, view: ApprovalView) -> None:
    """Show what would run, drawn from the input that the digest binds, and nothing else."""
    fields = view.input if isinstance(view.input, dict) else {"input": view.input}
    lines = [(name, _plain(value)) for name, value in fields.items()]
    lines += [
        ("", ""),
        ("asks", view.approver),
        ("expires", _left(view.expires_at)),
        ("digest", f"{view.digest[:_DIGITS]}… binds exactly this, and nothing else"),
    ]
    frame = Panel(
        _columns(lines, screen.width - _FRAME),
        title=Text(f"Approval needed: {printable(view.operation)}"),
        title_align="left",
        border_style="yellow",
        width=screen.width,
        box=ROUNDED if screen.out.is_terminal else ASCII,
    )
    if not screen.json:
        screen.out.print(frame, soft_wrap=False)


def _columns(lines: list[tuple[str, str]], width: int) -> Table:
    """Return names and values side by side, folded and never cut: all of it is what is approved."""
    longest = max(len(name) for name, _ in lines)
    label = min(max(longest, _LABEL), width // 3)
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(width=label, overflow="fold", style="dim")
    table.add_column(width=width - label - 1, overflow="fold")
    for name, value in lines:
        table.add_row(Text(printable(name)), Text(printable(value)))
    return table


def _left(expires_at: str) -> str:
    """Return how long somebody has to answer, in the largest unit that is not too coarse."""
    minutes = round((from_text(expires_at) - datetime.now(UTC)).total_seconds() / 60)
    for unit, size in (("days", 24 * 60), ("hours", 60)):
        if minutes >= 2 * size:
            return f"in {round(minutes / size)} {unit}"
    return f"in {minutes} minute{'' if minutes == 1 else 's'}"


def _plain(value: JsonValue) -> str:
    return value if isinstance(value, str) else codec.dumps(value)


def refusals(screen: Screen, found: list[Refusal]) -> None:
    """Show what was tried and how the engine answered."""
    for refusal in found:
        line = Text.assemble(
            ("  x ", "bold red"), f"{refusal.tried}: ", (refusal.code, "bold red"), "\n"
        )
        screen.out.print(line.append(f"    {refusal.message}", "dim"))


def timeline(screen: Screen, events: tuple[Event, ...]) -> None:
    """Show every event with its number, without a gap."""
    for event in events:
        line = Text.assemble(
            (f"{event.seq:>4}  ", "bold"), (f"{event.type:<18} ", "cyan"), printable(told(event))
        )
        screen.out.print(line)


def told(event: Event) -> str:
    """Return one event in a few words."""
    match event:
        case UserMessage():
            return f"{event.author}: {_short(event.text)}"
        case TextDelta():
            return _short(event.text)
        case StepStart():
            return event.step or ""
        case StepFinish():
            return event.stop_reason or ""
        case TurnFinish():
            return event.reason
        case TurnError():
            return event.code
        case Data():
            return event.kind
        case Unknown():
            return event.name
        case _:
            return _told_of_call(event)


def _told_of_call(event: Event) -> str:
    match event:
        case ToolInput():
            what = f"{event.tool} {_short(codec.dumps(event.input))}"
        case ApprovalRequest():
            slot = event.requests[0]
            what = f"asks {slot.approver}, digest {slot.digest[:_DIGITS]}…"
        case ApprovalResolved():
            verdict = "approved" if event.approved else "denied"
            what = f"{verdict} by {event.approver}, digest {event.digest[:_DIGITS]}…"
        case ExecutionClaimed() | CallRetried():
            what = f"only {event.run_id} under fence {event.fence} may run it"
        case UnknownResolved():
            what = f"it {'happened' if event.happened else 'did not happen'}, says {event.author}"
        case ToolOutput():
            what = _short(codec.dumps(event.output))
        case ToolError():
            what = f"failed, {event.code}"
        case ToolProgress():
            what = _short(codec.dumps(event.payload))
        case CallClosed():
            what = f"{event.state} ({event.why})"
        case _:
            return ""
    return f"{event.call_id}: {what}"


def _short(text: str) -> str:
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3].rstrip()}..."
