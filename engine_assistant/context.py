"""Who asks, and with what: the two values that every operation is given."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol

import sqlalchemy as sa
from pydantic import TypeAdapter, ValidationError

from engine_assistant.model.errors import (
    Conflict,
    Internal,
    NotFound,
    PermissionDenied,
    ValidationFailed,
)
from engine_assistant.model.fields import Id
from engine_assistant.model.limits import LIMITS, Limits
from engine_assistant.model.permissions import RUN
from engine_assistant.model.rows import MilestoneRow
from engine_assistant.model.service import Milestone
from engine_assistant.store.database import Database

__all__ = ["Caller", "Clock", "Context", "Emit", "refuse_no_caller", "refuse_other_ids"]

Clock = Callable[[], datetime]
"""Gives the time (aware). Called after the lock; the database's own clock is the default."""

_ID: TypeAdapter[str] = TypeAdapter(Id)


def _is_id(value: object) -> bool:
    try:
        _ID.validate_python(value)
    except ValidationError:
        return False
    return True


def refuse_other_ids(**named: object) -> None:
    """Refuse what was given to name something and can be no id. None names nothing.

    Raises:
        ValidationFailed: it is not a string of 1 to 128 bytes.
    """
    for name, value in named.items():
        if value is not None and not _is_id(value):
            raise ValidationFailed(
                f"The {name} must be a string of 1 to 128 bytes without NUL.", path=name
            )


class Emit(Protocol):
    """A host's own outbox: called inside the transaction, on that connection only."""

    def __call__(self, connection: sa.Connection, milestones: Sequence[Milestone], /) -> None:
        """Write the milestones with the change that they tell of."""


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated principal of one tenant, as the host knows it.

    Attributes:
        tenant: whose data this is; part of every key and every WHERE.
        principal: the person or process that acts.
        permissions: the keys it holds, or a function of one key that answers True for those. It
            is called synchronously, before the lock, and must not wait for a network.
        system: True for a process of the platform, False for a person.
        channel: how it came in (`"web"`, `"sms"`), recorded with its decisions.

    Raises:
        ValidationFailed: an id is not 1 to 128 bytes, or `assistant:run` is given to a person.
    """

    tenant: str
    principal: str
    permissions: Collection[str] | Callable[[str], bool]
    system: bool = False
    channel: str | None = None

    def __post_init__(self) -> None:
        """Check the ids, and that no person may write the assistant's side."""
        for name in ("tenant", "principal", "channel"):
            value = getattr(self, name)
            if value is None and name == "channel":
                continue
            if not _is_id(value):
                raise ValidationFailed(
                    f"The caller's {name} must be a string of 1 to 128 bytes without NUL.",
                    path=name,
                )
        if type(self.system) is not bool:
            raise ValidationFailed("Whether the caller is a system must be a bool.", path="system")
        keys = self.permissions
        if isinstance(keys, str) or not (callable(keys) or isinstance(keys, Collection)):
            raise ValidationFailed(
                "The caller's permissions must be a set of keys, or a function of one key.",
                path="permissions",
            )
        if not callable(self.permissions) and RUN in self.permissions and not self.system:
            raise ValidationFailed(
                f"Only a system principal may hold {RUN}; a person never does.",
                path="permissions",
            )

    def holds(self, key: str) -> bool:
        """Return whether the caller holds the permission `key`."""
        if key == RUN and not self.system:
            return False
        if callable(self.permissions):
            return self.permissions(key) is True
        return key in self.permissions


def refuse_no_caller(value: object) -> None:
    """Refuse what stands where a caller must, before anything is asked of it.

    Raises:
        ValidationFailed: it is no `Caller`.
    """
    if not isinstance(value, Caller):
        raise ValidationFailed(
            f"The caller must be a Caller, not a {type(value).__name__}.", path="caller"
        )


@dataclass(frozen=True, slots=True)
class Context:
    """One caller on one connection inside one transaction.

    Attributes:
        connection: the host's, or ours. The engine neither begins nor commits on it.
        caller: who asks.
        schema: the schema of our tables, when it is not the connection's default.
        clock: an injected clock; None means the database's own.
        emit: the host's outbox; None means our table `assistant_outbox`.
        limits: the bounds of every input.
        gated: False for a composing module that has done its own permission checks.
    """

    connection: sa.Connection
    caller: Caller
    schema: str | None = None
    clock: Clock | None = None
    emit: Emit | None = None
    limits: Limits = field(default=LIMITS)
    gated: bool = True

    @property
    def database(self) -> Database:
        """Return the connection as the store wants it: bound to the caller's tenant."""
        return Database(
            self.connection,
            self.caller.tenant,
            schema=self.schema,
            clock=self.clock,
            emit=self.emit_rows if self.emit else None,
        )

    def emit_rows(self, rows: Sequence[MilestoneRow]) -> None:
        """Hand milestones to the host's outbox."""
        if self.emit is None:
            return
        try:
            self.emit(self.connection, tuple(Milestone.of(row) for row in rows))
        except (NotFound, PermissionDenied, ValidationFailed, Conflict) as error:
            # The change is written by now, so this is no refusal that leaves nothing behind.
            raise Internal("The host's emit refused a milestone.", error=error.code) from error

    def ungated(self) -> "Context":
        """Return the same context for a module that has done its own checks."""
        return replace(self, gated=False)

    def holds(self, key: str) -> bool:
        """Return whether the caller may act under `key` here."""
        return not self.gated or self.caller.holds(key)

    def require(self, keys: Collection[str]) -> None:
        """Refuse a caller that holds none of `keys`.

        Raises:
            PermissionDenied: with the keys that would do.
        """
        if not any(self.holds(key) for key in keys):
            raise PermissionDenied(
                f"This needs the permission {' or '.join(keys)}.", needs=" or ".join(keys)
            )
