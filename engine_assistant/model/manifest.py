"""The shapes of the module's facts: what a platform must know to compose it."""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict

__all__ = ["Erasure", "Holder", "Manifest", "OperationFact", "PermissionFact", "Role", "TableFact"]


class Holder(StrEnum):
    """Who may hold a permission."""

    PERSON = "person"
    SYSTEM = "system"


class Erasure(StrEnum):
    """What erasing a person does to a table."""

    DELETE = "delete"


class Fact(BaseModel):
    """The root of every fact."""

    model_config = ConfigDict(frozen=True)


class PermissionFact(Fact):
    """A permission key, who may hold it, and what for."""

    key: str
    holder: Holder
    purpose: str


class OperationFact(Fact):
    """An operation and the keys of which its caller must hold one."""

    name: str
    permissions: tuple[str, ...]


class TableFact(Fact):
    """A table, what erasing a person does to it, and how its rows lead to that person."""

    name: str
    erasure: Erasure
    subject_path: tuple[str, ...]


class Manifest(Fact):
    """Everything that a platform needs to know of the module."""

    module: str
    version: str
    schema_revision: str
    stream_version: int
    permissions: tuple[PermissionFact, ...]
    operations: tuple[OperationFact, ...]
    milestones: tuple[str, ...]
    tables: tuple[TableFact, ...]


class Role(Fact):
    """A role of the platform, as far as this module is concerned."""

    name: str
    holder: Holder
    permissions: frozenset[str]
