"""Turns over the real clients of the providers: recorded streams, and every kind of fault."""

import json
from dataclasses import replace

import pytest

from engine_assistant.host import Ended, ProviderState, Tool, ToolCall
from engine_assistant.testing.faults import (
    BadJson,
    ConnectionRefused,
    FaultPlan,
    FaultServer,
    HttpError,
    Pass,
    Slow,
    StreamCut,
    TimeoutBeforeFirstByte,
    UsageMissing,
)
from engine_assistant.testing.faults import Step as Fault
from engine_assistant.testing.recorded import RecordedServer
from engine_assistant.testing.replay import answer
from tests.host.assistants import Scene, in_loop, refunding, scene
from tests.host.providers import CLIENTS, PydanticAIModel
from tests.host.test_recorded import (
    DATA,
    GROQ,
    RECORDED,
    Recorded,
    _asked,
    _exchanges,
    _said,
    _system,
)

recorded = pytest.mark.skipif(not DATA.is_dir(), reason=f"no recordings at {DATA}")
pytestmark = [
    pytest.mark.filterwarnings("ignore:The model .* is deprecated:DeprecationWarning"),
]
SECRET = "my pin is 4711"


def of(server: RecordedServer, what: Recorded, *, strict: bool = True) -> PydanticAIModel:
    client = CLIENTS[what.client](server.url + what.base, what.model)
    return PydanticAIModel(client, requires_finish_reason=strict)


def gated(tool: Tool) -> Tool:
    return replace(tool, effect="write", approval="always")


async def one_result_for_each_call(one: Scene) -> int:
    """Return how many calls there are; each is proposed once and has one result, behind it."""
    events = await one.events()
    proposed = [event.call_id for event in events if event.type == "tool-input"]
    came = [event.call_id for event in events if event.type in ("tool-output", "tool-error")]
    assert len(set(proposed)) == len(proposed)
    assert came == proposed
    return len(came)


@recorded
@pytest.mark.guarantee("G-HOST-64")
@pytest.mark.parametrize("file", RECORDED)
@in_loop
async def test_conversations_with_real_providers_are_had_again_in_the_record(
    database_url: str, file: str
) -> None:
    what, exchanges = RECORDED[file], _exchanges(file)
    async with scene(database_url) as one:
        await one.say(_said(exchanges[0].request))
        with RecordedServer(exchanges) as server:
            host = one.host(
                model=of(server, what),
                tools=what.tools,
                system=_system(exchanges[0].request),
            )
            report = await host.run_turn(one.thread_id)
            assert (report.ended, server.left) == (Ended.DONE, 0)
            sent = [_asked(request.json()) for request in server.requests]
        assert sent == [_asked(exchange.request) for exchange in exchanges]
        text = "".join(event.text for event in await one.of("text-delta"))
        assert what.says in text
        assert await one_result_for_each_call(one) == len(exchanges) - 1
        run = await one.bot.get_run(thread_id=one.thread_id, fence=report.fence)
        assert run.usage.output.value > 0
        await one.healthy()


@recorded
@pytest.mark.guarantee("G-HOST-57", "G-HOST-64")
@pytest.mark.parametrize("file", [file for file, what in RECORDED.items() if what.tools])
@in_loop
async def test_what_a_provider_needs_back_reaches_it_through_an_approval(
    database_url: str, file: str
) -> None:
    """Each answer comes to another host with another client, and all is sent as it was then."""
    what, exchanges = RECORDED[file], _exchanges(file)
    tools = [gated(tool) for tool in what.tools]
    async with scene(database_url) as one:
        await one.say(_said(exchanges[0].request))
        # One server: to another address nothing private would be given.
        with RecordedServer(exchanges) as server:
            for exchange in exchanges:
                host = one.host(
                    model=of(server, what), tools=tools, system=_system(exchange.request)
                )
                report = await host.run_turn(one.thread_id)
                for card in await one.cards():
                    await one.decide(card, approved=True)
            sent = [request.json() for request in server.requests]
        assert report.ended is Ended.DONE
        assert [_asked(one) for one in sent] == [_asked(one.request) for one in exchanges]
        assert await one_result_for_each_call(one) == len(exchanges) - 1
        await one.healthy()


