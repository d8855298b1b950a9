"""Times are aware UTC, to the millisecond. Their text form is 24 bytes wide, so it sorts."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

__all__ = ["from_text", "later", "to_text", "truncated"]

_FORM: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z", re.ASCII
)


def truncated(moment: datetime) -> datetime:
    """Return `moment` in UTC, cut (never rounded up) to the millisecond.

    A rounded clock could stand before the expiry that it has in fact passed.

    Raises:
        ValueError: the datetime is naive.
    """
    if moment.tzinfo is None:
        raise ValueError("a time must carry its zone")
    return moment.astimezone(UTC).replace(microsecond=moment.microsecond // 1000 * 1000)


def to_text(moment: datetime) -> str:
    """Return `moment` (aware UTC) as `YYYY-MM-DDTHH:MM:SS.mmmZ`."""
    return moment.isoformat(timespec="milliseconds")[:23] + "Z"


def from_text(text: str) -> datetime:
    """Read the text form back.

    Raises:
        ValueError: the text is not exactly `YYYY-MM-DDTHH:MM:SS.mmmZ`, or no such day exists.
    """
    if _FORM.fullmatch(text) is None:
        raise ValueError("a time must have the form YYYY-MM-DDTHH:MM:SS.mmmZ")
    try:
        return datetime.fromisoformat(text[:-1]).replace(tzinfo=UTC)
    except ValueError:
        # Python's own sentence may quote the text.
        raise ValueError("no such day or time exists") from None


def later(moment: datetime, seconds: float) -> datetime:
    """Return the millisecond that lies `seconds` after `moment`."""
    return truncated(moment + timedelta(seconds=seconds))
