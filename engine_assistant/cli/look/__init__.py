"""Looking at a record from the terminal: threads, one thread, runs, approvals, milestones.

Whoever may open the database may look at everything in it, so these commands act as an auditor
of the thread's own tenant, and as a person only where a person decides.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from engine_assistant import (
    AUDIT,
    USE,
    Assistant,
    Caller,
    Internal,
    NotFound,
    ValidationFailed,
)
from engine_assistant.cli.database import absent_file, opened, shown
from engine_assistant.model.service import Surveyed

__all__ = ["auditor", "located", "looked_at"]


@contextmanager
def looked_at(url: str) -> Iterator[Assistant]:
    """Open a database that is there. Looking must not create one.

    Raises:
        Internal: there is no such SQLite file.
    """
    if absent_file(url):
        raise Internal(
            f"There is no database at {shown(url)}. Make one with: engine-assistant db upgrade"
            f" --database {shown(url)}",
            missing=True,
        )
    with opened(url) as assistant:
        yield assistant


def located(assistant: Assistant, thread_id: str, tenant: str | None) -> Surveyed:
    """Return a thread by its id alone, or by tenant and id.

    Raises:
        NotFound: there is none.
        ValidationFailed: several tenants have a thread of this id.
    """
    found = assistant.survey(thread_id=thread_id, tenant=tenant, limit=2)
    if not found:
        raise NotFound("There is no such thread in this database.")
    if len(found) > 1:
        raise ValidationFailed(
            "Several tenants have a thread of this id; name one with --tenant.", path="tenant"
        )
    return found[0]


def auditor(tenant: str) -> Caller:
    """Return the caller that may read everything of a tenant, and write nothing."""
    return Caller(tenant=tenant, principal="operator", permissions={USE, AUDIT})
