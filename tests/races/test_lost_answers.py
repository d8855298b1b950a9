"""An answer was lost: whether the write was kept is found out by asking again, and done once.

On Postgres a wire is cut in the middle of the exchange. SQLite has no wire: there the process is
killed.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from engine_assistant import ConflictReason, Retry, Unavailable, make_engine
from engine_assistant.model.machines import CallState
from engine_assistant.model.views import MessageReceipt
from tests.rig.duels import Arena, Stop
from tests.rig.killed import sides
from tests.rig.sides import (
    Scene,
    Side,
    append,
    claim,
    close,
    create,
    finish,
    proposal,
    send,
    words,
)
from tests.rig.wires import Wire

# One statement, without BEGIN and COMMIT: cut at a word of its own. The others at their COMMIT.
LOST = "lost words"
KEPT = ["before", "after"]


def _plain(arena: Arena) -> tuple[Scene, Side[object]]:
    scene = arena.running()
    return scene, append(scene, words(LOST), words("more"), batch=1)


def _folded(arena: Arena) -> tuple[Scene, Side[object]]:
    scene = arena.running()
    return scene, append(scene, words("a call"), proposal("c2"), batch=1)


def _last(arena: Arena) -> tuple[Scene, Side[object]]:
    scene = arena.running()
    return scene, append(scene, words("the end"), finish(), batch=1)


def _message(arena: Arena) -> tuple[Scene, Side[object]]:
    scene = Scene(arena.idle())
    return scene, send(scene.thread_id, "please", key="msg-1")


def _claim(arena: Arena) -> tuple[Scene, Side[object]]:
    scene = arena.approved()
    return scene, claim(scene, attempt=1)


ASKED = {
    "plain": (_plain, LOST),
    "folded": (_folded, "COMMIT"),
    "last": (_last, "COMMIT"),
    "message": (_message, "COMMIT"),
    "claim": (_claim, "COMMIT"),
}


@pytest.fixture
def wire(postgres_arena: Arena) -> Iterator[Wire]:
    made = Wire(postgres_arena.url)
    yield made
    made.close()


@pytest.fixture
def wired(wire: Wire) -> Iterator[sa.Engine]:
    """An engine at the other end of the wire."""
    engine = make_engine(wire.url)
    yield engine
    engine.dispose()


@pytest.mark.guarantee("G-RACE-28")
@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("what", ASKED)
def test_a_cut_connection_is_asked_again_and_the_write_is_there_once(
    postgres_arena: Arena, wire: Wire, wired: sa.Engine, what: str, kept: str
) -> None:
    """The wire is cut before or after the server did it: unknown; given again it is there once."""
    arena = postgres_arena
    build, word = ASKED[what]
    scene, side = build(arena)
    before = arena.log(scene.thread_id)
    wire.cut(word, after=kept == "after")
    error = arena.attempt(side, wired).error
    assert wire.cuts == 1
    assert isinstance(error, Unavailable)
    assert (error.facts["outcome"], error.retry) == ("unknown", Retry.NOW)
    done = arena.log(scene.thread_id)
    assert (done != before) is (kept == "after")
    answer = arena.attempt(side, wired).get()
    assert getattr(answer, "duplicate") is (kept == "after")  # noqa: B009 - of many types
    if kept == "after":
        assert arena.log(scene.thread_id) == done
    assert arena.attempt(side, wired).get() == _duplicate(answer)
    assert len(arena.log(scene.thread_id)) - len(before) == (1 if what == "claim" else 2)


def _duplicate(answer: object) -> object:
    copy = getattr(answer, "model_copy")  # noqa: B009 - every view has it
    return copy(update={"duplicate": True})


@pytest.mark.guarantee("G-RACE-28")
@pytest.mark.parametrize("kept", KEPT)
def test_a_thread_whose_answer_was_lost_is_created_once(
    postgres_arena: Arena, wire: Wire, wired: sa.Engine, kept: str
) -> None:
    """The wire is cut while a thread is created under a key: asked again it is that thread."""
    arena = postgres_arena
    side = create("thread-1")
    wire.cut("COMMIT", after=kept == "after")
    assert isinstance(arena.attempt(side, wired).error, Unavailable)
    there = arena.me.list_threads().items
    assert len(there) == (1 if kept == "after" else 0)
    thread = arena.attempt(side, wired).get()
    assert arena.attempt(side, wired).get().id == thread.id
    assert [found.id for found in arena.me.list_threads().items] == [thread.id]
    assert arena.milestones(thread.id) == ["thread-created"]


@pytest.mark.guarantee("G-RACE-28")
def test_after_a_takeover_a_lost_batch_is_fenced_and_the_log_decides(
    postgres_arena: Arena, wire: Wire, wired: sa.Engine
) -> None:
    """The answer to a batch is lost and another run takes over: fenced, and the words are there."""
    arena = postgres_arena
    scene, side = _plain(arena)
    wire.cut(LOST, after=True)
    assert isinstance(arena.attempt(side, wired).error, Unavailable)
    arena.take_over(scene)
    arena.attempt(side, wired).refused(ConflictReason.RUN_FENCED)
    assert arena.log(scene.thread_id)[2:] == ["text-delta", "text-delta"]


@pytest.mark.guarantee("G-RACE-28")
@pytest.mark.parametrize("keep", [True, False], ids=["kept", "undone"])
@pytest.mark.parametrize("what", ASKED)
def test_asked_again_while_the_first_is_still_on_its_way(
    arena: Arena, what: str, keep: bool
) -> None:
    """The same is given twice at once: the second is the duplicate, or the first if it failed."""
    build, _ = ASKED[what]
    scene, side = build(arena)
    before = len(arena.log(scene.thread_id))
    ahead, behind = arena.race(side, side, stop=Stop.WRITTEN, keep=keep)
    first, second = ahead.get(), behind.get()
    if keep:
        assert second == _duplicate(first)
    else:
        assert getattr(second, "duplicate") is False  # noqa: B009 - of many types
    added = len(arena.log(scene.thread_id)) - before
    assert added == (1 if what == "claim" else 2)


@pytest.mark.guarantee("G-RACE-28")
@pytest.mark.parametrize("keep", [True, False], ids=["kept", "undone"])
def test_two_threads_under_one_key_at_once_are_one(arena: Arena, keep: bool) -> None:
    """A thread is created twice under one key at once: the second answers the first's thread."""
    side = create("thread-1")
    ahead, behind = arena.race(side, side, stop=Stop.WRITTEN, keep=keep)
    assert (behind.get().id == ahead.get().id) is keep
    (thread,) = arena.me.list_threads().items
    assert thread.id == behind.get().id
    assert arena.milestones(thread.id) == ["thread-created"]


