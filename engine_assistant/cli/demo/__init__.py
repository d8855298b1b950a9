"""`engine-assistant demo`: the main job as a story of one minute."""

import time
from typing import Final

from engine_assistant.cli.database import opened, shown
from engine_assistant.cli.demo.story import REQUEST, Story
from engine_assistant.cli.demo.telling import card, refusals, timeline, told
from engine_assistant.cli.exits import ExitCode
from engine_assistant.cli.options import DEFAULT
from engine_assistant.cli.screen import Screen

__all__ = ["demo"]

_NAMES: Final = 11
_READING_SPEED: Final = 0.5
"""Seconds between the pieces of the answer, for a person who looks on."""


def demo(screen: Screen, url: str, *, approve: bool | None) -> ExitCode:
    """Tell the story in the database at `url`; ask when `approve` is None and somebody is there."""
    with opened(url) as assistant:
        assistant.migrate()
        story = Story(assistant)
        approved = _tell(screen, story, approve=approve)
        events = story.timeline()
        state = story.state
    if screen.json:
        screen.data(
            {
                "ok": True,
                "database": shown(url),
                "tenant": "demo",
                "thread_id": story.thread_id,
                "approved": approved,
                "call_state": state.value,
                "executions": len(story.refunds),
                "refusals": [
                    {"tried": one.tried, "code": one.code, "message": one.message}
                    for one in story.refusals
                ],
                "events": [
                    {"seq": event.seq, "type": event.type, "told": told(event)} for event in events
                ],
            }
        )
        return ExitCode.GOOD
    screen.say(f"\nThe record, {len(events)} events, numbered without a gap:", "bold")
    timeline(screen, events)
    screen.say("\nIt is kept in ", end="")
    screen.say(shown(url), "bold")
    screen.say(f"tenant demo, thread {story.thread_id}")
    same = "" if url == DEFAULT else ", with the same --database"
    screen.say(f"Look at it again{same}: engine-assistant show {story.thread_id}", "dim")
    return ExitCode.GOOD


def _tell(screen: Screen, story: Story, *, approve: bool | None) -> bool:
    """Tell it until the turn rests; return whether Alice approved."""
    screen.say("An assistant may answer by itself. It may not move money by itself.\n", "bold")
    story.ask()
    _speaks(screen, "Alice", REQUEST)
    _speaks(screen, "Assistant")
    for number, piece in enumerate(story.answer()):
        screen.say(f"{'' if number == 0 else ' ' * _NAMES}{piece.rstrip()}")
        if screen.interactive:
            time.sleep(_READING_SPEED)
    view = story.propose()
    screen.say()
    if not screen.json:
        card(screen, view)
    approved = _asked(screen) if approve is None and screen.interactive else approve is not False
    story.decide(view, approved=approved)
    screen.say(f"Alice {'approves' if approved else 'denies'}.\n")
    if approved:
        _speaks(screen, "Assistant", story.run())
        times = len(story.refunds)
        screen.say(
            "Behind it, a second process took the lease, claimed the call (the one right to run"
            f" it)\nand refunded 49.90 EUR: {times} time."
        )
    else:
        _speaks(screen, "Assistant", story.leave(view))
        screen.say(f"Behind it, nothing ran: {len(story.refunds)} refunds.")
    if not screen.json:
        screen.say("\nOn the way the engine refused to let", "bold")
        refusals(screen, story.refusals)
    return approved


def _speaks(screen: Screen, who: str, text: str | None = None) -> None:
    screen.say(f"{who:<{_NAMES}}", "bold cyan", end="")
    if text is not None:
        screen.say(f"{text}\n")


def _asked(screen: Screen) -> bool:
    """Ask the person in front of the terminal. No answer is a no."""
    try:
        return screen.out.input("Approve? [y/N] ", markup=False).strip().lower() in ("y", "yes")
    except EOFError:
        screen.say()
        return False
