"""The durable record of chats with an assistant that may do things.

Open the front door with `Assistant` or `AsyncAssistant`; everything else here is what goes in and
what comes out.
"""

from engine_assistant.assistant import (
    Assistant,
    AsyncAssistant,
    AsyncBound,
    AsyncOperations,
    Bound,
    Operations,
)
from engine_assistant.context import Caller, Context
from engine_assistant.doctor import Finding
from engine_assistant.engines import make_async_engine, make_engine, prepare_sqlite
from engine_assistant.manifest import MANIFEST, check_grants
from engine_assistant.model.digests import (
    ApprovalBinding,
    approval_digest,
    arguments_digest,
    tool_version,
)
from engine_assistant.model.errors import (
    AssistantError,
    Conflict,
    ConflictReason,
    Internal,
    NotFound,
    PermissionDenied,
    Raced,
    Retry,
    Unavailable,
    ValidationFailed,
)
from engine_assistant.model.limits import Limits
from engine_assistant.model.manifest import Holder, Role
from engine_assistant.model.observing import Observer, OperationBegun, OperationEnded
from engine_assistant.model.permissions import AUDIT, RUN, USE
from engine_assistant.model.service import Backlog, Drained, Milestone, Runnable, Surveyed, Waiting
from engine_assistant.model.views.archives import Imported, Refused
from engine_assistant.operations.registry import OPERATIONS
from engine_assistant.version import __version__

__all__ = [
    "AUDIT",
    "MANIFEST",
    "OPERATIONS",
    "RUN",
    "USE",
    "ApprovalBinding",
    "Assistant",
    "AssistantError",
    "AsyncAssistant",
    "AsyncBound",
    "AsyncOperations",
    "Backlog",
    "Bound",
    "Caller",
    "Conflict",
    "ConflictReason",
    "Context",
    "Drained",
    "Finding",
    "Holder",
    "Imported",
    "Internal",
    "Limits",
    "Milestone",
    "NotFound",
    "Observer",
    "OperationBegun",
    "OperationEnded",
    "Operations",
    "PermissionDenied",
    "Raced",
    "Refused",
    "Retry",
    "Role",
    "Runnable",
    "Surveyed",
    "Unavailable",
    "ValidationFailed",
    "Waiting",
    "__version__",
    "approval_digest",
    "arguments_digest",
    "check_grants",
    "make_async_engine",
    "make_engine",
    "prepare_sqlite",
    "tool_version",
]