@pytest.mark.guarantee("G-RACE-28")
def test_a_key_is_answered_while_the_turn_runs_and_after_the_close(arena: Arena) -> None:
    """A message's answer is lost and the thread is closed meanwhile: the first receipt still."""
    scene, side = _message(arena)
    first = arena.does(side)
    _, behind = arena.race(close(scene.thread_id), side, stop=Stop.WRITTEN)
    told = behind.get()
    assert isinstance(told, MessageReceipt)
    assert told.model_copy(update={"answer": None}) == _duplicate(first)
    assert told.answer is not None
    assert (told.answer.reason, told.answer.text) == ("interrupted", "")
    assert arena.log(scene.thread_id) == ["user-message", "turn-start", "turn-finish"]


@pytest.mark.guarantee("G-RACE-28")
@pytest.mark.parametrize("when", KEPT)
def test_a_process_killed_before_or_after_its_commit_is_followed_by_another(
    arena: Arena, when: str
) -> None:
    """A process writes and is killed; what takes its place asks again: each is there once."""
    scene = arena.approved()
    before = arena.log(scene.thread_id)
    command = [sys.executable, "-m", "tests.rig.killed"]
    url = arena.url.render_as_string(hide_password=False)
    root = Path(__file__).parent.parent.parent
    words = [url, scene.thread_id, scene.run_id, str(scene.fence), when]
    ended = subprocess.run([*command, *words], cwd=root, capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (-9, b"")
    done = arena.log(scene.thread_id)
    assert done == (before if when == "before" else [*before, "text-delta", "execution-claimed"])
    for side in sides(scene):
        answer = arena.does(side)
        assert getattr(answer, "duplicate", when == "after") is (when == "after")
    assert arena.log(scene.thread_id) == [*before, "text-delta", "execution-claimed"]
    assert arena.call(scene).state is CallState.EXECUTING
    assert len([found for found in arena.me.list_threads().items if found.key]) == 1
