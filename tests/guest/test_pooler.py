"""PgBouncer in transaction mode: `?pooler=transaction` works, and without it the error names it."""

import pytest
import sqlalchemy as sa

from engine_assistant import Assistant, Internal, make_engine
from tests.rig.guest import ALICE, HELLO, ROBOT, WALKED, assert_nothing_is_held, opened, types, walk
from tests.rig.pgbouncer import POOL_SIZE
from tests.rig.races import Barrier, Worker

SIDES = 3 * POOL_SIZE


def _through(url: str, **query: str) -> str:
    return sa.make_url(url).update_query_dict(query).render_as_string(hide_password=False)


@pytest.mark.guarantee("G-GUEST-57")
def test_many_hosts_share_few_connections_through_the_pooler(
    pgbouncer_url: str, postgres_url: str
) -> None:
    url = _through(pgbouncer_url, pooler="transaction")
    start = Barrier(SIDES)

    def host() -> list[list[str]]:
        # An engine each, as processes have: more clients than the pooler has server connections.
        engine = make_engine(url)
        assistant = Assistant(engine, retry_for=60)
        me, bot = assistant.acting_as(ALICE), assistant.acting_as(ROBOT)
        start.wait()
        try:
            # psycopg prepares what it has seen five times.
            return [types(me, walk(me, bot)) for _ in range(7)]
        finally:
            engine.dispose()

    workers = [Worker(host) for _ in range(SIDES)]
    for worker in workers:
        assert worker.join(240) == [WALKED] * 7
    assert_nothing_is_held(postgres_url)


@pytest.mark.guarantee("G-GUEST-57")
def test_writers_of_one_thread_keep_its_numbers_through_the_pooler(pgbouncer_url: str) -> None:
    url = _through(pgbouncer_url, pooler="transaction")
    setup = Assistant.from_url(url)
    thread, fence = opened(setup)
    start = Barrier(SIDES)

    def writer() -> None:
        engine = make_engine(url)
        bot = Assistant(engine, retry_for=60).acting_as(ROBOT)
        start.wait()
        try:
            for _ in range(20):
                bot.append_events(thread_id=thread, run_id="r1", fence=fence, events=[HELLO, HELLO])
        finally:
            engine.dispose()

    workers = [Worker(writer) for _ in range(SIDES)]
    for worker in workers:
        worker.join(240)
    assert len(types(setup.acting_as(ALICE), thread)) == 2 + SIDES * 40
    setup.engine.dispose()


@pytest.mark.guarantee("G-GUEST-57")
def test_a_hosts_engine_with_the_connect_argument_works_too(pgbouncer_url: str) -> None:
    engine = sa.create_engine(pgbouncer_url, connect_args={"prepare_threshold": None})
    assistant = Assistant(engine)
    with engine.begin() as connection:
        thread = walk(assistant.bind(connection, ALICE), assistant.bind(connection, ROBOT))
    with assistant.session(ALICE) as ops:
        assert types(ops, thread) == WALKED
    engine.dispose()


@pytest.mark.guarantee("G-GUEST-58")
def test_a_statement_that_the_pooler_lost_is_told_with_its_remedy(pgbouncer_url: str) -> None:
    # What happens to an engine that knows nothing of the pooler: its statements are prepared on
    # one server connection and asked for on another.
    lost: list[Internal] = []
    engine = make_engine(pgbouncer_url)
    assistant = Assistant(engine)
    thread, fence = opened(assistant)
    start = Barrier(SIDES)

    def host() -> None:
        own = make_engine(pgbouncer_url)
        bot = Assistant(own, retry_for=60).acting_as(ROBOT)
        start.wait()
        try:
            for _ in range(40):
                bot.append_events(thread_id=thread, run_id="r1", fence=fence, events=[HELLO])
        except Internal as error:
            lost.append(error)
        finally:
            own.dispose()

    workers = [Worker(host) for _ in range(SIDES)]
    for worker in workers:
        worker.join(240)
    assert lost
    for error in lost:
        assert "prepare_threshold" in error.message
        assert "?pooler=transaction" in error.message
        assert error.facts["sqlstate"] in {"26000", "42P05"}
    engine.dispose()
