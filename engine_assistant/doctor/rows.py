"""Rows beside the log, each compared with what the events say it must hold."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Final

from engine_assistant.doctor.derived import Call, Derived
from engine_assistant.doctor.findings import Code
from engine_assistant.doctor.reading import Columns
from engine_assistant.model import codec
from engine_assistant.model.codec import JsonRefused
from engine_assistant.model.machines import CallState
from engine_assistant.model.parts import FilePart

__all__ = ["check_approval", "check_call", "check_files", "differing", "missing"]

_NOT_COMPARED: Final = {"call_id", "says", "state", "result", "repeatable"}


def differing(row: Columns, expected: Mapping[str, object]) -> str:
    """Return the names of the columns that do not hold what they must, or nothing."""
    return ", ".join(name for name, value in expected.items() if row[name] != value)


def check_call(derived: Derived, row: Columns, *, closed: bool) -> None:
    """Compare a call's row with its events."""
    notes, where = derived.notes, f"call {row['call_id']}"
    call = derived.calls.pop(str(row["call_id"]), None)
    if call is None:
        notes.add(Code.CALL_STRAY, where, "It has a row and was never proposed.")
        return
    if row["state"] != call.state:
        notes.add(Code.CALL_STATE, where, f"Its row is not {call.state.value}, as its events are.")
    late = _check_result(derived, call, row, closed=closed)
    expected = {name: value for name, value in asdict(call).items() if name not in _NOT_COMPARED}
    if call.request_digest is None and call.claimed_fence is None:
        # No event says under which fence an ungated call was proposed; only a retry does.
        _check_ungated_fence(derived, call, row)
        del expected["claimed_fence"]
    if late:
        del expected["updated_at"]
    names = differing(row, expected)
    if names:
        notes.add(Code.CALL_ROW, where, f"Its row differs from its events in: {names}.")


def _check_ungated_fence(derived: Derived, call: Call, row: Columns) -> None:
    """Keep the fence under which an ungated call ran, to be seen among the others."""
    fence = row["claimed_fence"]
    if isinstance(fence, int):
        derived.claims.append((call.input_seq, fence, "", call.turn))
    else:
        derived.notes.add(Code.CALL_ROW, call.where, "It runs under no fence.")


def _check_result(derived: Derived, call: Call, row: Columns, *, closed: bool) -> bool:
    """Check that a call has the one result that it must have; return whether it came late."""
    text = row["result"]
    if text is None:
        if call.result is not None:
            derived.notes.add(Code.RESULT, call.where, "It ended with a result; its row has none.")
        return False
    if call.result is not None:
        digest = hashlib.sha256(text.encode()).hexdigest() if isinstance(text, str) else None
        if digest != call.result:
            derived.notes.add(Code.RESULT, call.where, "Its row has another result than its event.")
        return False
    # On a closed thread nothing is appended: a late result is kept by the row alone.
    if closed and call.state is CallState.UNKNOWN and row["claimed_fence"] is not None:
        if not _is_result(text):
            derived.notes.add(Code.RESULT, call.where, "Its late result cannot be read.")
        return True
    derived.notes.add(Code.RESULT, call.where, "Its row has a result that no event gave it.")
    return False


def _is_result(text: object) -> bool:
    try:
        result = codec.loads(text) if isinstance(text, str) else None
    except JsonRefused:
        return False
    if not isinstance(result, dict) or codec.dumps(result) != text:
        return False
    error = result.get("error")
    if set(result) == {"output"}:
        return True
    return (
        set(result) == {"error"} and isinstance(error, dict) and set(error) == {"code", "message"}
    )


def check_approval(derived: Derived, row: Columns) -> None:
    """Compare an approval's row with the request that asked for it and what was answered."""
    call_id, seq, approver = str(row["call_id"]), row["request_seq"], str(row["approver_id"])
    notes, where = derived.notes, f"approval {call_id}/{approver}"
    number = seq if isinstance(seq, int) else 0
    say = derived.says.pop((call_id, number, approver), None)
    if say is None:
        notes.add(Code.APPROVAL_STRAY, where, f"No request in event {seq} asked for it.")
        return
    if row["state"] != say.state:
        message = f"Asked in event {seq}, its row is not {say.state.value}, as the events say."
        notes.add(Code.APPROVAL_STATE, where, message)
    expected = {name: value for name, value in asdict(say).items() if name != "state"}
    names = differing(row, expected)
    if names:
        message = f"Asked in event {seq}, its row differs from the events in: {names}."
        notes.add(Code.APPROVAL_ROW, where, message)


def missing(derived: Derived) -> None:
    """Note everything that events speak of and that has no row. Called after the rows."""
    notes = derived.notes
    for call in derived.calls.values():
        notes.add(Code.CALL_MISSING, call.where, "It was proposed and has no row.")
    for call_id, seq, approver in derived.says:
        where = f"approval {call_id}/{approver}"
        notes.add(Code.APPROVAL_MISSING, where, f"It was asked in event {seq} and has no row.")
    for input_id, message in derived.messages.items():
        place = f"It was sent in event {message.first_seq} and has no receipt."
        notes.add(Code.INPUT_MISSING, f"input {input_id}", place)


def check_files(
    derived: Derived,
    named: Mapping[str, Iterable[FilePart] | None],
    found: Mapping[object, Columns],
) -> None:
    """Check that the files that messages name are there, and still what the messages say."""
    for where, parts in named.items():
        for part in parts or ():
            row = found.get(part.id)
            if row is None:
                derived.notes.add(Code.FILE, where, "A file that it names is missing.")
            elif differing(row, {name: getattr(part, name) for name in FilePart.model_fields}):
                derived.notes.add(Code.FILE, where, "A file that it names has changed since.")