@recorded
@pytest.mark.guarantee("G-HOST-64")
@in_loop
async def test_an_answer_with_tools_of_the_providers_own_is_its_text(database_url: str) -> None:
    async with scene(database_url) as one:
        for exchange in _exchanges("anthropic_text_parts_ahead_of_built_in_tool_call"):
            before = len(await one.of("text-delta"))
            await one.say(_said(exchange.request))
            with RecordedServer([exchange]) as server:
                what = Recorded("anthropic", "", "claude-sonnet-4-5", [], "")
                report = await one.host(model=of(server, what)).run_turn(one.thread_id)
            assert report.ended is Ended.DONE
            said = [event.text for event in await one.of("text-delta")][before:]
            assert "September" in "".join(said)
        assert "tool-input" not in await one.types()
        await one.healthy()


@recorded
@pytest.mark.guarantee("G-HOST-61", "G-HOST-64")
@in_loop
async def test_a_provider_that_finds_its_own_call_wrong_breaks_the_turn_or_the_model_mends_it(
    database_url: str,
) -> None:
    exchanges = _exchanges("tool_use_failed_error_streaming")
    for strict, ended in ((True, Ended.ERROR), (False, Ended.DONE)):
        async with scene(database_url) as one:
            await one.say(_said(exchanges[0].request))
            with RecordedServer(exchanges) as server:
                host = one.host(
                    model=of(server, GROQ, strict=strict),
                    tools=GROQ.tools,
                    system=_system(exchanges[0].request),
                )
                assert (await host.run_turn(one.thread_id)).ended is ended
            if strict:
                assert [event.code for event in await one.of("turn-error")] == [
                    "response_not_complete"
                ]
                assert "tool-input" not in await one.types()
            else:
                assert await one_result_for_each_call(one) == 2
                assert [event.code for event in await one.of("tool-error")] == ["invalid_arguments"]
            await one.healthy()


# ---------------------------------------------------------------- another provider


@pytest.mark.guarantee("G-HOST-57")
@in_loop
async def test_what_one_provider_wrote_for_itself_is_not_given_to_another(
    database_url: str,
) -> None:
    async with scene(database_url) as one:
        await one.say()
        call = ToolCall("refund", {"order": 7}, "call_0")
        *told, result = answer("I ask.", call)
        foreign = ProviderState(format="pydantic-ai/2", provider="google", data=SECRET)
        result = replace(result, message=replace(result.message, state=foreign))
        await one.host([*told, result], tools=[refunding([])]).run_turn(one.thread_id)
        await one.decide((await one.cards())[0], approved=True)
        with FaultServer(FaultPlan(steps=[Pass(text="Done.")])) as server:
            host = one.host(model=chat(server), tools=[refunding([])])
            assert (await host.run_turn(one.thread_id)).ended is Ended.DONE
            (request,) = server.requests
        assert SECRET.encode() not in request.body
        asked, came = request.json()["messages"][1:]
        assert asked["tool_calls"][0]["id"] == came["tool_call_id"]
        assert (asked["content"], json.loads(came["content"])) == ("I ask.", {"refunded": 7})


