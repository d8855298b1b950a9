"""A thread in another tenant keeps the one in which it began: its digests name it for ever."""

from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from engine_assistant import (
    USE,
    ApprovalBinding,
    Assistant,
    Caller,
    Conflict,
    ConflictReason,
    Operations,
    approval_digest,
)
from tests.rig.archives import archive_of, contents, keeper, value_of
from tests.rig.record import ASKED, INPUT, LEASE, LONG, TENANT, Record, output

HERE = "elsewhere"


@pytest.fixture
def record(engine: sa.Engine) -> Record:
    return Record(engine)


@pytest.fixture
def there(record: Record, tmp_path, migrated_file) -> Iterator[Assistant]:
    """Another database, and the same clock."""
    from engine_assistant.engines import make_engine
    from engine_assistant.testing.databases import sqlite_file

    engine = make_engine(sqlite_file(tmp_path / "there.db", migrated_file))
    yield Assistant(engine, clock=record.tick)
    engine.dispose()


def _moved(record: Record) -> str:
    """Move a thread into another tenant; one of its calls may have happened, and may be retried."""
    story = record.open("moved").say().take()
    call = {"type": "tool-input", "call_id": "c1", "tool": "refund", "step": "s1", "input": INPUT}
    story.write({**call, "repeatable": True}).ask("c1").answer("c1").claim("c1")
    record.wait(LEASE)
    story.take("run-2").rest()
    archive = archive_of(record.assistant, story.thread_id)
    assert record.assistant.import_thread(keeper(HERE), [archive]).created
    return story.thread_id


def _person(assistant: Assistant, tenant: str = HERE) -> Operations:
    caller = Caller(tenant=tenant, principal="usr_alice", permissions={USE})
    return assistant.acting_as(caller)


def _digest(tenant: str, thread_id: str, slot: object, *, call: str, expires_at: str) -> str:
    return approval_digest(
        ApprovalBinding(
            version="v1",
            approver="usr_alice",
            tenant=tenant,
            thread=thread_id,
            step="s1",
            call=call,
            operation="refunds/create",
            expires_at=expires_at,
            nonce=slot.nonce,
            input=INPUT,
        )
    )


@pytest.mark.guarantee("G-ARCH-22")
def test_what_was_approved_where_it_began_runs_again_only_there(
    record: Record, there: Assistant
) -> None:
    """Nor does an approval come home with its thread: it could have been used in between."""
    thread_id = _moved(record)
    archive = archive_of(record.assistant, thread_id)
    assert there.import_thread(keeper(TENANT), [archive]).created
    for assistant, tenant in ((record.assistant, HERE), (there, TENANT)):
        bot, me = assistant.acting_as(keeper(tenant)), _person(assistant, tenant)
        held = _take(bot, me, thread_id)
        with pytest.raises(Conflict) as refused:
            bot.retry_call(**held, call_id="c1", **ASKED, input=INPUT)
        assert refused.value.reason is ConflictReason.NOT_REPEATABLE
        assert me.get_call(thread_id=thread_id, call_id="c1").state == "unknown"
        me.resolve_unknown(thread_id=thread_id, call_id="c1", happened=False)
        assert list(assistant.doctor()) == []
    bot, me = record.assistant.acting_as(keeper(TENANT)), _person(record.assistant, TENANT)
    bot.retry_call(**_take(bot, me, thread_id), call_id="c1", **ASKED, input=INPUT)
    assert list(record.assistant.doctor()) == []


@pytest.mark.guarantee("G-ARCH-22", "G-RETRY-03")
def test_what_is_approved_here_runs_again_here(record: Record) -> None:
    thread_id = _moved(record)
    bot, me = record.assistant.acting_as(keeper(HERE)), _person(record.assistant)
    held = _take(bot, me, thread_id)
    call = {"type": "tool-input", "call_id": "c2", "tool": "refund", "step": "s1", "input": INPUT}
    bot.append_events(**held, events=[{**call, "repeatable": True}])
    (slot,) = bot.request_approval(**held, call_id="c2", **ASKED, expires_in=LONG).requests
    me.resolve_approval(
        thread_id=thread_id, call_id="c2", approved=True, digest=slot.digest, version="v1"
    )
    bot.claim_execution(**held, call_id="c2", **ASKED, input=INPUT)
    record.wait(LEASE)
    held = _take(bot, me, thread_id, "run-4", say=False)
    bot.retry_call(**held, call_id="c2", **ASKED, input=INPUT)
    assert list(record.assistant.doctor()) == []
    # Asked here or not is told by the numbers, so the doctor sees a claim that was not for here.
    with record.engine.begin() as connection:
        connection.execute(
            sa.text(
                "UPDATE assistant_threads SET imported_seq ="
                " (SELECT request_seq FROM assistant_tool_calls WHERE call_id = 'c2')"
                f" WHERE tenant_id = '{HERE}'"
            )
        )
    found = list(record.assistant.doctor(tenant=HERE))
    assert {finding.code.value for finding in found} == {"claim"}


