"""A turn that kills whoever runs it is not run for ever."""

import pytest

from engine_assistant import Conflict
from engine_assistant.host import Ended, RunsLost
from engine_assistant.testing.replay import answer
from tests.host.assistants import Scene, in_loop, scene, until


async def _fall_silent(one: Scene, times: int, first: int = 0) -> None:
    """Let runs take the turn, one after the other, and say nothing more."""
    for n in range(first, first + times):

        async def taken(run_id: str = f"silent-{n}") -> bool:
            try:
                await one.bot.acquire_run(thread_id=one.thread_id, run_id=run_id, stale_after=0.01)
            except Conflict:
                return False
            return True

        await until(taken)
    await until(lambda: _is_runnable(one))


async def _is_runnable(one: Scene) -> bool:
    return bool(await one.assistant.list_runnable())


@pytest.mark.guarantee("G-HOST-67")
@in_loop
async def test_a_turn_whose_runs_fall_silent_again_and_again_is_ended(database_url: str) -> None:
    async with scene(database_url) as one:
        await one.say()
        await _fall_silent(one, 3)
        report = await one.host(answer("never asked"), max_lost_runs=3).run_turn(one.thread_id)
        assert report.ended is Ended.ERROR
        assert isinstance(report.error, RunsLost)
        assert report.error.facts == {"runs": 3}
        (error,) = await one.of("turn-error")
        assert (error.code, error.retryable) == ("runs_lost", False)
        assert one.replays[0].count("model") == 0
        await one.say("Hello again")
        assert (await one.host(answer("Hello.")).run_turn(one.thread_id)).ended is Ended.DONE


@pytest.mark.guarantee("G-HOST-67")
@in_loop
async def test_the_count_begins_anew_after_a_run_that_gave_its_lease_up(database_url: str) -> None:
    async with scene(database_url) as one:
        await one.say()
        await _fall_silent(one, 2)
        lease = await one.bot.acquire_run(thread_id=one.thread_id, run_id="well")
        await one.bot.release_run(thread_id=one.thread_id, run_id="well", fence=lease.fence)
        await _fall_silent(one, 2, first=2)
        host = one.host(answer("Here I am."), max_lost_runs=3)
        assert (await host.run_turn(one.thread_id)).ended is Ended.DONE


@pytest.mark.guarantee("G-HOST-67")
@in_loop
async def test_the_runs_of_the_turn_before_do_not_count(database_url: str) -> None:
    async with scene(database_url) as one:
        await one.say()
        await _fall_silent(one, 2)
        await one.bot.abandon_turn(thread_id=one.thread_id, reason="enough")
        await one.say("Hello again")
        await _fall_silent(one, 1, first=2)
        host = one.host(answer("Here I am."), max_lost_runs=2)
        assert (await host.run_turn(one.thread_id)).ended is Ended.DONE
