"""A replay that is killed, wherever, loses nothing that was committed and repeats nothing."""

import json
import random
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from engine_assistant.testing.polling import poll_until
from tests.rig import replays
from tests.rig.command import COMMAND, as_from_a_shell, environment
from tests.rig.killing import Attempt, Zygote
from tests.rig.replays import eventful, write_lines

GATED = ("refund",)
CLAIMED = {"c6-1": 1, "c6-3": 1, "c10-1": 1, "c15-1": 1}
# So many points of some 330 in one run, evenly spread from a start that differs each time.
POINTS = 24


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    made = Zygote()
    yield made
    made.stop()


def _holds(thread: replays.Recorded) -> None:
    """Hold a finished record against the conversation."""
    assert replays.read_back(thread) == replays.expected(eventful()["messages"])
    assert thread.numbers == list(range(1, len(thread.numbers) + 1))
    assert thread.asked == CLAIMED
    assert thread.claimed == CLAIMED


def _begins_with(whole: list[object], part: list[object]) -> bool:
    """Answer whether every event of `part` stands unchanged in `whole`."""
    return set(map(repr, part)) <= set(map(repr, whole))


@pytest.mark.guarantee("G-CLI-08", "G-CLI-09")
def test_killed_between_any_two_statements_it_continues_and_repeats_nothing(
    database_url: str, engine: sa.Engine, tmp_path: Path, zygote: Zygote
) -> None:
    effects = tmp_path / "effects"

    def attempt(*names: str, die_at: int = 0) -> Attempt:
        file = write_lines(tmp_path / "one.jsonl", *map(eventful, names))
        return Attempt(database_url, str(file), GATED, str(effects), die_at)

    whole = zygote.replay(attempt("whole"))
    assert (whole.killed, whole.code) == (False, 0)
    assert whole.points > POINTS
    stride = whole.points // POINTS
    first = 1 + random.randrange(stride)
    dead = {f"dead-{at}": at for at in range(first, whole.points + 1, stride)}
    for name, at in dead.items():
        assert zygote.replay(attempt(name, die_at=at)).killed
    at_death = replays.log(engine)
    torn = {len(thread.numbers) for thread in replays.recorded(engine).values()}
    assert len(torn) > POINTS // 2, "the kills did not tear the conversations at many places"
    again = zygote.replay(attempt(*dead))
    assert (again.killed, again.code) == (False, 0)
    assert _begins_with([*replays.log(engine)], [*at_death])
    record = replays.recorded(engine)
    assert record.keys() == {"whole", *dead}
    ran = Counter(effects.read_text().split("\n"))
    lost = 0
    for name, thread in record.items():
        _holds(thread)
        runs = [ran[f"{name} {call_id}"] for call_id in CLAIMED]
        assert set(runs) <= {0, 1}, f"{name} ran a call twice"
        # Killed after the claim and before the effect: whether it ran is for a person to find
        # out, never for a second try.
        assert runs.count(0) <= 1
        lost += runs.count(0)
    assert lost <= len(CLAIMED) * 2
    assert replays.states(engine)["turns"] == {"idle": len(record)}
    assert replays.states(engine)["calls"] == {"done": len(record) * 7}


def _start(file: Path, url: str) -> subprocess.Popen[str]:
    words = [*COMMAND, "replay", str(file), "--gate", "refund", "--database", url, "--json"]
    return subprocess.Popen(
        words,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=as_from_a_shell,  # noqa: PLW1509 - only this thread is there
    )


def _wait_for_event(engine: sa.Engine, number: int, process: subprocess.Popen[str]) -> None:
    """Watch through another connection until so many events are committed."""
    query = sa.text("SELECT count(*) FROM assistant_events")

    def there() -> bool:
        with engine.connect() as connection:
            count = connection.scalar(query) or 0
        return count >= number or process.poll() is not None

    poll_until(there, lambda: f"event {number} never came", 60, pause=0.0005)


@pytest.mark.guarantee("G-CLI-08", "G-CLI-09")
def test_the_command_killed_again_and_again_ends_with_the_whole_record(
    database_url: str, engine: sa.Engine, tmp_path: Path
) -> None:
    names = [f"conversation-{number}" for number in range(8)]
    file = write_lines(tmp_path / "many.jsonl", *map(eventful, names))
    kills = 0
    for _ in range(5):
        before = replays.log(engine)
        process = _start(file, database_url)
        _wait_for_event(engine, len(before) + random.randrange(1, 60), process)
        process.kill()
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
        after = replays.log(engine)
        assert _begins_with([*after], [*before])
    # A machine that is slow to look may find a later replay finished.
    assert kills, "no replay was killed in its work"
    last = _start(file, database_url)
    out, err = last.communicate(timeout=120)
    assert (last.returncode, err) == (0, "")
    told = json.loads(out)
    assert (told["conversations"], told["calls"], told["gated"]) == (8, 56, 32)
    record = replays.recorded(engine)
    assert record.keys() == set(names)
    for thread in record.values():
        _holds(thread)
    assert replays.states(engine)["turns"] == {"idle": 8}


@pytest.mark.guarantee("G-CLI-10")
def test_ctrl_c_is_one_line_and_the_same_command_goes_on(
    database_url: str, engine: sa.Engine, tmp_path: Path
) -> None:
    # So many that it is still at work when a slow watcher has seen the 40th event.
    file = write_lines(tmp_path / "many.jsonl", *(eventful(f"c{n}") for n in range(32)))
    process = _start(file, database_url)
    _wait_for_event(engine, 40, process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err == "error: Stopped. Run the same command again: it continues where it was.\n"
    again = _start(file, database_url)
    _, err = again.communicate(timeout=120)
    assert (again.returncode, err) == (0, "")
    for thread in replays.recorded(engine).values():
        _holds(thread)


@pytest.mark.guarantee("G-CLI-09")
def test_two_replays_of_one_file_at_once_never_write_twice(
    database_url: str, engine: sa.Engine, tmp_path: Path
) -> None:
    file = write_lines(tmp_path / "many.jsonl", *(eventful(f"c{n}") for n in range(8)))
    both = [_start(file, database_url) for _ in range(2)]
    for process in both:
        _, err = process.communicate(timeout=120)
        # Whoever was replaced says so and stops writing; which of them it was is chance.
        assert process.returncode in (0, 1), err
        assert "Traceback" not in err
    last = _start(file, database_url)
    _, err = last.communicate(timeout=120)
    assert (last.returncode, err) == (0, "")
    record = replays.recorded(engine)
    assert len(record) == 8
    for thread in record.values():
        _holds(thread)
