"""The module's facts are true, and a platform's roles and database grants can be checked."""

import pytest
import sqlalchemy as sa

from engine_assistant import (
    AUDIT,
    MANIFEST,
    OPERATIONS,
    RUN,
    USE,
    Assistant,
    Caller,
    Holder,
    Role,
    ValidationFailed,
    check_grants,
    migrate,
)
from engine_assistant.store.tables import METADATA
from engine_assistant.version import __version__
from tests.rig.roles import acting_as_role


@pytest.mark.guarantee("G-FACTS-01")
def test_the_manifest_says_what_is_true() -> None:
    assert MANIFEST.version == __version__
    assert MANIFEST.schema_revision == migrate.head()
    assert {fact.name for fact in MANIFEST.operations} == set(OPERATIONS)
    assert {fact.name for fact in MANIFEST.tables} == set(METADATA.tables)
    assert {fact.key: fact.holder for fact in MANIFEST.permissions} == {
        USE: Holder.PERSON,
        AUDIT: Holder.PERSON,
        RUN: Holder.SYSTEM,
    }
    for fact in MANIFEST.tables:
        columns = METADATA.tables[fact.name].c
        assert all("." in step or step in columns for step in fact.subject_path)


@pytest.mark.guarantee("G-FACTS-02")
@pytest.mark.parametrize(
    ("holder", "permissions"),
    [
        (Holder.PERSON, {USE, RUN}),
        (Holder.PERSON, {RUN}),
        (Holder.PERSON, {AUDIT}),
        (Holder.SYSTEM, {"assistant:everything"}),
    ],
)
def test_a_role_that_gives_too_much_is_refused(holder: Holder, permissions: set[str]) -> None:
    good = Role(name="member", holder=Holder.PERSON, permissions=frozenset({USE}))
    bad = Role(name="tester", holder=holder, permissions=frozenset(permissions))
    with pytest.raises(ValidationFailed, match="tester"):
        check_grants([good, bad])


@pytest.mark.guarantee("G-FACTS-02")
def test_good_roles_pass() -> None:
    check_grants(
        [
            Role(name="member", holder=Holder.PERSON, permissions=frozenset({USE, "other:key"})),
            Role(name="auditor", holder=Holder.PERSON, permissions=frozenset({USE, AUDIT})),
            Role(name="host", holder=Holder.SYSTEM, permissions=frozenset({RUN})),
        ]
    )


@pytest.mark.guarantee("G-FACTS-03")
def test_the_application_role_cannot_rewrite_the_record(postgres_url: str) -> None:
    with acting_as_role(postgres_url, "application") as as_application:
        assistant = Assistant(as_application)
        me = assistant.acting_as(Caller(tenant="t", principal="p", permissions={USE}))
        robot = assistant.acting_as(
            Caller(tenant="t", principal="r", permissions={RUN}, system=True)
        )
        thread = me.create_thread().id
        me.send_message(thread_id=thread, text="hello")
        lease = robot.acquire_run(thread_id=thread, run_id="run")
        robot.append_events(
            thread_id=thread,
            run_id="run",
            fence=lease.fence,
            events=[
                {"type": "tool-input", "call_id": "c", "tool": "t", "input": {}, "step": "s"},
                {"type": "text-delta", "text": "hi"},
            ],
        )
        robot.request_approval(
            thread_id=thread,
            run_id="run",
            fence=lease.fence,
            call_id="c",
            operation="o",
            version="v",
            expires_in=60,
        )
        for state in ("private", "and other"):
            robot.put_context(thread_id=thread, run_id="run", fence=lease.fence, state=state)
        robot.register_file(
            thread_id=thread, filename="f", content_type="c", size=1, sha256="0" * 64
        )
        assert assistant.drain_outbox(lambda _: None).handed_out == 3
        me.close_thread(thread_id=thread)
        for forbidden in (
            "UPDATE assistant_events SET body = '{}'",
            "DELETE FROM assistant_events",
            "DELETE FROM assistant_threads",
            "DELETE FROM assistant_approvals",
            "TRUNCATE assistant_events",
        ):
            with (
                pytest.raises(sa.exc.ProgrammingError, match="permission denied"),
                as_application.begin() as connection,
            ):
                connection.exec_driver_sql(forbidden)
