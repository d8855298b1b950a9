"""Many writers in one process, for a test that starts several such processes.

`python -m tests.rig.writers URL THREAD RUN FENCE FIRST WRITERS BATCHES` says "ready", waits for a
line, and lets its writers, numbered from FIRST, append under one lease all at once. Then it says
what it was told: for each batch [writer, batch, first seq, last seq], as one line of JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from random import Random

from engine_assistant import Assistant, Operations, make_engine
from tests.rig.races import Barrier, Worker
from tests.rig.sides import ROBOT, Fields, Scene, append, words

Told = tuple[int, int, int, int]
PATIENCE = 90.0


def events_of(writer: int, batch: int) -> list[Fields]:
    """Answer the batch that this writer writes: 1 to 16 events, every third with a tool call."""
    mark = f"{writer}/{batch}"
    count = Random(mark).randint(1, 16)
    if (writer + batch) % 3:
        return [words(f"{mark}/{at}") for at in range(count)]
    call: Fields = {
        "type": "tool-input",
        "call_id": mark,
        "tool": "look_up",
        "step": "s1",
        "input": {"by": writer},
    }
    result: Fields = {"type": "tool-output", "call_id": mark, "output": [writer, batch]}
    return [call, *(words(f"{mark}/{at}") for at in range(count)), result]


def start(scene: Scene, url: str, first: int, writers: int, batches: int) -> subprocess.Popen[str]:
    """Start a process of writers; it waits for a line."""
    numbers = [scene.fence, first, writers, batches]
    fence, *rest = [str(number) for number in numbers]
    words = [url, scene.thread_id, scene.run_id, fence, *rest]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.rig.writers", *words],
        cwd=Path(__file__).parent.parent.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def race(processes: Sequence[subprocess.Popen[str]]) -> list[Told]:
    """Let them all write once all are ready; answer what they were told."""
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    told: list[Told] = []
    for process in processes:
        said, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
        told += [(w, b, first, last) for w, b, first, last in json.loads(said)]
    return told


def _write(robot: Operations, scene: Scene, writer: int, batches: int) -> list[Told]:
    told: list[Told] = []
    for batch in range(batches):
        appended = append(scene, *events_of(writer, batch)).does(robot)
        told.append((writer, batch, appended.events[0].seq, appended.events[-1].seq))
    return told


def main() -> None:
    url, thread_id, run_id, *words = sys.argv[1:]
    fence, first, writers, batches = (int(word) for word in words)
    scene = Scene(thread_id, run_id, fence)
    engine = make_engine(url)
    barrier = Barrier(writers)

    def write(writer: int) -> list[Told]:
        robot = Assistant(engine, retry_for=PATIENCE).acting_as(ROBOT)
        robot.get_thread(thread_id=thread_id)  # its connection is there before it is ready
        barrier.wait()
        if writer == first:
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            sys.stdin.readline()
        barrier.wait()
        return _write(robot, scene, writer, batches)

    workers = [Worker(partial(write, first + at)) for at in range(writers)]
    told = [line for worker in workers for line in worker.join(PATIENCE)]
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()
