"""Every operation by name: plain data in, plain data out, with its schemas and its permission."""

import json
from pathlib import Path

import pytest

import engine_assistant
from engine_assistant import OPERATIONS, AssistantError, Operations, PermissionDenied
from tests.rig.stage import Play, dump

NAMES = sorted(OPERATIONS)


@pytest.mark.guarantee("G-OPS-44")
@pytest.mark.parametrize("name", NAMES)
def test_an_answer_by_name_is_plain_json(play: Play, name: str) -> None:
    answer = play.call(name, play.right(name))
    assert type(answer) is dict
    assert json.loads(json.dumps(answer, allow_nan=False)) == answer
    schema = OPERATIONS[name].output_schema
    assert set(answer) == set(schema["properties"])


@pytest.mark.guarantee("G-OPS-44")
@pytest.mark.parametrize("name", NAMES)
def test_an_operation_by_name_is_the_method_of_that_name(play: Play, name: str) -> None:
    """The same name, the same arguments, the same answer; only release_run is shorter."""
    method = name.removeprefix("assistant/").replace("-", "_")
    assert callable(getattr(Operations, method))
    if play.caller(name).system or name in ("assistant/create-thread", "assistant/send-message"):
        return
    operation, values = OPERATIONS[name], play.right(name)
    if not operation.reads:
        return
    by_method = getattr(play.operations(name), method)(**values)
    assert operation.plain(by_method) == play.call(name, values)


@pytest.mark.guarantee("G-OPS-45")
@pytest.mark.parametrize("name", NAMES)
def test_schemas_say_what_is_asked_and_what_is_needed(play: Play, name: str) -> None:
    operation = OPERATIONS[name]
    schema = json.loads(json.dumps(operation.input_schema))
    assert schema["additionalProperties"] is False
    right = play.right(name)
    assert set(right) <= set(schema["properties"])
    assert set(schema.get("required", ())) <= set(right)
    assert json.dumps(operation.output_schema)
    assert operation.name == name
    assert set(operation.permissions) <= {
        engine_assistant.USE,
        engine_assistant.RUN,
    }


@pytest.mark.guarantee("G-OPS-45")
def test_errors_are_plain_json_as_well(play: Play) -> None:
    """For each kind of refusal a host gets a code, a sentence, facts and whether to try again."""
    wrong = [
        ("assistant/get-thread", {"thread_id": ""}, "validation_failed", "never"),
        ("assistant/get-thread", {"thread_id": "none"}, "not_found", "never"),
        ("assistant/beat-run", {**play.run, "fence": 9}, "conflict", "never"),
        ("assistant/claim-execution", None, "conflict", "after_change"),
    ]
    for name, values, code, retry in wrong:
        right = {**play.right("assistant/claim-execution"), "call_id": "waiting"}
        with pytest.raises(AssistantError) as refusal:
            play.call(name, values or right)
        plain = refusal.value.to_dict()
        assert json.loads(json.dumps(plain)) == plain
        assert (plain["code"], plain["retry"]) == (code, retry)
        assert ("reason" in plain) is (code == "conflict")
        assert plain["message"].endswith(".")


@pytest.mark.guarantee("G-OPS-46")
def test_within_asks_for_no_permission_and_a_call_does(play: Play) -> None:
    nobody = engine_assistant.Caller("acme", "sys_robot", (), system=True)
    before = dump(play.stage.engine)
    with play.stage.engine.connect() as connection, connection.begin() as transaction:
        ctx = play.stage.assistant.bind(connection, nobody).context
        for name in sorted(set(NAMES) - set(OWNED)):
            operation = OPERATIONS[name]
            command = operation.parse(play.right(name))
            with pytest.raises(PermissionDenied):
                operation(ctx, command)
            savepoint = connection.begin_nested()
            assert operation.within(ctx, command) is not None
            savepoint.rollback()
        transaction.rollback()
    assert dump(play.stage.engine) == before


OWNED = [
    "assistant/authorize-file-upload",
    "assistant/cancel-input",
    "assistant/close-thread",
    "assistant/edit-input",
    "assistant/interrupt-turn",
    "assistant/resolve-approval",
    "assistant/resolve-unknown",
    "assistant/send-message",
]


@pytest.mark.guarantee("G-OPS-44")
def test_the_public_names_are_there_and_typed() -> None:
    for name in engine_assistant.__all__:
        assert getattr(engine_assistant, name) is not None
    assert (Path(engine_assistant.__file__).parent / "py.typed").exists()
