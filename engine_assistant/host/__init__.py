"""Floor 4: the conversation loop over real models, and the host that runs turns with it.

`run_conversation` and `stream_conversation` carry one conversation on; they need no database.
`AssistantHost` carries a thread's turn on, with the record as its memory; a `Service` does so for
every turn that nobody runs. `tool` and `ToolRegistry` make functions into what a model may ask for.
The models of large providers are in `engine_assistant.host.pydantic_ai`, the tools of MCP servers
in `engine_assistant.host.mcp`; each needs an extra and is imported by its own name.
"""

from engine_assistant.host.conversation import MAX_STEPS, Conversation, Outcome, Status, System
from engine_assistant.host.errors import (
    InvalidResponse,
    InvalidToolState,
    ModelFailed,
    ResponseNotComplete,
    RunsLost,
)
from engine_assistant.host.execution import (
    AwaitingApproval,
    BatchTools,
    Data,
    HostEvent,
    Masking,
    Step,
    ToolFailed,
    ToolOutcome,
    ToolProgress,
    ToolReturned,
    Tools,
)
from engine_assistant.host.health import serve_health
from engine_assistant.host.hooks import Hooks
from engine_assistant.host.loop import run_conversation
from engine_assistant.host.messages import (
    MESSAGES,
    AssistantMessage,
    Message,
    ProviderState,
    Reasoning,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
    open_calls,
)
from engine_assistant.host.model import (
    Cost,
    Figure,
    Model,
    ModelEvent,
    ModelRequest,
    ModelResult,
    NamedModel,
    Provenance,
    ReasoningDelta,
    StopReason,
    TextDelta,
    ToolCallStarted,
    ToolDefinition,
    ToolInputDelta,
    Usage,
)
from engine_assistant.host.observing import (
    HostObserver,
    RequestBegun,
    RequestEnded,
    ToolBegun,
    ToolEnded,
    TurnBegun,
    TurnEnded,
)
from engine_assistant.host.registry import Card, PreparedCall, ToolRefused, ToolRegistry
from engine_assistant.host.serving import Health, Service
from engine_assistant.host.signature import CallId, ToolContext
from engine_assistant.host.stream import (
    ConversationEvent,
    ConversationStream,
    Done,
    stream_conversation,
)
from engine_assistant.host.tools import MASK, Tool, tool
from engine_assistant.host.turns import (
    Approvals,
    Ask,
    AssistantHost,
    Batching,
    Ended,
    Ready,
    TurnReport,
    Unsettled,
)
from engine_assistant.host.whose import ThreadRef

__all__ = [
    "MASK",
    "MAX_STEPS",
    "MESSAGES",
    "Approvals",
    "Ask",
    "AssistantHost",
    "AssistantMessage",
    "AwaitingApproval",
    "BatchTools",
    "Batching",
    "CallId",
    "Card",
    "Conversation",
    "ConversationEvent",
    "ConversationStream",
    "Cost",
    "Data",
    "Done",
    "Ended",
    "Figure",
    "Health",
    "Hooks",
    "HostEvent",
    "HostObserver",
    "InvalidResponse",
    "InvalidToolState",
    "Masking",
    "Message",
    "Model",
    "ModelEvent",
    "ModelFailed",
    "ModelRequest",
    "ModelResult",
    "NamedModel",
    "Outcome",
    "PreparedCall",
    "Provenance",
    "ProviderState",
    "Ready",
    "Reasoning",
    "ReasoningDelta",
    "RequestBegun",
    "RequestEnded",
    "ResponseNotComplete",
    "RunsLost",
    "Service",
    "Status",
    "Step",
    "StopReason",
    "System",
    "Text",
    "TextDelta",
    "ThreadRef",
    "Tool",
    "ToolBegun",
    "ToolCall",
    "ToolCallStarted",
    "ToolContext",
    "ToolDefinition",
    "ToolEnded",
    "ToolFailed",
    "ToolInputDelta",
    "ToolMessage",
    "ToolOutcome",
    "ToolProgress",
    "ToolRefused",
    "ToolRegistry",
    "ToolResult",
    "ToolReturned",
    "Tools",
    "TurnBegun",
    "TurnEnded",
    "TurnReport",
    "Unsettled",
    "Usage",
    "UserMessage",
    "open_calls",
    "run_conversation",
    "serve_health",
    "stream_conversation",
    "tool",
]
