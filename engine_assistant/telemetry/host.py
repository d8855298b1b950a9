"""A span for each turn, request and tool, and the numbers that say what they take."""

from collections.abc import Callable
from typing import Final

from opentelemetry import metrics, trace
from opentelemetry.trace import Span, SpanKind

from engine_assistant.host.observing import (
    HostObserver,
    RequestBegun,
    RequestEnded,
    ToolBegun,
    ToolEnded,
    TurnBegun,
    TurnEnded,
)
from engine_assistant.model.observing import OK
from engine_assistant.model.usage import Figure, Usage
from engine_assistant.telemetry.content import answer_of, instructions_of, messages_of, written
from engine_assistant.telemetry.names import (
    ERROR,
    FENCE,
    NAME,
    OUTCOME,
    TENANT,
    THREAD,
    TURN,
    Attributes,
    finish,
    known,
    opened,
)
from engine_assistant.version import __version__

__all__ = ["observe_host"]

_OPERATION: Final = "gen_ai.operation.name"
_PROVIDER: Final = "gen_ai.provider.name"
_MODEL: Final = "gen_ai.request.model"
_TOOL: Final = "gen_ai.tool.name"
_KIND: Final = "gen_ai.token.type"

_CONVENTIONAL: Final = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "google": "gcp.gemini",
    "google-cloud": "gcp.vertex_ai",
    "google-gla": "gcp.gemini",
    "google-vertex": "gcp.vertex_ai",
    "mistral": "mistral_ai",
    "xai": "x_ai",
}
"""Providers that the conventions call otherwise than their clients do."""

_USAGE: Final = {
    "input": "gen_ai.usage.input_tokens",
    "output": "gen_ai.usage.output_tokens",
    "reasoning": "gen_ai.usage.reasoning.output_tokens",
    "cache_read": "gen_ai.usage.cache_read.input_tokens",
    "cache_write": "gen_ai.usage.cache_creation.input_tokens",
}

_NO_FAULT: Final = "cancelled"
_FAULTS: Final = frozenset({"error", "lost"})
"""Ends of a turn that make its span an error."""

_SECONDS: Final = [0.01 * 2**n for n in range(14)]
_TOKENS: Final = [4.0**n for n in range(14)]


def observe_host(
    tracer_provider: trace.TracerProvider | None = None,
    meter_provider: metrics.MeterProvider | None = None,
    *,
    content: bool = False,
) -> HostObserver:
    """Return an observer for a host: `AssistantHost(observer=…)`, or `Conversation(observer=…)`.

    A turn is a span `invoke_agent`; `chat {model}` and `execute_tool {tool}` stand under it, and so
    do the operations that `observe` tells of. Tenant and thread are on spans only.

    Args:
        tracer_provider: where spans go; default is the process's.
        meter_provider: where metrics go; default is the process's.
        content: put what was said into spans: messages, instructions, arguments and results. They
            are in no span otherwise, and in no metric ever.
    """
    return _Observed(
        trace.get_tracer(NAME, __version__, tracer_provider),
        metrics.get_meter(NAME, __version__, meter_provider),
        content=content,
    )


class _Observed(HostObserver):
    """The observer of one host."""

    def __init__(self, tracer: trace.Tracer, meter: metrics.Meter, *, content: bool) -> None:
        self._tracer = tracer
        self._content = content
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            unit="{token}",
            description="Tokens of one request, as its provider told.",
            explicit_bucket_boundaries_advisory=_TOKENS,
        )
        self._requests = meter.create_histogram(
            "gen_ai.client.operation.duration",
            unit="s",
            description="How long a request to a model takes.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._tools = meter.create_histogram(
            "gen_ai.execute_tool.duration",
            unit="s",
            description="How long a tool runs.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._turns = meter.create_counter(
            "engine_assistant.turns",
            unit="{turn}",
            description="Runs of turns, by how they ended.",
        )

    # ------------------------------------------------------------ a turn

    def turn(self, begun: TurnBegun, /) -> Callable[[TurnEnded], None]:
        close = self._open(
            "invoke_agent",
            None,
            {
                "gen_ai.conversation.id": begun.thread_id,
                TENANT: begun.tenant,
                THREAD: begun.thread_id,
                FENCE: begun.fence,
            },
        )

        def tell(ended: TurnEnded) -> None:
            told: Attributes = {TURN: ended.turn, OUTCOME: ended.ended}
            finish(close(), told, ended.error, fault=ended.ended in _FAULTS)
            self._turns.add(1, {OUTCOME: ended.ended})

        return tell

    # ------------------------------------------------------------ a request to the model

    def request(self, begun: RequestBegun, /) -> Callable[[RequestEnded], None]:
        provider = begun.provider and _CONVENTIONAL.get(begun.provider, begun.provider)
        who: Attributes = {_PROVIDER: provider, _MODEL: begun.model}
        said: Attributes = {"gen_ai.request.stream": True}
        if self._content:
            said = {
                **said,
                "gen_ai.system_instructions": instructions_of(begun.request.system),
                "gen_ai.input.messages": messages_of(begun.request.messages),
            }
        close = self._open("chat", begun.model, {**who, **said}, SpanKind.CLIENT)

        def tell(ended: RequestEnded) -> None:
            finish(close(), self._answer(ended), ended.error, fault=ended.error != _NO_FAULT)
            of = {_OPERATION: "chat", **known(who)}
            self._requests.record(ended.seconds, known({**of, ERROR: ended.error}))
            usage = None if ended.result is None else ended.result.usage
            for kind, figure in _figures(usage):
                if kind in ("input", "output"):
                    self._tokens.record(figure.value, {**of, _KIND: kind})

        return tell

    def _answer(self, ended: RequestEnded) -> Attributes:
        result = ended.result
        told: Attributes = {"gen_ai.response.time_to_first_chunk": ended.first_output}
        if result is None:
            return told
        reason = result.stop_reason
        return {
            **told,
            **{_USAGE[kind]: figure.value for kind, figure in _figures(result.usage)},
            "gen_ai.response.finish_reasons": None if reason is None else [str(reason)],
            "gen_ai.output.messages": answer_of(result) if self._content else None,
        }

    # ------------------------------------------------------------ a tool

    def tool(self, begun: ToolBegun, /) -> Callable[[ToolEnded], None]:
        close = self._open(
            "execute_tool",
            begun.tool,
            {
                _TOOL: begun.tool,
                "gen_ai.tool.type": "function",
                "gen_ai.tool.call.id": begun.call_id,
                "gen_ai.tool.call.arguments": written(begun.input) if self._content else None,
            },
        )

        def tell(ended: ToolEnded) -> None:
            result = ended.result
            told: Attributes = {
                OUTCOME: ended.error or OK,
                "gen_ai.tool.call.result": (
                    written(result.output) if self._content and result is not None else None
                ),
            }
            finish(close(), told, ended.error, fault=ended.error != _NO_FAULT)
            self._tools.record(ended.seconds, known({_TOOL: begun.tool, ERROR: ended.error}))

        return tell

    def _open(
        self,
        operation: str,
        what: str | None,
        attributes: Attributes,
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> Callable[[], Span]:
        """Begin a span of an operation on something."""
        name = operation if what is None else f"{operation} {what}"
        return opened(self._tracer, name, {_OPERATION: operation, **attributes}, kind)


def _figures(usage: Usage | None) -> list[tuple[str, Figure]]:
    """Return the numbers of tokens that are known, by name."""
    found = [] if usage is None else [(name, getattr(usage, name)) for name in _USAGE]
    return [(name, figure) for name, figure in found if figure is not None]
