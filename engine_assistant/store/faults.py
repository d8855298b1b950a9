"""What a driver's error means to a caller: race, lost answer, or broken installation.

No text of a driver's error is passed on. It may quote values, and so what people wrote.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import sqlalchemy.exc

from engine_assistant.model.errors import AssistantError, Internal, Raced, Unavailable

__all__ = ["meaning", "translated"]

_RACED: Final = frozenset({"40001", "40P01", "55P03"})
_UNPREPARED: Final = frozenset({"26000", "42P05"})
_GONE_CLASSES: Final = ("08", "53", "57")
_MISSING: Final = frozenset({"42P01", "42703", "3F000"})
_SQLITE_BUSY: Final = ("SQLITE_BUSY", "SQLITE_LOCKED")
_SQLITE_MISSING: Final = ("no such ", "has no column ")

_SQLITE_BROKEN: Final = {
    "SQLITE_NOTADB": "This file is not a SQLite database.",
    "SQLITE_CORRUPT": "This SQLite file is damaged.",
    "SQLITE_READONLY": "This database may only be read.",
}

_NOT_MIGRATED: Final = (
    "The engine's tables are missing or of another version."
    " Run `engine-assistant db upgrade`, or assistant.migrate()."
)
_NO_ROOM: Final = frozenset({"53100", "SQLITE_FULL"})
_FULL: Final = (
    "There is no room left where the database is. Make room, then repeat it with the same key,"
    " batch or attempt."
)
_OPTIONS: Final = "The driver cannot connect with these options. Look at the database's address."
_UNKNOWN: Final = (
    "The database gave no answer, so it is not known whether this was kept. Repeat it with the"
    " same key, batch or attempt."
)
_POOLER: Final = (
    "A prepared statement is gone: there is a pooler in transaction mode in between. Give the"
    " engine connect_args={'prepare_threshold': None}, or use ?pooler=transaction in the URL."
)


def meaning(error: BaseException) -> AssistantError:
    """Return the typed error that a database error stands for."""
    if not isinstance(error, sqlalchemy.exc.DBAPIError):
        kind = type(error).__name__
        if isinstance(error, sqlalchemy.exc.TimeoutError):
            return Unavailable("No connection of the pool became free. Try again.", error=kind)
        return Internal("The database layer failed.", error=kind)
    driver = error.orig
    state = getattr(driver, "sqlstate", None)
    name = str(getattr(driver, "sqlite_errorname", "") or "")
    facts = {"error": type(driver).__name__, "sqlstate": state or name or None}
    if state in _RACED or name.startswith(_SQLITE_BUSY):
        return Raced("Another transaction was in the way. Roll back and try again.", **facts)
    if state in _UNPREPARED:
        return Internal(_POOLER, **facts)
    unknown_name = name == "SQLITE_ERROR" and any(part in str(driver) for part in _SQLITE_MISSING)
    if state in _MISSING or unknown_name:
        return Internal(_NOT_MIGRATED, **facts)
    if state in _NO_ROOM or name in _NO_ROOM:
        return Unavailable(_FULL, full=True, **facts)
    if error.statement is None and isinstance(error, sqlalchemy.exc.ProgrammingError):
        return Internal(_OPTIONS, **facts)
    broken = _SQLITE_BROKEN.get("_".join(name.split("_")[:2]))
    if broken is not None:
        return Internal(broken, **facts)
    if (
        error.connection_invalidated
        or (state is not None and state.startswith(_GONE_CLASSES))
        or (state is None and isinstance(error, sqlalchemy.exc.OperationalError))
    ):
        return Unavailable(_UNKNOWN, **facts)
    return Internal("The database refused a statement.", **facts)


@contextmanager
def translated() -> Iterator[None]:
    """Turn database errors into typed ones that quote nothing.

    The driver's error is neither cause nor context of ours: its text may hold what people wrote.
    """
    failure: AssistantError | None = None
    try:
        yield
    except sqlalchemy.exc.SQLAlchemyError as error:
        failure = meaning(error)
    except OverflowError as error:
        # SQLite's driver raises it by itself, and SQLAlchemy lets it through.
        kind = type(error).__name__
        failure = Internal("A number is larger than the database can keep.", error=kind)
    if failure is not None:
        try:
            raise failure
        except AssistantError:
            # A `with` is left while the driver's error is handled, so Python chains it by itself.
            failure.__context__ = None
            raise
