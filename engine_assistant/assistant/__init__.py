"""Floor 3: the front door. `Assistant` and `AsyncAssistant`, and the verbs that they open."""

from engine_assistant.assistant.async_verbs import AsyncOperations
from engine_assistant.assistant.asynchronous import AsyncAssistant
from engine_assistant.assistant.bound import AsyncBound, Bound
from engine_assistant.assistant.synchronous import Assistant
from engine_assistant.assistant.verbs import Operations

__all__ = [
    "Assistant",
    "AsyncAssistant",
    "AsyncBound",
    "AsyncOperations",
    "Bound",
    "Operations",
]
