"""How a conversation looks as it is recorded: who says what, what is called, what came of it."""

from contextlib import suppress
from typing import Final

from rich.text import Text

from engine_assistant.cli.demo.telling import card
from engine_assistant.cli.screen import Screen, printable
from engine_assistant.host import ToolCall, ToolRegistry
from engine_assistant.model import codec
from engine_assistant.model.codec import JsonValue
from engine_assistant.model.events import (
    ApprovalResolved,
    CallClosed,
    Event,
    SeededMessage,
    StepStart,
    TextDelta,
    ToolError,
    ToolInput,
    ToolOutput,
    TurnError,
    TurnFinish,
    UserMessage,
)
from engine_assistant.model.views import ApprovalView

__all__ = ["Teller"]

_WIDTH: Final = 70
_OfCall = ToolInput | ApprovalResolved | ToolOutput | ToolError | CallClosed
_QUIET: Final = frozenset({"done", "awaiting-approval"})


class Teller:
    """Shows events in their order.

    Args:
        screen: where.
        tools: say what must be masked.
    """

    def __init__(self, screen: Screen, tools: ToolRegistry) -> None:
        self._screen = screen
        self._tools = tools
        self._speaking = False
        self.failed = False

    def show(self, event: Event, *, own: bool) -> None:
        """Show one event; what the person has typed just now only if `own`."""
        if isinstance(event, TurnError):
            self.failed = True
        if self._screen.json:
            self._screen.data({"event": event.model_dump(mode="json")})
            return
        if isinstance(event, TextDelta):
            self._speak(event.text)
            return
        if isinstance(event, _OfCall):
            self._show_call(event)
            return
        match event:
            case UserMessage(text=text) if own:
                self._line(("you: ", "green"), _kept(text))
            case SeededMessage(role=role, text=text):
                self._line((f"{'you' if role == 'user' else role}: ", "green"), _kept(text))
            case TurnError(message=message, code=code):
                self.error(f"{code}: {message}")
            case TurnFinish(reason=reason) if reason not in _QUIET:
                self._line((f"  (the turn ended: {printable(reason)})", "dim"))
            case StepStart() | TurnFinish():  # what broke off before it is a line of its own
                self.pause()

    def _show_call(self, event: _OfCall) -> None:
        match event:
            case ToolInput(tool=tool, input=input):
                told = f"{printable(tool)} {self._short(self.masked(tool, input))}"
            case ApprovalResolved(approved=approved, approver=approver):
                told = f"{'approved' if approved else 'denied'} by {printable(approver)}"
            case ToolOutput(output=output):
                told = f"gave {self._short(output)}"
            case ToolError(code=code, message=message):
                told = f"failed, {printable(code)}: {printable(message)}"
            case _:
                told = f"ended as {printable(event.state)}"
        self._line((f"  {told}", "dim"))

    def card(self, view: ApprovalView) -> None:
        """Show what would run, with what the tool says of it."""
        self.pause()
        if self._screen.json:
            return
        masked = self.masked(view.operation, view.input)
        card(self._screen, view.model_copy(update={"input": masked}))
        known = self._tools.get(view.operation)
        if known is not None and known.preview is not None and isinstance(masked, dict):
            with suppress(Exception):  # a card without its line is still a card
                self._line((f"  It {printable(known.preview(masked))}.", "dim"))

    def masked(self, tool: str, input: JsonValue) -> JsonValue:
        """Return an input as people may see it."""
        return self._tools.masked(ToolCall(tool, input)).input

    def say(self, text: str) -> None:
        """Say something that is not recorded."""
        self.pause()
        self._screen.say(text, "dim")

    def error(self, text: str) -> None:
        """Say what went wrong."""
        self.pause()
        self._screen.error(text)

    def pause(self) -> None:
        """End the line that is being written, if there is one."""
        if self._speaking:
            self._screen.say()
            self._speaking = False

    def _speak(self, text: str) -> None:
        if not self._speaking:
            self._screen.out.print(Text("assistant: ", "cyan"), end="")
            self._speaking = True
        self._screen.out.print(Text(_kept(text)), end="")

    def _line(self, *parts: str | tuple[str, str]) -> None:
        self.pause()
        self._screen.out.print(Text.assemble(*parts))

    def _short(self, value: JsonValue) -> str:
        text = printable(codec.dumps(value))
        return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."


def _kept(text: str) -> str:
    """Return text for a terminal: line breaks stay, what could steer it does not."""
    return "\n".join(printable(line) for line in text.split("\n"))
