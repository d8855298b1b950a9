"""`engine-assistant db`: the tables, and at which revision they stand."""

from rich.text import Text

from engine_assistant import migrate
from engine_assistant.cli.database import absent_file, opened, shown
from engine_assistant.cli.database import current as revision_of
from engine_assistant.cli.exits import ExitCode
from engine_assistant.cli.look import looked_at
from engine_assistant.cli.screen import Screen

__all__ = ["check", "current", "sql", "upgrade"]


def upgrade(screen: Screen, url: str) -> ExitCode:
    """Migrate to the newest revision."""
    with opened(url) as assistant:
        before = revision_of(assistant)
        assistant.migrate()
        after = revision_of(assistant)
    if screen.json:
        screen.data({"ok": True, "database": shown(url), "before": before, "current": after})
    elif before == after:
        screen.say(f"Already at {after}: {shown(url)}")
    else:
        screen.say(f"From {before or 'nothing'} to {after}: {shown(url)}")
    return ExitCode.GOOD


def current(screen: Screen, url: str) -> ExitCode:
    """Say where the tables stand. Nothing is created by looking."""
    found = _revision(url)
    if screen.json:
        screen.data({"ok": True, "database": shown(url), "current": found, "head": migrate.head()})
    else:
        newest = " (newest)" if found == migrate.head() else f" (newest: {migrate.head()})"
        screen.say(f"{found or 'none: the tables are not there'}{newest}")
    return ExitCode.GOOD


def check(screen: Screen, url: str) -> ExitCode:
    """Refuse tables that are missing, behind or ahead."""
    with looked_at(url) as assistant, assistant.engine.connect() as connection:
        migrate.check(connection)
    if screen.json:
        screen.data({"ok": True, "database": shown(url), "current": migrate.head()})
    else:
        screen.say(f"Good: the tables are at {migrate.head()}.")
    return ExitCode.GOOD


def sql(screen: Screen, *, grants: bool) -> ExitCode:
    """Print SQL for Postgres: every migration from nothing, or the roles' grants."""
    text = migrate.grants_sql() if grants else migrate.upgrade_sql()
    screen.out.print(Text(text.rstrip()))
    return ExitCode.GOOD


def _revision(url: str) -> str | None:
    if absent_file(url):
        return None
    with opened(url) as assistant:
        return revision_of(assistant)
