"""Who may ask for what: the permission first, before the lock."""

from collections.abc import Callable

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
    PermissionDenied,
    Raced,
    ValidationFailed,
    make_engine,
)
from tests.rig.stage import (
    ALICE,
    AUDITOR,
    BOB,
    PERSON_OPERATIONS,
    READING_OPERATIONS,
    ROBOT,
    RUN_OPERATIONS,
    Play,
    Stage,
    dump,
)

NAMES = sorted(OPERATIONS)


def _alice(permissions: object, *, system: bool = False) -> Caller:
    return Caller("acme", "usr_alice", permissions, system=system)


def _keys(name: str) -> set[str]:
    if name in PERSON_OPERATIONS:
        return {USE}
    return {RUN} if name in RUN_OPERATIONS else {USE, RUN}


def test_every_operation_is_on_one_side() -> None:
    assert set(OPERATIONS) == PERSON_OPERATIONS | READING_OPERATIONS | RUN_OPERATIONS
    for name, operation in OPERATIONS.items():
        assert set(operation.permissions) == _keys(name)


@pytest.mark.guarantee("G-PERM-01")
@pytest.mark.parametrize("name", NAMES)
def test_without_its_permission_no_operation_does_anything(play: Play, name: str) -> None:
    before = dump(play.stage.engine)
    held = {USE, RUN, AUDIT} - _keys(name)
    statements: list[str] = []
    sa.event.listen(play.stage.engine, "before_cursor_execute", lambda *a: statements.append(a[2]))
    for permissions in (set(), held, {"assistant:*", "use", ""}, frozenset(), [], lambda _: False):
        caller = Caller("acme", play.caller(name).principal, permissions, system=True)
        with pytest.raises(PermissionDenied) as refusal:
            play.stage.assistant.acting_as(caller).call(name, play.right(name))
        assert set(str(refusal.value.facts["needs"]).split(" or ")) == _keys(name)
    assert statements == []
    assert dump(play.stage.engine) == before


@pytest.mark.guarantee("G-PERM-02")
@pytest.mark.parametrize("name", sorted(RUN_OPERATIONS))
def test_no_person_ever_writes_the_assistants_side(play: Play, name: str) -> None:
    for keys in ({RUN}, [USE, RUN], frozenset({AUDIT, RUN})):
        with pytest.raises(ValidationFailed):
            _alice(keys)
    before = dump(play.stage.engine)
    everything = _alice(lambda _: True)
    with pytest.raises(PermissionDenied):
        play.stage.assistant.acting_as(everything).call(name, play.right(name))
    assert dump(play.stage.engine) == before


@pytest.mark.guarantee("G-PERM-03")
@pytest.mark.parametrize("name", NAMES)
def test_audit_alone_opens_nothing(play: Play, name: str) -> None:
    before = dump(play.stage.engine)
    with pytest.raises(PermissionDenied):
        play.stage.assistant.acting_as(_alice({AUDIT})).call(name, play.right(name))
    assert dump(play.stage.engine) == before


@pytest.mark.guarantee("G-PERM-04")
@pytest.mark.parametrize("name", sorted(PERSON_OPERATIONS - {"assistant/create-thread"}))
def test_audit_beside_use_reads_everything_and_writes_nothing(play: Play, name: str) -> None:
    play.call("assistant/compact", play.right("assistant/compact"))
    before = dump(play.stage.engine)
    auditor = play.stage.assistant.acting_as(AUDITOR)
    with pytest.raises(NotFound):
        auditor.call(name, play.right(name))
    for reading in READING_OPERATIONS:
        answer = auditor.call(reading, play.right(reading))
        assert answer.get("items", answer)
    assert dump(play.stage.engine) == before


@pytest.mark.guarantee("G-PERM-05")
@pytest.mark.parametrize("caller", [BOB, _alice({USE}), ROBOT], ids=["bob", "alice", "robot"])
def test_another_persons_threads_are_listed_for_audit_and_run_only(
    play: Play, caller: Caller
) -> None:
    ops = play.stage.assistant.acting_as(caller)
    if caller is BOB:
        with pytest.raises(PermissionDenied):
            ops.list_threads(subject="usr_alice")
    else:
        listed = {thread.id for thread in ops.list_threads(subject="usr_alice").items}
        assert {play.thread_id, play.idle} <= listed
    assert play.stage.assistant.acting_as(BOB).list_threads().items == ()


@pytest.mark.guarantee("G-PERM-06")
@pytest.mark.parametrize("approved", [True, False])
def test_a_system_principal_never_decides(play: Play, *, approved: bool) -> None:
    stage = play.stage
    run = stage.open_turn("r2")
    stage.propose(run, "c")
    digest = stage.ask(run, "c", approvers=["sys_robot", "usr_alice"])["sys_robot"]
    before = dump(stage.engine)
    robot = Caller("acme", "sys_robot", {USE, RUN, AUDIT}, system=True)
    answer = {
        "thread_id": run["thread_id"],
        "call_id": "c",
        "approved": approved,
        "digest": digest,
        "version": "v1",
    }
    with pytest.raises(PermissionDenied):
        stage.assistant.acting_as(robot).resolve_approval(**answer)
    with stage.engine.begin() as connection:
        bound = stage.assistant.bind(connection, robot)
        operation = OPERATIONS["assistant/resolve-approval"]
        with pytest.raises(PermissionDenied):
            operation.within(bound.context, operation.parse(answer))
    assert dump(stage.engine) == before


