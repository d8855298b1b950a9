"""Three calls of one answer, each with a fate of its own, told to each family of providers."""

import pytest

from engine_assistant import AsyncAssistant
from engine_assistant.host import Ask, Ended, PreparedCall, ToolRegistry
from engine_assistant.host.turns import AssistantHost
from engine_assistant.model.views import Thread
from engine_assistant.testing.clock import Clock
from engine_assistant.testing.databases import awaited
from engine_assistant.testing.recorded import RecordedServer
from tests.host.assistants import ROBOT, in_loop, refunding, scene
from tests.host.providers import CLIENTS, PydanticAIModel
from tests.host.wires import SIGNED, THOUGHT, WIRES

# Recorded traffic and its clients know models that are old by now.
pytestmark = pytest.mark.filterwarnings("ignore:The model .* is deprecated:DeprecationWarning")

MINUTE = 60.0


def each(call: PreparedCall, thread: Thread) -> Ask:
    """Give people a minute for the third, and longer for the others."""
    return Ask(expires_in=MINUTE if call.input["order"] == 3 else 10 * MINUTE)


@pytest.mark.guarantee("G-HOST-47", "G-HOST-49", "G-HOST-57")
@pytest.mark.parametrize("family", WIRES)
@in_loop
async def test_a_provider_takes_what_became_of_its_calls_with_what_it_wrote_for_itself(
    database_url: str, family: str
) -> None:
    """One host asks, another with an engine and a client of its own goes on; then a new turn."""
    wire, clock, done = WIRES[family], Clock(), []

    def host(assistant: AsyncAssistant, server: RecordedServer) -> AssistantHost:
        client = CLIENTS[wire.client](server.url + wire.base, wire.model)
        return AssistantHost(
            assistant=assistant,
            caller=ROBOT,
            model=PydanticAIModel(client, settings={"max_retries": 0}),
            tools=ToolRegistry([refunding(done)]),
            approvals=each,
        )

    answers = [wire.calls, wire.says("One of three."), wire.says("Not at all.")]
    other = AsyncAssistant.from_url(awaited(database_url), clock=clock)
    try:
        async with scene(database_url, clock=clock) as one:
            with RecordedServer([wire.exchange(events) for events in answers]) as server:
                await one.say()
                asks = await host(one.assistant, server).run_turn(one.thread_id)
                assert asks.ended is Ended.AWAITING_APPROVAL
                cards = {card.input["order"]: card for card in await one.cards()}
                await one.decide(cards[2], approved=False, reason="Not this one.")
                clock.forward(MINUTE)
                await one.decide(cards[1], approved=True)
                goes_on = await host(other, server).run_turn(one.thread_id)
                assert (goes_on.ended, done) == (Ended.DONE, [{"order": 1, "note": ""}])
                await one.say("Thank you")
                assert (await host(other, server).run_turn(one.thread_id)).ended is Ended.DONE
            _, second, third = server.requests
            for request, is_open in ((second, True), (third, False)):
                refunded, denied, expired = wire.read(request.json(), is_open)
                assert "refunded" in refunded
                assert "denied" in denied
                assert "Not this one." in denied
                assert "expired" in expired
            log = await one.me.read_events_json(thread_id=one.thread_id, limit=1000)
            assert SIGNED.encode() not in log
            assert THOUGHT.encode() not in log
            await one.healthy()
    finally:
        await other.engine.dispose()
