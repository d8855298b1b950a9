"""What a conversation can fail with, beside what the host's own code raises."""

from engine_assistant import AssistantError, Retry
from engine_assistant.model.errors import Fact

__all__ = [
    "InvalidResponse",
    "InvalidToolState",
    "ModelFailed",
    "ResponseNotComplete",
    "RunsLost",
]


class ModelFailed(AssistantError):
    """The model gave no answer: refused, unreachable, or silent for too long.

    `facts["reason"]` says which; `facts["status"]` is the HTTP status where there was one, and
    `facts["provider_code"]` the provider's word for it, like `context_length_exceeded`. The
    provider's own words are left out: they may quote the conversation.
    """

    code = "model_failed"

    def __init__(
        self, message: str, *, reason: str, retry: Retry = Retry.NEVER, **facts: Fact
    ) -> None:
        """Keep the reason, and whether the same request may be made again."""
        super().__init__(message, reason=reason, **facts)
        self.retry = retry


class ResponseNotComplete(AssistantError):
    """The answer did not come to its end. `facts["stop_reason"]` is None if it gave none.

    Nothing of it was kept, and none of its calls was run.
    """

    code = "response_not_complete"

    def __init__(self, stop_reason: str | None) -> None:
        """Keep the reason that was given. A stream that was cut may be asked for again."""
        super().__init__("The model's answer did not come to its end.", stop_reason=stop_reason)
        self.retry = Retry.NOW if stop_reason is None else Retry.NEVER


class InvalidToolState(AssistantError):
    """The answer contradicts itself: it stopped for calls and has none, or the other way round.

    Also raised for a call whose id is not new: two calls must never share one.
    """

    code = "invalid_tool_state"

    def __init__(self, message: str, stop_reason: str | None) -> None:
        """Keep the reason beside the sentence."""
        super().__init__(message, stop_reason=stop_reason)


class InvalidResponse(AssistantError):
    """The model's client broke the contract of `Model.stream`. It must be mended."""

    code = "invalid_response"


class RunsLost(AssistantError):
    """Too many runs of a turn fell silent in a row. It may be what kills the process that runs it.

    `facts["runs"]` is how many.
    """

    code = "runs_lost"

    def __init__(self, runs: int) -> None:
        """Keep the number beside the sentence."""
        super().__init__(f"{runs} runs of this turn ended without a word, so it ends.", runs=runs)
