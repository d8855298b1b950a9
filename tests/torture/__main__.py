"""The long form: `python -m tests.torture --minutes 10` (ends with 1 when a promise was broken)."""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from engine_assistant import Assistant, make_engine
from engine_assistant.testing import databases
from engine_assistant.testing.postgres import PostgresServer, start
from tests.torture.ordeal import Ordeal, Report


def _round(server: PostgresServer, seed: int, hosts: int) -> Report:
    with TemporaryDirectory() as folder, databases.postgres_database(server) as url:
        assistant = Assistant(make_engine(url))
        assistant.migrate()
        ordeal = Ordeal(assistant, url, Path(folder), hosts=hosts, threads=20, turns=10, seed=seed)
        report = ordeal.run(kills=60, crash=server.crash, crashes=5)
        assistant.engine.dispose()
        return report


def main() -> int:
    """Run rounds until the time is over, and tell each one as a line of JSON."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--hosts", type=int, default=6)
    parser.add_argument("--seed", type=int, help="run one round again")
    given = parser.parse_args()
    until = time.monotonic() + given.minutes * 60
    # Synced, as in production: what is committed must outlive the server.
    with start(synced=True) as server:
        while True:
            seed = secrets.randbits(32) if given.seed is None else given.seed
            report = _round(server, seed, given.hosts)
            sys.stdout.write(json.dumps({"seed": seed, **vars(report)}) + "\n")
            sys.stdout.flush()
            if not report.good:
                return 1
            if given.seed is not None or time.monotonic() > until:
                return 0


if __name__ == "__main__":
    sys.exit(main())
