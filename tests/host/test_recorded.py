"""Conversations that were had with real providers, had again: their streams byte for byte.

The host has the tools that were there, and they answer what they answered. So what is sent now must
be what was sent then, ids aside.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Final

import pytest

from engine_assistant.host import (
    AssistantMessage,
    Conversation,
    Outcome,
    Reasoning,
    ResponseNotComplete,
    Status,
    TextDelta,
    Tool,
    ToolCall,
    ToolMessage,
    ToolRegistry,
    UserMessage,
    run_conversation,
    tool,
)
from engine_assistant.testing.recorded import Exchange, RecordedServer, read_recording
from tests.host.providers import CLIENTS, PydanticAIModel
from tests.host.stage import Memory, run

DATA = Path(__file__).parents[3] / "shared" / "data" / "model-streams"
pytestmark = [
    pytest.mark.skipif(not DATA.is_dir(), reason=f"no recordings at {DATA}"),
    # Some of the models that were recorded are old by now.
    pytest.mark.filterwarnings("ignore:The model .* is deprecated:DeprecationWarning"),
]


@tool(effect="read", approval="never")
def get_capital(country: str) -> str:
    return {"UK": "London", "France": "Paris", "PotatoLand": "Potato City"}[country]


@tool(effect="read", approval="never")
def get_country() -> str:
    return "Mexico"


@tool(effect="read", approval="never")
def get_temperature(city: str) -> str:
    return {"Tokyo": "21.0"}[city]


@tool(effect="read", approval="never")
def first_tool() -> str:
    return "first result"


@tool(effect="read", approval="never")
def second_tool() -> str:
    return "second result"


@tool(effect="read", approval="never")
def get_something_by_name(name: str) -> str:
    return f"Something with name: {name}"


@dataclass(frozen=True)
class Recorded:
    """One conversation: by which client and model, and what it was about."""

    client: str
    base: str
    model: str
    tools: Sequence[Tool]
    says: str


RECORDED: Final = {
    "openai_responses_phase_streamed_on_part_start": Recorded(
        "openai-responses", "/v1", "gpt-5.5", [get_capital], "Potato City"
    ),
    "openai_responses_stream": Recorded(
        "openai-responses", "/v1", "gpt-4o", [get_capital], "Paris"
    ),
    "run_stream_sync_streams_real_model": Recorded(
        "openai-chat", "/v1", "gpt-4o-mini", [get_capital], "London"
    ),
    "deepseek_responses-function_tool_stream": Recorded(
        "openai-responses", "", "deepseek-v4-flash", [get_temperature], "21.0"
    ),
    "reused_tool_call_ids-stream": Recorded(
        "openai-responses", "/openai/v1", "gpt-5.6", [first_tool, second_tool], "second result"
    ),
    "google_streaming_tool_call_thought_signature": Recorded(
        "google", "", "gemini-3-pro-preview", [get_country], "Mexico City"
    ),
    "anthropic_web_fetch_tool_stream": Recorded(
        "anthropic", "", "claude-sonnet-4-0", [], "Pydantic AI"
    ),
}
GROQ: Final = Recorded(
    "groq", "", "openai/gpt-oss-120b", [get_something_by_name], "expected result"
)


def _exchanges(file: str) -> list[Exchange]:
    return [
        one
        for one in read_recording(DATA / f"{file}.json")
        if one.content_type.startswith("text/event-stream")
    ]


def had_again(
    of: Recorded, exchanges: Sequence[Exchange], *, strict: bool = True
) -> tuple[Outcome, Memory, list[object]]:
    """Have the conversation again; return also what was sent of it, request by request."""
    memory = Memory()

    async def work(server: RecordedServer) -> Outcome:
        client = CLIENTS[of.client](server.url + of.base, of.model)
        return await run_conversation(
            Conversation(
                model=PydanticAIModel(client, requires_finish_reason=strict),
                messages=[UserMessage(_said(exchanges[0].request))],
                system=_system(exchanges[0].request),
                tools=ToolRegistry(of.tools),
                hooks=memory,
            )
        )

    with RecordedServer(exchanges) as server:
        outcome = run(work(server))
        assert server.left == 0
        return outcome, memory, [_asked(one.json()) for one in server.requests]


@cache
def once(file: str) -> tuple[Outcome, Memory, list[object]]:
    """Have it again once, to look at from several sides."""
    return had_again(RECORDED[file], _exchanges(file))


def _said(request: dict) -> str:
    said = json.dumps(request.get("input") or request.get("contents") or request["messages"][-1:])
    (text,) = re.findall(r'"(?:text|content)": ("(?:[^"\\]|\\.)*")', said)
    return json.loads(text)


def _system(request: dict) -> str | None:
    first = request.get("messages", [{}])[0]
    return first["content"] if first.get("role") == "system" else request.get("instructions")


def _asked(request: dict) -> object:
    """Return the conversation in a request, with ids numbered in the order of their coming."""
    numbers: dict[str, str] = {}

    def plain(value: object) -> object:
        if isinstance(value, list):
            return [plain(one) for one in value]
        if isinstance(value, dict):
            return {key: of(key, one) for key, one in value.items()}
        # The recordings hold straight quotes where the provider was given curly ones.
        return value.translate(QUOTES) if isinstance(value, str) else value

    def of(key: str, value: object) -> object:
        if key in {"id", "call_id", "tool_call_id"}:
            return numbers.setdefault(value, f"#{len(numbers)}")
        return json.loads(value) if key == "arguments" else plain(value)

    return plain(request.get("input") or request.get("contents") or request["messages"])


QUOTES: Final = str.maketrans("\u2018\u2019\u201c\u201d", "''\"\"")


@pytest.mark.guarantee("G-HOST-30", "G-HOST-31", "G-HOST-32")
@pytest.mark.parametrize("file", RECORDED)
def test_what_is_sent_is_what_was_sent_then(file: str) -> None:
    exchanges = _exchanges(file)
    outcome, _, sent = once(file)
    assert (outcome.status, outcome.steps) == (Status.DONE, len(exchanges))
    assert RECORDED[file].says in outcome.result.message.text
    assert sent == [_asked(one.request) for one in exchanges]


@pytest.mark.guarantee("G-HOST-07", "G-HOST-13", "G-HOST-30")
@pytest.mark.parametrize("file", RECORDED)
def test_the_text_is_the_deltas_and_nothing_private_is_kept(file: str) -> None:
    outcome, memory, _ = once(file)
    told = "".join(event.text for event in memory.events if isinstance(event, TextDelta))
    answers = [one for one in memory.kept if isinstance(one, AssistantMessage)]
    assert told == "".join(one.text for one in answers)
    assert all(one.state is None for one in answers)
    assert not [b for one in answers for b in one.content if isinstance(b, Reasoning)]
    calls = [one for answer in answers for one in answer.calls]
    results = [r.call_id for m in memory.kept if isinstance(m, ToolMessage) for r in m.results]
    assert [one.call_id for one in calls] == results
    assert len(set(results)) == len(results) == outcome.steps - 1


@pytest.mark.guarantee("G-HOST-36")
@pytest.mark.parametrize("file", RECORDED)
def test_the_usage_is_what_the_provider_reported(file: str) -> None:
    exchanges = _exchanges(file)
    _, memory, _ = once(file)
    usages = [step.result.usage for step in memory.answered]
    assert [(one.input.value, one.output.value) for one in usages] == [
        _reported(one.body) for one in exchanges
    ]
    assert {figure.provenance for _, figure in chain(*usages) if figure} == {"reported"}


def _reported(body: str) -> tuple[int, int]:
    """Read the last figures of a stream."""

    def last(*names: str) -> int:
        found = re.findall(rf'"(?:{"|".join(names)})": ?(\d+)', body)
        return int(found[-1])

    if "usageMetadata" in body:
        thought = re.findall(r'"thoughtsTokenCount": (\d+)', body)[-1:]
        return last("promptTokenCount"), last("candidatesTokenCount") + sum(map(int, thought))
    return last("input_tokens", "prompt_tokens"), last("output_tokens", "completion_tokens")


@pytest.mark.guarantee("G-HOST-30")
def test_tools_of_the_providers_own_are_neither_calls_nor_text() -> None:
    """It searched the web in the middle of its answer: we see what it said before and after."""
    file = "anthropic_text_parts_ahead_of_built_in_tool_call"
    for exchange in _exchanges(file):
        of = Recorded("anthropic", "", "claude-sonnet-4-5", [], "")
        outcome, memory, _ = had_again(of, [exchange])
        assert outcome.status is Status.DONE
        (answer,) = memory.kept
        assert answer.calls == ()
        assert "server_tool_use" in exchange.body
        assert "server_tool_use" not in answer.text


@pytest.mark.guarantee("G-HOST-02", "G-HOST-33")
def test_a_stream_that_a_provider_broke_off_is_not_taken_for_a_call() -> None:
    """Groq found the arguments wrong, said so in the stream, and gave no reason to stop."""
    (first, *_) = _exchanges("tool_use_failed_error_streaming")
    with pytest.raises(ResponseNotComplete):
        had_again(GROQ, [first])


@pytest.mark.guarantee("G-HOST-20", "G-HOST-33")
def test_without_asking_for_a_reason_the_model_is_told_of_its_mistake_and_mends_it() -> None:
    exchanges = _exchanges("tool_use_failed_error_streaming")
    outcome, memory, sent = had_again(GROQ, exchanges, strict=False)
    assert (outcome.status, outcome.steps) == (Status.DONE, 3)
    assert GROQ.says in outcome.result.message.text
    wrong, right = [r for m in memory.kept if isinstance(m, ToolMessage) for r in m.results]
    assert wrong.output["code"] == "invalid_arguments"
    assert right.output == "Something with name: example"
    assert "invalid_arguments: name: Field required" in sent[1][-1]["content"]
    (call,) = [b for b in memory.kept[0].content if isinstance(b, ToolCall)]
    assert call.input == {"invalid_param": "value"}
    # That answer came without figures.
    assert [step.result.usage is None for step in memory.answered] == [True, False, False]
