"""The race tools, in threads and in tasks."""

import asyncio
import math
from collections.abc import Callable

import pytest

from engine_assistant.testing.races import Barrier, Driver, Entry, Signal, Trace
from tests.rig.races import Worker

SOON = 0.01


# ---------------------------------------------------------------- barrier


@pytest.mark.guarantee("G-KIT-01")
def test_a_thread_stops_at_a_barrier_until_it_is_released() -> None:
    barrier, trace = Barrier(), Trace()

    def side() -> None:
        barrier.wait()
        trace.record("passed")

    workers = [Worker(side), Worker(side)]
    barrier.reached.wait()
    trace.record("released")
    barrier.release()
    for worker in workers:
        worker.join()
    trace.assert_exactly("released", "passed", "passed")


@pytest.mark.guarantee("G-KIT-01")
def test_a_task_stops_at_a_barrier_until_it_is_released() -> None:
    barrier, trace = Barrier(), Trace()

    async def side() -> None:
        await barrier
        trace.record("passed")

    async def race() -> None:
        tasks = [asyncio.create_task(side()) for _ in range(2)]
        await barrier.reached
        trace.record("released")
        barrier.release()
        await asyncio.gather(*tasks)

    asyncio.run(race())
    trace.assert_exactly("released", "passed", "passed")


@pytest.mark.guarantee("G-KIT-01")
def test_a_thread_and_a_task_meet_at_one_barrier() -> None:
    barrier = Barrier()

    async def race() -> None:
        worker = Worker(barrier.wait)
        await barrier.reached
        task = asyncio.ensure_future(asyncio.wait_for(barrier, 5))
        await asyncio.sleep(0)
        assert worker.running
        assert not task.done()
        barrier.release()
        await task
        await asyncio.to_thread(worker.join)

    asyncio.run(race())


@pytest.mark.guarantee("G-KIT-02")
def test_who_comes_after_the_release_passes_at_once() -> None:
    barrier = Barrier(SOON)
    barrier.release()
    assert not barrier.reached.is_set
    barrier.wait()
    assert barrier.reached.is_set

    async def later() -> None:
        await barrier
        await barrier.reached

    asyncio.run(later())
    barrier.wait()


@pytest.mark.guarantee("G-KIT-02")
def test_who_waits_in_vain_fails_and_the_barrier_still_works() -> None:
    barrier = Barrier(SOON)
    with pytest.raises(TimeoutError, match=r"nobody reached the barrier within 0\.01 s"):
        barrier.reached.wait()
    with pytest.raises(TimeoutError, match=r"nobody released the barrier within 0\.01 s"):
        barrier.wait()

    async def in_vain() -> None:
        with pytest.raises(TimeoutError, match="nobody released"):
            await barrier

    asyncio.run(in_vain())
    barrier.release()
    barrier.wait()


@pytest.mark.guarantee("G-KIT-02")
@pytest.mark.parametrize("bound", [0, -1, math.nan, math.inf])
@pytest.mark.parametrize("made", [Barrier, Driver])
def test_a_bound_that_bounds_nothing_is_refused(
    made: Callable[[float], object], bound: float
) -> None:
    with pytest.raises(ValueError, match="positive number of seconds"):
        made(bound)


def test_a_cancelled_task_takes_nobody_with_it() -> None:
    signal = Signal("it did not happen")

    async def wait() -> None:
        await signal

    async def race() -> None:
        gone, stays = asyncio.create_task(wait()), asyncio.create_task(wait())
        await asyncio.sleep(0)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        signal.set()
        await stays

    asyncio.run(race())


def test_a_loop_that_ended_does_not_hold_the_signal_up() -> None:
    signal = Signal("it did not happen", SOON)

    async def wait() -> None:
        with pytest.raises(TimeoutError):
            await signal

    asyncio.run(wait())
    signal.set()
    signal.wait()


# ---------------------------------------------------------------- trace


@pytest.mark.guarantee("G-KIT-03")
def test_a_trace_numbers_from_zero_and_hands_out_copies() -> None:
    trace = Trace()
    before = trace.entries
    assert [trace.record(name) for name in ("a", "b", "a")] == [0, 1, 2]
    assert before == ()
    assert trace.entries == (Entry(0, "a"), Entry(1, "b"), Entry(2, "a"))
    assert (trace.count("a"), trace.count("c")) == (2, 0)


@pytest.mark.guarantee("G-KIT-03")
def test_many_threads_share_one_numbering() -> None:
    trace, start = Trace(), Barrier()

    def side() -> list[int]:
        start.wait()
        return [trace.record("x") for _ in range(200)]

    workers = [Worker(side) for _ in range(4)]
    start.release()
    numbers = [n for worker in workers for n in worker.join()]
    assert sorted(numbers) == list(range(800))
    assert [entry.n for entry in trace.entries] == list(range(800))


@pytest.mark.guarantee("G-KIT-03")
def test_order_goes_by_the_first_time() -> None:
    trace = Trace()
    for name in ("a", "b", "a", "c"):
        trace.record(name)
    trace.assert_order("a", "b", "c")
    trace.assert_order("a", "c")
    with pytest.raises(
        AssertionError, match=r"expected the order \['b', 'a'\], received \['a', 'b"
    ):
        trace.assert_order("b", "a")
    with pytest.raises(AssertionError, match=r"\['a', 'd'\], received \['a'\]"):
        trace.assert_order("a", "d")


@pytest.mark.guarantee("G-KIT-03")
def test_exactly_means_nothing_else() -> None:
    trace = Trace()
    trace.record("a")
    trace.record("b")
    trace.assert_exactly("a", "b")
    for wrong in (("a",), ("b", "a"), ("a", "b", "b"), ()):
        with pytest.raises(AssertionError, match=r"received \['a', 'b'\]"):
            trace.assert_exactly(*wrong)


# ---------------------------------------------------------------- driver


@pytest.mark.guarantee("G-KIT-04")
def test_a_driver_has_one_barrier_for_each_name_and_one_trace() -> None:
    driver = Driver()
    assert driver.barrier("a") is driver.barrier("a")
    assert driver.barrier("a") is not driver.barrier("b")
    driver.release_all()
    driver.barrier("a").wait()
    driver.barrier("b").wait()


@pytest.mark.guarantee("G-KIT-04")
def test_a_race_that_fails_leaves_nobody_waiting() -> None:
    def race() -> Worker[None]:
        with Driver() as driver:
            worker = Worker(driver.barrier("here").wait)
            workers.append(worker)
            driver.barrier("here").reached.wait()
            raise LookupError("the test is wrong")

    workers: list[Worker[None]] = []
    with pytest.raises(LookupError):
        race()
    workers[0].join()
