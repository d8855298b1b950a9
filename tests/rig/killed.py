"""A process that writes and is killed before anybody hears of it.

`python -m tests.rig.killed URL THREAD RUN FENCE WHEN` appends a batch, claims a call and opens a
thread, and kills itself: WHEN is "before" the commit or "after" it.
"""

from __future__ import annotations

import os
import signal
import sys

from engine_assistant import Assistant, make_engine
from tests.rig.sides import Scene, Side, append, claim, create, words


def sides(scene: Scene) -> list[Side[object]]:
    """Answer what is asked for again after the kill: each by its key, batch or attempt."""
    return [
        append(scene, words("lost words"), batch=1),
        claim(scene, attempt=1),
        create("thread-1"),
    ]


def main() -> None:
    url, thread_id, run_id, fence, when = sys.argv[1:]
    scene = Scene(thread_id, run_id, int(fence))
    assistant = Assistant(make_engine(url))
    with assistant.engine.begin() as connection:
        for side in sides(scene):
            side.does(assistant.bind(connection, side.caller))
        if when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