@pytest.mark.guarantee("G-PERM-07")
def test_a_function_is_asked_key_by_key_and_only_true_is_yes(play: Play) -> None:
    asked: list[str] = []

    def only_use(key: str) -> bool:
        asked.append(key)
        return key == USE

    ops = play.stage.assistant.acting_as(_alice(only_use))
    ops.get_thread(thread_id=play.thread_id)
    assert asked == [USE]
    with pytest.raises(PermissionDenied):
        ops.list_threads(subject="usr_bob")
    assert AUDIT in asked
    for answer in (1, "yes", [True], object()):
        truthy = play.stage.assistant.acting_as(_alice(lambda _, answer=answer: answer))
        with pytest.raises(PermissionDenied):
            truthy.get_thread(thread_id=play.thread_id)


@pytest.mark.guarantee("G-PERM-07")
def test_an_async_function_grants_nothing(play: Play) -> None:
    async def yes(_: str) -> bool:
        return True

    ops = play.stage.assistant.acting_as(_alice(yes))
    with pytest.warns(RuntimeWarning, match="never awaited"), pytest.raises(PermissionDenied):
        ops.get_thread(thread_id=play.thread_id)


@pytest.mark.guarantee("G-PERM-08")
def test_the_permission_is_asked_before_the_lock(
    stage: Stage, database_url: str, engine: sa.Engine
) -> None:
    """While another transaction holds the lock, a refused caller is refused at once."""
    run = stage.open_turn()
    other = make_engine(database_url)
    held_by_now: list[bool] = []

    def knows_the_lock(key: str) -> bool:
        # Somebody else can lock the thread at this moment: the one who is asked for has not.
        me = Assistant(other, retry_for=0).acting_as(ALICE)
        me.authorize_file_upload(thread_id=str(run["thread_id"]))
        held_by_now.append(True)
        return key == USE

    ops = stage.assistant.acting_as(_alice(knows_the_lock))
    ops.interrupt_turn(thread_id=str(run["thread_id"]))
    assert held_by_now == [True]
    with engine.connect() as connection, connection.begin():
        stage.assistant.bind(connection, ALICE).interrupt_turn(thread_id=str(run["thread_id"]))
        for name in ("close_thread", "interrupt_turn", "authorize_file_upload"):
            denied = Assistant(other, retry_for=0).acting_as(_alice(set()))
            with pytest.raises(PermissionDenied):
                getattr(denied, name)(thread_id=run["thread_id"])
    other.dispose()


@pytest.mark.guarantee("G-PERM-08")
def test_on_sqlite_only_the_admitted_wait_for_the_file(sqlite_url: str) -> None:
    holder, other = make_engine(sqlite_url), make_engine(f"{sqlite_url}?timeout=0")
    thread = Assistant(holder).acting_as(ALICE).create_thread()
    with holder.begin():
        rival = Assistant(other, retry_for=0)
        with pytest.raises(PermissionDenied):
            rival.acting_as(_alice(set())).close_thread(thread_id=thread.id)
        with pytest.raises(Raced):
            rival.acting_as(ALICE).close_thread(thread_id=thread.id)
    holder.dispose()
    other.dispose()


@pytest.mark.guarantee("G-PERM-09")
def test_locking_several_threads_asks_for_a_permission_too(play: Play) -> None:
    stage = play.stage
    ids = [play.thread_id, play.idle]

    def lock(caller: Caller, wanted: list[object]) -> Callable[[], object]:
        def attempt() -> object:
            with stage.assistant.session(caller) as ops:
                return [one.id for one in ops.lock_threads(wanted)]

        return attempt

    assert lock(ALICE, ids)() == sorted(ids)
    assert lock(ROBOT, ids)() == sorted(ids)
    with pytest.raises(PermissionDenied):
        lock(_alice(set()), ids)()
    for wanted in (["\0"], [7], [""], [None]):
        with pytest.raises(ValidationFailed):
            lock(ALICE, wanted)()
    for stranger in (BOB, AUDITOR, Caller("evil", "sys_robot", {RUN}, system=True)):
        with pytest.raises(NotFound):
            lock(stranger, ids)()


@pytest.mark.guarantee("G-PERM-10")
@pytest.mark.parametrize(
    "wrong",
    [
        {"tenant": ""},
        {"tenant": None},
        {"tenant": 7},
        {"principal": "p" * 129},
        {"principal": "é" * 65},
        {"principal": "\ud800"},
        {"channel": ""},
        {"channel": 7},
        {"permissions": None},
        {"permissions": USE},
        {"permissions": 7},
        {"system": "no"},
        {"system": 1},
        {"system": None},
    ],
    ids=str,
)
def test_a_caller_is_checked_when_it_is_made(wrong: dict[str, object]) -> None:
    given = {"tenant": "acme", "principal": "usr_alice", "permissions": {USE}, **wrong}
    with pytest.raises(ValidationFailed) as refusal:
        Caller(**given)
    assert refusal.value.facts["path"] == next(iter(wrong))
    assert refusal.value.__context__ is None
