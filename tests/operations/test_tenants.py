"""Another tenant's ids, in every operation: one answer, one sentence, nothing locked or learnt."""

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from engine_assistant import (
    AUDIT,
    OPERATIONS,
    RUN,
    USE,
    Assistant,
    Caller,
    NotFound,
    Raced,
    make_engine,
)
from tests.rig.remembered import play_on
from tests.rig.stage import (
    CAROL,
    PERSON_OPERATIONS,
    READING_OPERATIONS,
    RUN_OPERATIONS,
    TWIN,
    Play,
    Stage,
    Values,
    dump,
)

NAMED = sorted(
    set(OPERATIONS) - {"assistant/create-thread", "assistant/list-threads", "assistant/seed-thread"}
)


def _twin(name: str) -> Caller:
    return TWIN["run" if name in RUN_OPERATIONS else "owner"]


def _answer(assistant: Assistant, caller: Caller, name: str, values: Values) -> object:
    """Answer what a caller is told: the whole error, as it would go over a wire."""
    with pytest.raises(NotFound) as refusal:
        assistant.acting_as(caller).call(name, values)
    return refusal.value.to_dict()


@pytest.mark.guarantee("G-PERM-11", "G-PERM-12")
@pytest.mark.parametrize("name", NAMED)
def test_another_tenants_ids_are_not_found_in_every_operation(play: Play, name: str) -> None:
    before = dump(play.stage.engine)
    right, assistant = play.right(name), play.stage.assistant
    foreign = _answer(assistant, _twin(name), name, right)
    missing = _answer(assistant, _twin(name), name, {**right, "thread_id": "no-such-thread"})
    assert foreign == missing
    for state in ("waiting", "approved", "no-such-call"):
        if "call_id" in right:
            assert _answer(assistant, _twin(name), name, {**right, "call_id": state}) == missing
    everything = Caller("evil", "usr_alice", {USE, AUDIT, RUN}, system=True)
    if name not in ("assistant/resolve-approval", "assistant/resolve-unknown"):
        assert _answer(assistant, everything, name, right) == missing
    assert dump(play.stage.engine) == before


@pytest.mark.guarantee("G-PERM-11")
def test_lists_never_mix_tenants(play: Play) -> None:
    twin = play.stage.assistant.acting_as(TWIN["owner"])
    assert twin.list_threads(subject="usr_alice").items == ()
    assert twin.list_approvals(state=None).items == ()
    own = twin.create_thread(key="k-1")
    assert twin.list_threads().items == (own,)
    mine = play.stage.me.create_thread(key="k-1")
    assert mine.id != own.id
    assert own.id not in {one.id for one in play.stage.me.list_threads().items}


@pytest.mark.guarantee("G-PERM-12")
@pytest.mark.parametrize(
    "name", sorted((PERSON_OPERATIONS | READING_OPERATIONS) & set(NAMED) - {"assistant/get-call"})
)
def test_a_stranger_of_the_same_tenant_learns_as_little(play: Play, name: str) -> None:
    before = dump(play.stage.engine)
    right, assistant = play.right(name), play.stage.assistant
    missing = _answer(assistant, CAROL, name, {**right, "thread_id": "no-such-thread"})
    assert _answer(assistant, CAROL, name, right) == missing
    play.stage.me.close_thread(thread_id=play.thread_id)
    play.stage.me.close_thread(thread_id=play.idle)
    assert _answer(assistant, CAROL, name, right) == missing
    assert dump(play.stage.engine) != before


@pytest.fixture
def postgres_play(postgres_url: str) -> Iterator[Play]:
    engine = make_engine(postgres_url)
    yield play_on(Stage(engine))
    engine.dispose()


@pytest.mark.guarantee("G-PERM-13")
@pytest.mark.parametrize("name", NAMED)
def test_on_postgres_a_stranger_waits_for_nobodys_lock(postgres_play: Play, name: str) -> None:
    """A wait would end as `Raced` after a millisecond; a stranger hears `NotFound` instead."""
    play, url = postgres_play, postgres_play.stage.engine.url
    hasty = make_engine(url.update_query_dict({"options": "-c lock_timeout=1"}))
    strangers = [_twin(name)]
    if name in PERSON_OPERATIONS:
        strangers.append(CAROL)
    with play.stage.engine.begin() as holder:
        holder.execute(sa.text("SELECT 1 FROM assistant_threads FOR UPDATE"))
        rival = Assistant(hasty, retry_for=0)
        if not OPERATIONS[name].reads:
            with pytest.raises(Raced):
                rival.acting_as(play.caller(name)).call(name, play.right(name))
        for stranger in strangers:
            _answer(rival, stranger, name, play.right(name))
    hasty.dispose()
