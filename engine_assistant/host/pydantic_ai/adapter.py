"""The port to a model, over pydantic-ai."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from typing import Final, cast

from pydantic_ai import ModelSettings
from pydantic_ai.direct import model_request_stream
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError, UserError
from pydantic_ai.messages import InstructionPart
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse, infer_model
from pydantic_ai.tools import ToolDefinition as SentTool

from engine_assistant import Retry
from engine_assistant.host.errors import ModelFailed
from engine_assistant.host.model import ModelEvent, ModelRequest, ModelResult, TextDelta
from engine_assistant.host.pydantic_ai.answers import Listener, refusal_of, stop_reason, usage_of
from engine_assistant.host.pydantic_ai.requests import sent_messages
from engine_assistant.model.errors import Fact

__all__ = ["PydanticAIModel"]

_PASSING_STATUS: Final = frozenset({408, 409, 425, 429})
_SERVER_ERROR: Final = 500
_CODE: Final = re.compile(r"[a-z][a-z0-9_.-]{0,63}", re.ASCII | re.IGNORECASE)


class PydanticAIModel:
    """A model of pydantic-ai, as `engine_assistant.host.Model` and `NamedModel`.

    Args:
        model: one of its models, or its name for one, like `openai:gpt-5`. Use it in one event
            loop; entering it (`async with`) lets it close its connections.
        settings: sent with each request; those of the conversation stand above them. The model is
            asked to call one tool at a time unless `parallel_tool_calls` is set here.
        requires_finish_reason: an answer counts as whole only if the provider said why it ended.
            Switch it off for servers that never say; a cut stream then passes for a whole one.
        first_event_timeout: seconds until the model must have begun to speak, retries of its
            client included.
        event_timeout: seconds of silence that may follow.

    Retrying is the client's: `max_retries` in the settings says how often. `stream` raises
    `ModelFailed`, and pydantic-ai's own `UserError` where it was given what can never work.
    """

    def __init__(
        self,
        model: Model | str,
        *,
        settings: ModelSettings | None = None,
        requires_finish_reason: bool = True,
        first_event_timeout: float = 120.0,
        event_timeout: float = 60.0,
    ) -> None:
        self._model = infer_model(model)
        self._settings = settings or ModelSettings()
        self._requires_finish_reason = requires_finish_reason
        self._first_event_timeout = first_event_timeout
        self._event_timeout = event_timeout

    @property
    def provider(self) -> str:
        """Who serves it, as pydantic-ai calls them."""
        return self._model.system

    @property
    def name(self) -> str:
        """What its provider calls it."""
        return self._model.model_name

    @property
    def endpoint(self) -> str:
        """Who answers, and where: what was written there is given back to nobody else."""
        return f"{self.provider} {self._model.base_url or ''}".strip()

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent | ModelResult]:
        """Ask the model, as the port says."""
        listener = Listener()
        with self._translated():
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(self._first_event_timeout):
                    answer = await stack.enter_async_context(self._open(request))
                    events = aiter(answer)
                    event = await anext(events, None)
                while event is not None:
                    for told in listener.hear(event):
                        yield told
                    async with asyncio.timeout(self._event_timeout):
                        event = await anext(events, None)
                response = answer.get()
        if refused := refusal_of(response):
            yield TextDelta(text=refused)
        yield ModelResult(
            message=listener.message(response, self.endpoint),
            stop_reason=stop_reason(response, required=self._requires_finish_reason),
            usage=usage_of(response.usage),
        )

    def _open(self, request: ModelRequest) -> AbstractAsyncContextManager[StreamedResponse]:
        settings: dict[str, object] = {**self._settings, **request.settings}
        settings.pop("parallel_tool_calls", None)
        settings.pop("tool_choice", None)
        if request.tools:
            settings["tool_choice"] = "none" if request.text_only else "auto"
            if "parallel_tool_calls" not in self._model.unsupported_settings:
                settings["parallel_tool_calls"] = self._settings.get("parallel_tool_calls", False)
        tools = [
            SentTool(
                name=one.name,
                description=one.description,
                parameters_json_schema=dict(one.schema),
            )
            for one in request.tools
        ]
        system = [InstructionPart(content=request.system)] if request.system else []
        return model_request_stream(
            self._model,
            sent_messages(request.messages, self.endpoint),
            model_settings=cast("ModelSettings", settings),
            model_request_parameters=ModelRequestParameters(
                function_tools=tools, instruction_parts=system
            ),
        )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Say in our words what went wrong. The provider's own may quote the conversation."""
        try:
            yield
        except UserError:
            raise
        except ModelHTTPError as error:
            status = error.status_code
            again = status in _PASSING_STATUS or status >= _SERVER_ERROR
            code = _code_of(error)
            raise self._failed(
                f"The model's provider answered with status {status}{code and f' ({code})'}.",
                reason="status",
                retry=Retry.NOW if again else Retry.NEVER,
                status=status,
                **({"provider_code": code} if code else {}),
            ) from None
        except TimeoutError:
            raise self._failed(
                "The model was silent for too long.", reason="timeout", retry=Retry.NOW
            ) from None
        except ModelAPIError as error:
            raise self._failed(
                "The exchange with the model's provider failed.",
                reason="transport",
                retry=Retry.NOW,
                error=type(error).__name__,
            ) from None
        except Exception as error:  # noqa: BLE001 - clients have many ways to fail
            raise self._failed(
                "The model's client failed.",
                reason="broken",
                error=type(error).__name__,
            ) from None

    def _failed(
        self, message: str, *, reason: str, retry: Retry = Retry.NEVER, **facts: Fact
    ) -> ModelFailed:
        named: dict[str, Fact] = {
            "provider": self.provider,
            "model": self.name,
        }
        return ModelFailed(message, reason=reason, retry=retry, **named, **facts)


def _code_of(error: ModelAPIError) -> str:
    """Return the provider's own code for what was wrong, or nothing: it must look like a code."""
    for name in ("provider_error_code", "provider_error_type"):
        said = getattr(error, name, None)  # older releases have neither
        if isinstance(said, str) and _CODE.fullmatch(said):
            return said
    return ""
