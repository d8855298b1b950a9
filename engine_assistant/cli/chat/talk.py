"""One conversation at the terminal: lines go in, the record is followed, cards are answered."""

import asyncio
import re
from typing import Final

from engine_assistant import AssistantError, AsyncOperations, Conflict, ConflictReason
from engine_assistant.cli.chat.lines import Lines
from engine_assistant.cli.chat.telling import Teller
from engine_assistant.cli.exits import ExitCode
from engine_assistant.cli.screen import Screen
from engine_assistant.host import AssistantHost, Ended, TurnReport
from engine_assistant.model.machines import ApprovalState, TurnState
from engine_assistant.model.views import ApprovalView

__all__ = ["Talk"]

_LOOK_EVERY: Final = 0.05
_TRY_EVERY: Final = 0.5
_PAGE: Final = 500
_PAST: Final = 200
_STOP: Final = "/stop"
_QUIT: Final = "/quit"
_COMMAND: Final = re.compile(r"/\w*")
_YES: Final = frozenset({"y", "yes"})
_NO: Final = frozenset({"", "n", "no"})


class _Left(Exception):
    """The person leaves. What is not at rest goes on another time."""

    def __init__(self, code: ExitCode) -> None:
        super().__init__(code.name)
        self.code = code


class Talk:
    """A person and an assistant on one thread.

    Args:
        screen: who sits in front of it.
        teller: shows what is recorded.
        lines: what the person types.
        me: the person.
        host: the assistant.
        thread_id: of both.
        approve: what is said to every card; None asks the person, if there is one.
    """

    def __init__(
        self,
        *,
        screen: Screen,
        teller: Teller,
        lines: Lines,
        me: AsyncOperations,
        host: AssistantHost,
        thread_id: str,
        approve: bool | None,
    ) -> None:
        self._screen = screen
        self._teller = teller
        self._lines = lines
        self._me = me
        self._host = host
        self._thread_id = thread_id
        self._approve = approve
        self._seen = 0
        self.at_rest = True
        """Whether no turn was left that is not over, as far as is known."""
        self._refused = False
        self._looking_on = False

    async def show_past(self) -> None:
        """Show the end of what was said before."""
        page = await self._me.read_events(thread_id=self._thread_id, last=_PAST)
        for event in page.events:
            self._teller.show(event, own=True)
        self._seen = page.head_seq

    async def run(self) -> ExitCode:
        """Talk until there is nothing more to say."""
        try:
            while True:
                await self._come_to_rest()
                line = await self._ask("you: ")
                if line is None or line == _QUIT:
                    break
                if line and line != _STOP:
                    await self._send(line)
        except _Left as left:
            return left.code
        bad = self._refused or (self._teller.failed and not self._screen.interactive)
        return ExitCode.FAILED if bad else ExitCode.GOOD

    async def _ask(self, prompt: str) -> str | None:
        self._teller.pause()
        if self._screen.interactive:
            self._screen.out.print(prompt, end="", style="green", markup=False)
        line = None
        try:
            line = await self._lines.next()
        finally:
            if line is None and self._screen.interactive:  # Nobody has ended the line, or Ctrl-C.
                self._screen.say()
        return None if line is None else line.strip()

    async def _send(self, text: str, when_busy: str = "refuse") -> None:
        if _COMMAND.fullmatch(text):
            self._refused = not self._screen.interactive
            self._teller.error(f"no such command: {text}; there are {_STOP} and {_QUIT}")
            return
        try:
            self.at_rest = False
            await self._me.send_message(thread_id=self._thread_id, text=text, when_busy=when_busy)
        except AssistantError as error:
            self._refused = not self._screen.interactive
            self._teller.error(f"{error.code}: {error.message}")

    # ------------------------------------------------------------ the turn

    async def _come_to_rest(self) -> None:
        """Carry the turn on until nothing is open and nothing waits."""
        while True:
            thread = await self._me.get_thread(thread_id=self._thread_id)
            await self._follow()
            self.at_rest = thread.turn_state is TurnState.IDLE
            if self.at_rest:
                return
            cards = await self._cards() if thread.turn_state is TurnState.AWAITING else []
            if not cards or not await self._decide(cards[0]):
                await self._run_turn()

    async def _run_turn(self) -> None:
        """Run the turn here, or look on while another process does."""
        running = asyncio.create_task(self._host.run_turn(self._thread_id))
        try:
            while not running.done():
                await asyncio.wait({running}, timeout=_LOOK_EVERY)
                await self._follow()
                await self._hear()
        finally:
            running.cancel()
            await asyncio.wait({running})
        await self._judge(running)

    async def _judge(self, running: asyncio.Task[TurnReport]) -> None:
        """Go on where another process runs the turn, or it is over. Other errors are raised.

        Raises:
            _Left: the turn cannot go on here.
        """
        try:
            report = running.result()
        except Conflict as refused:
            if refused.reason is ConflictReason.RUN_IN_PROGRESS and not self._looking_on:
                self._looking_on = True
                self._teller.say("(Another process has this turn. Looking on.)")
            await self._pause()
            return
        self._looking_on = False
        if report.ended is Ended.RELEASED:
            self._teller.error("an approved call cannot run here; are its --tools given?")
            raise _Left(ExitCode.FAILED)
        if report.ended is Ended.LOST:
            await self._pause()

    async def _pause(self) -> None:
        await asyncio.sleep(_TRY_EVERY)
        await self._hear()

    async def _follow(self) -> None:
        """Show what was recorded since."""
        while True:
            page = await self._me.read_events(
                thread_id=self._thread_id, after=self._seen, limit=_PAGE
            )
            for event in page.events:
                self._teller.show(event, own=not self._screen.interactive)
            self._seen = page.last_seq
            if page.last_seq == page.head_seq:
                return

    async def _hear(self) -> None:
        """Take what is typed while the assistant works. Piped lines wait for its end."""
        while self._screen.interactive and (line := self._lines.typed()) is not None:
            await self._meanwhile(line.strip())

    async def _meanwhile(self, line: str) -> None:
        if line == _QUIT:
            raise _Left(ExitCode.GOOD)
        if line == _STOP:
            await self._stop()
        elif line:
            await self._send(line, when_busy="steer")

    async def _stop(self) -> None:
        stopped = await self._me.interrupt_turn(thread_id=self._thread_id)
        if not stopped.ended:
            self._teller.say("It is asked to stop.")

    # ------------------------------------------------------------ cards

    async def _cards(self) -> list[ApprovalView]:
        page = await self._me.list_approvals(
            state=ApprovalState.PENDING.value, thread_id=self._thread_id, limit=_PAGE
        )
        return sorted(page.items, key=lambda view: view.request_seq)

    async def _decide(self, view: ApprovalView) -> bool:
        """Show a card and record what the person says; False if it is too late for that.

        Raises:
            _Left: the person leaves, or nobody can be asked.
        """
        self._teller.card(view)
        approved = self._approve
        if approved is None:
            if not self._screen.interactive:
                self._teller.error(
                    f"call {view.call_id} waits for approval, and nobody can be asked here:"
                    " give --yes or --no. Lines that still waited to be read were not sent."
                )
                raise _Left(ExitCode.FAILED)
            approved = await self._answer()
            if approved is None:
                await self._stop()
                return True
        try:
            await self._me.resolve_approval(
                thread_id=view.thread_id,
                call_id=view.call_id,
                approved=approved,
                digest=view.digest,
                version=self._version(view) if approved else None,
            )
        except Conflict as error:
            self._teller.error(f"{error.reason.value}: {error.message}")
            return False
        return True

    async def _answer(self) -> bool | None:
        """Return what the person says to a card; None if it is that the turn must stop.

        Raises:
            _Left: the person leaves.
        """
        await self._hear()  # what was typed before the card was shown is no answer to it
        while True:
            line = await self._ask("Approve? [y/N] ")
            if line is None or line == _QUIT:
                raise _Left(ExitCode.GOOD)
            if line == _STOP:
                return None
            if line.lower() in _YES | _NO:
                return line.lower() in _YES
            # A denial is for good: a message, or a slip, is none.
            self._teller.say(f"Say y or n first; {_STOP} ends the turn, {_QUIT} lets it wait.")

    def _version(self, view: ApprovalView) -> str:
        """Return the version that would run now. If it is another, the call is asked about anew."""
        known = self._host.tools.get(view.operation)
        return view.version if known is None else known.version
