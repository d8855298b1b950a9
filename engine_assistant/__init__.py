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
from engine_assistant.engines import make_async_engine, make_engine, prepare_sqlite
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
from engine_assistant.model.permissions import AUDIT, RUN, USE
from engine_assistant.operations.registry import OPERATIONS

__version__ = "0.1.0"

__all__ = [
    "AUDIT",
    "OPERATIONS",
    "RUN",
    "USE",
    "ApprovalBinding",
    "Assistant",
    "AssistantError",
    "AsyncAssistant",
    "AsyncBound",
    "AsyncOperations",
    "Bound",
    "Caller",
    "Conflict",
    "ConflictReason",
    "Context",
    "Internal",
    "Limits",
    "NotFound",
    "Operations",
    "PermissionDenied",
    "Raced",
    "Retry",
    "Unavailable",
    "ValidationFailed",
    "approval_digest",
    "arguments_digest",
    "make_async_engine",
    "make_engine",
    "prepare_sqlite",
    "tool_version",
]