@pytest.mark.guarantee("G-HOST-49")
@in_loop
async def test_a_provider_gets_one_result_for_each_call_whatever_became_of_it(
    database_url: str,
) -> None:
    """Approved, denied, and passed by; and in the next turn once more."""
    async with scene(database_url) as one:
        await one.say()
        calls = [ToolCall("refund", {"order": order}, "call_0") for order in (1, 2, 3)]
        tools = [refunding([])]
        await one.host(answer(*calls), tools=tools).run_turn(one.thread_id)
        first, second, _ = await one.cards()
        await one.decide(second, approved=False)
        await one.decide(first, approved=True)
        with FaultServer(FaultPlan(steps=[Pass(text="Two of three.")])) as server:
            host = one.host(model=chat(server), tools=tools)
            assert (await host.run_turn(one.thread_id)).ended is Ended.AWAITING_APPROVAL
            await one.say("Never mind the third", supersede_approvals=True)
            for _ in range(2):
                assert (await host.run_turn(one.thread_id)).ended is Ended.DONE
                await one.say("And?")
            for request in server.requests:
                roles = [message["role"] for message in request.json()["messages"]]
                assert roles[:5] == ["user", "assistant", "tool", "tool", "tool"]
                _, asked, *came = request.json()["messages"][:5]
                ids = [call["id"] for call in asked["tool_calls"]]
                assert len(set(ids)) == 3
                assert [message["tool_call_id"] for message in came] == ids
                assert [
                    told in message["content"]
                    for told, message in zip(
                        ["refunded", "denied", "superseded"], came, strict=True
                    )
                ] == [True] * 3
        await one.healthy()


# ---------------------------------------------------------------- faults


def chat(server: FaultServer, **limits: float) -> PydanticAIModel:
    client = CLIENTS["openai-chat"](f"{server.url}/v1", "gpt-5")
    return PydanticAIModel(client, settings={"max_retries": 0}, **limits)


FAULTS: dict[str, tuple[Fault, Ended, bool]] = {
    "pass": (Pass(text="ok"), Ended.DONE, False),
    "connection-refused": (ConnectionRefused(), Ended.ERROR, True),
    "timeout-before-first-byte": (TimeoutBeforeFirstByte(milliseconds=9000), Ended.ERROR, True),
    "stream-cut": (StreamCut(after_bytes=120), Ended.ERROR, True),
    "http-error 500": (HttpError(status=500), Ended.ERROR, True),
    "http-error 429": (HttpError(status=429), Ended.ERROR, True),
    "http-error 401": (HttpError(status=401), Ended.ERROR, False),
    "bad-json": (BadJson(), Ended.ERROR, True),
    "slow": (Slow(tokens_per_second=200, text="ok and so on"), Ended.DONE, False),
    "usage-missing": (UsageMissing(text="ok"), Ended.DONE, False),
}


@pytest.mark.guarantee("G-HOST-61")
@pytest.mark.parametrize("kind", FAULTS)
@in_loop
async def test_whatever_the_provider_does_the_turn_rests_and_the_next_message_is_answered(
    database_url: str, kind: str
) -> None:
    fault, ended, retryable = FAULTS[kind]
    async with scene(database_url) as one:
        await one.say(SECRET)
        with FaultServer(FaultPlan(steps=[fault, Pass(text="Here I am.")])) as server:
            hasty = (
                {"first_event_timeout": 0.2} if isinstance(fault, TimeoutBeforeFirstByte) else {}
            )
            report = await one.host(model=chat(server, **hasty)).run_turn(one.thread_id)
            assert (report.ended, await one.turn_state()) == (ended, "idle")
            if ended is Ended.ERROR:
                (error,) = await one.of("turn-error")
                assert (error.code, error.retryable) == ("model_failed", retryable)
                assert "4711" not in error.message
                assert len(error.message.splitlines()) == 1
            await one.say("Are you there?")
            host = one.host(model=chat(server))
            assert (await host.run_turn(one.thread_id)).ended is Ended.DONE
            (*_, last) = server.requests
            assert last.json()["messages"][-1]["content"] == "Are you there?"
        assert (await one.of("text-delta"))[-1].text == "Here I am."
        await one.healthy()


@pytest.mark.parametrize("name", ["openai:gpt-5", "anthropic:claude-sonnet-5", "groq:gpt-oss"])
def test_a_model_without_its_key_says_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    provider = name.partition(":")[0].upper()
    monkeypatch.delenv(f"{provider}_API_KEY", raising=False)
    with pytest.raises(Exception, match=f"{provider}_API_KEY") as raised:
        PydanticAIModel(name)
    assert len(str(raised.value).splitlines()) == 1
