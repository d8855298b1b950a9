"""What a platform must know to compose the module: `MANIFEST`, and a check of its roles."""

from collections.abc import Iterable
from typing import Final

from engine_assistant.model.errors import ValidationFailed
from engine_assistant.model.events import STREAM_VERSION
from engine_assistant.model.manifest import (
    Erasure,
    Holder,
    Manifest,
    OperationFact,
    PermissionFact,
    Role,
    TableFact,
)
from engine_assistant.model.milestones import MilestoneType
from engine_assistant.model.permissions import AUDIT, RUN, USE
from engine_assistant.operations.registry import OPERATIONS
from engine_assistant.version import __version__

__all__ = ["MANIFEST", "check_grants"]

_PERMISSIONS: Final = (
    PermissionFact(
        key=USE,
        holder=Holder.PERSON,
        purpose="Open threads, read one's own, send messages, answer approvals.",
    ),
    PermissionFact(
        key=AUDIT,
        holder=Holder.PERSON,
        purpose="Read other people's threads, beside assistant:use; write to none.",
    ),
    PermissionFact(
        key=RUN,
        holder=Holder.SYSTEM,
        purpose="Hold the lease, write the assistant's side, claim executions, import threads.",
    ),
)

_BY_THREAD: Final = ("thread_id", "assistant_threads.subject_id")
_PATHS: Final = {
    "assistant_threads": ("subject_id",),
    "assistant_events": _BY_THREAD,
    "assistant_inputs": (*_BY_THREAD, "author_id"),
    "assistant_runs": _BY_THREAD,
    "assistant_tool_calls": _BY_THREAD,
    "assistant_approvals": (*_BY_THREAD, "approver_id"),
    "assistant_files": _BY_THREAD,
    "assistant_compactions": _BY_THREAD,
    "assistant_contexts": _BY_THREAD,
    "assistant_outbox": _BY_THREAD,
}


MANIFEST: Final = Manifest(
    module="assistant",
    version=__version__,
    schema_revision="engine_assistant_0003",
    stream_version=STREAM_VERSION,
    permissions=_PERMISSIONS,
    operations=tuple(
        OperationFact(name=operation.name, permissions=operation.permissions)
        for operation in OPERATIONS.values()
    ),
    milestones=tuple(milestone.value for milestone in MilestoneType),
    tables=tuple(
        TableFact(name=name, erasure=Erasure.DELETE, subject_path=path)
        for name, path in _PATHS.items()
    ),
)
"""The facts of the module. The schemas of its operations stand in `OPERATIONS`."""


def check_grants(roles: Iterable[Role]) -> None:
    """Check a platform's roles before they are handed to anybody.

    Raises:
        ValidationFailed: a role for people grants `assistant:run`; a role grants `assistant:audit`
            without `assistant:use`, which alone opens nothing; or it grants a key of this module
            that does not exist.
    """
    holders = {fact.key: fact.holder for fact in _PERMISSIONS}
    for role in roles:
        granted = {key for key in role.permissions if key.startswith("assistant:")}
        for key in sorted(granted - holders.keys()):
            raise ValidationFailed(
                f"The role {role.name} grants {key}, which does not exist.", path=role.name
            )
        for key in sorted(granted):
            if holders[key] is Holder.SYSTEM and role.holder is Holder.PERSON:
                raise ValidationFailed(
                    f"The role {role.name} grants {key} to people; only a system principal may"
                    " hold it.",
                    path=role.name,
                )
        if AUDIT in granted and USE not in granted:
            raise ValidationFailed(
                f"The role {role.name} grants {AUDIT} without {USE}, which alone opens nothing.",
                path=role.name,
            )
