"""What a run keeps for itself: for the runs of its turn, and for nobody else."""

import pytest

from engine_assistant import ConflictReason, PermissionDenied
from engine_assistant.testing.conformance.scenario import shows
from engine_assistant.testing.conformance.stage import Held, Stage, finish, words

OPAQUE = "the provider's own 2c1d \N{SNOWMAN}"


def _kept(stage: Stage, held: Held) -> str | None:
    return stage.bot.get_context(**held).state


@shows("G-CTX-01", "G-CTX-02", "G-CTX-03")
def what_a_run_keeps_is_there_for_its_turn_alone(stage: Stage) -> None:
    """Through the wait for people, byte for byte; gone with the turn, whoever ends it."""
    held = stage.running()
    thread_id = held["thread_id"]
    assert _kept(stage, held) is None
    for state in ("an older one", OPAQUE):
        assert stage.bot.put_context(**held, state=state).bytes == len(state.encode())
    digest = stage.ask(held)
    stage.bot.append_events(**held, events=[finish("awaiting-approval")])
    stage.decide(held, digest)
    later = stage.take(thread_id, "run-b")
    assert _kept(stage, later) == OPAQUE
    with stage.refused(ConflictReason.RUN_FENCED, thread_id):
        stage.bot.get_context(**held)
    with stage.refused(ConflictReason.RUN_FENCED, thread_id):
        stage.bot.put_context(**held, state="of a replaced run")
    stage.me.send_message(thread_id=thread_id, text="And order 8?", when_busy="queue")
    stage.bot.append_events(**later, events=[finish()])
    held = stage.take(thread_id)
    assert _kept(stage, held) is None
    stage.bot.put_context(**held, state=OPAQUE)
    stage.bot.release_run(**held)
    assert stage.me.interrupt_turn(thread_id=thread_id).ended is True
    stage.me.send_message(thread_id=thread_id, text="And order 9?")
    assert _kept(stage, stage.take(thread_id)) is None


@shows("G-CTX-03", "G-CTX-04")
def nobody_reads_what_a_run_keeps(stage: Stage) -> None:
    """It is no person's, and in no view, page, history, error or archive."""
    held = stage.running()
    thread_id = held["thread_id"]
    stage.bot.put_context(**held, state=OPAQUE)
    stage.bot.append_events(**held, events=[words("Let me look.")])
    told: list[object] = []
    for reader in (stage.me, stage.auditor):
        with pytest.raises(PermissionDenied) as refusal:
            reader.get_context(**held)
        told.append(refusal.value.to_dict())
        told += [
            reader.call(f"assistant/{name}", {"thread_id": thread_id})
            for name in ("get-thread", "read-events", "history", "list-calls", "list-runs")
        ]
    told.append(stage.bot.get_context(**held))  # as it is shown, and not what it holds
    told.append(b"".join(stage.assistant.export_thread(stage.keeper(), thread_id=thread_id)))
    assert "2c1d" not in repr(told)