def _take(
    bot: Operations, me: Operations, thread_id: str, run_id: str = "run-3", *, say: bool = True
) -> dict[str, Any]:
    """Take the lease, of a new turn or of the one that is open."""
    if say:
        me.send_message(thread_id=thread_id, text="Did it happen?")
    lease = bot.acquire_run(thread_id=thread_id, run_id=run_id, stale_after=LEASE)
    return {"thread_id": thread_id, "run_id": run_id, "fence": lease.fence}


@pytest.mark.guarantee("G-ARCH-04")
def test_what_is_asked_here_names_the_tenant_where_it_began(record: Record) -> None:
    thread_id = _moved(record)
    bot, me = record.assistant.acting_as(keeper(HERE)), _person(record.assistant)
    assert me.get_thread(thread_id=thread_id).origin_tenant == TENANT
    me.send_message(thread_id=thread_id, text="And order 8?")
    lease = bot.acquire_run(thread_id=thread_id, run_id="run-3", stale_after=LEASE)
    held = {"thread_id": thread_id, "run_id": "run-3", "fence": lease.fence}
    call = {"type": "tool-input", "call_id": "c2", "tool": "refund", "step": "s1", "input": INPUT}
    bot.append_events(**held, events=[call])
    request = bot.request_approval(**held, call_id="c2", **ASKED, expires_in=LONG)
    (slot,) = request.requests
    made = {
        tenant: _digest(tenant, thread_id, slot, call="c2", expires_at=request.expires_at)
        for tenant in (TENANT, HERE)
    }
    assert slot.digest == made[TENANT] != made[HERE]
    # A host that makes the request itself is held to the same.
    asked = me.read_events(thread_id=thread_id, last=1).events[0].model_dump()
    ready = {name: asked[name] for name in asked if name not in ("seq", "turn", "at")}
    mine = [{**asked["requests"][0], "digest": made[HERE]}]
    with pytest.raises(Conflict) as refused:
        bot.append_events(**held, events=[{**ready, "requests": mine}])
    assert refused.value.reason is ConflictReason.DIGEST_MISMATCH
    bot.append_events(**held, events=[ready])
    me.resolve_approval(
        thread_id=thread_id, call_id="c2", approved=True, digest=slot.digest, version="v1"
    )
    bot.claim_execution(**held, call_id="c2", **ASKED, input=INPUT)
    rest = {"type": "turn-finish", "reason": "done"}
    bot.append_events(**held, events=[output("c2"), rest])
    assert list(record.assistant.doctor()) == []


@pytest.mark.guarantee("G-ARCH-04")
def test_it_may_go_on_to_others_and_come_home(record: Record, there: Assistant) -> None:
    thread_id = _moved(record)
    _person(record.assistant).close_thread(thread_id=thread_id)
    archive = archive_of(record.assistant, thread_id, HERE)
    assert value_of(archive.splitlines()[0])["origin_tenant"] == TENANT
    assert HERE.encode() not in archive
    for tenant in ("a third", TENANT):
        assert there.import_thread(keeper(tenant), [archive]).created
        assert archive_of(there, thread_id, tenant) == archive
    origins = {row[0]: row[-3] for row in contents(there.engine)["assistant_threads"]}
    assert origins == {"a third": TENANT, TENANT: None}
    assert _person(there, TENANT).get_thread(thread_id=thread_id).origin_tenant is None
    assert list(there.doctor()) == []


@pytest.mark.guarantee("G-ARCH-04", "G-DOCTOR-04")
@pytest.mark.parametrize(
    ("harm", "codes"),
    [
        ("origin_tenant = 'someone'", {"digest"}),
        ("origin_tenant = NULL", {"digest"}),
        ("import_digest = NULL", {"thread-row"}),
        ("imported_seq = 1000", {"thread-row"}),
        ("imported_seq = -1", {"thread-row"}),
        ("import_digest = 'none'", {"thread-row"}),
        ("origin_tenant = tenant_id", {"thread-row", "digest"}),
    ],
)
def test_the_doctor_finds_an_origin_that_cannot_be(
    record: Record, harm: str, codes: set[str]
) -> None:
    thread_id = _moved(record)
    with record.engine.begin() as connection:
        connection.execute(
            sa.text(f"UPDATE assistant_threads SET {harm} WHERE tenant_id = '{HERE}'")
        )
    found = list(record.assistant.doctor(tenant=HERE, thread_id=thread_id))
    assert {finding.code.value for finding in found} == codes
