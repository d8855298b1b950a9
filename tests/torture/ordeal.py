"""The ordeal: hosts killed at random, the server stopped hard, people who go on all the same."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from engine_assistant import USE, Assistant, AssistantError, Caller, Operations, Unavailable
from engine_assistant.testing.polling import poll_until

ROOT = Path(__file__).parent.parent.parent
PATIENCE = 300.0


@dataclass
class Report:
    """What happened, and what is wrong with the record after it."""

    turns: int = 0
    kills: int = 0
    crashes: int = 0
    ran: dict[str, int] = field(default_factory=dict)
    unrested: list[str] = field(default_factory=list)
    ran_twice: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Whether every promise was kept."""
        return not (self.unrested or self.ran_twice or self.findings)


class Ordeal:
    """Some threads of some tenants, their owners, and the hosts that serve them."""

    def __init__(
        self,
        assistant: Assistant,
        url: str,
        folder: Path,
        *,
        hosts: int,
        threads: int,
        turns: int,
        seed: int,
    ) -> None:
        self._assistant = assistant
        self._random = Random(seed)
        self._effects = folder / "effects"
        self._effects.touch()
        self._words = [sys.executable, "-m", "tests.torture.host", url, str(self._effects)]
        self._hosts = [self._start(number) for number in range(hosts)]
        self._turns = turns
        self._owners = [
            assistant.acting_as(
                Caller(tenant=f"tenant-{n % 3}", principal=f"usr_{n}", permissions={USE})
            )
            for n in range(threads)
        ]
        self._threads = [owner.create_thread(key="torture").id for owner in self._owners]
        self._sent = [0] * threads
        self.report = Report()

    def run(self, kills: int, crash: Callable[[], None] | None, crashes: int) -> Report:
        """Go on until everything was said, every kill and crash happened, and all turns rest."""
        try:
            start = time.monotonic()
            hits = sorted(
                [(self._random.random(), "kill") for _ in range(kills)]
                + [(self._random.random(), "crash") for _ in range(crashes if crash else 0)]
            )
            planned = len(self._owners) * self._turns
            while sum(self._sent) < planned or hits:
                self._people_act()
                progress = sum(self._sent) / planned
                while hits and progress >= hits[0][0]:
                    self._strike(hits.pop(0)[1], crash)
                if time.monotonic() - start > PATIENCE:
                    raise TimeoutError(f"it does not come to an end: {self._sent}, {len(hits)}")
            poll_until(self._all_rest, lambda: f"never at rest: {self._unrested()}", PATIENCE)
        finally:
            for host in self._hosts:
                host.kill()
                host.wait()
        return self._examined()

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen([*self._words, str(number)], cwd=ROOT)

    def _strike(self, how: str, crash: Callable[[], None] | None) -> None:
        if how == "crash" and crash is not None:
            crash()
            self.report.crashes += 1
            return
        number = self._random.randrange(len(self._hosts))
        self._hosts[number].kill()
        self._hosts[number].wait()
        self._hosts[number] = self._start(number)
        self.report.kills += 1

    def _people_act(self) -> None:
        """Each person says the next thing, or decides what waits. What is lost is said again."""
        if any(host.poll() is not None for host in self._hosts):
            raise RuntimeError("a host ended by itself")
        for n, (owner, thread_id) in enumerate(zip(self._owners, self._threads, strict=True)):
            try:
                if self._sent[n] < self._turns:
                    owner.send_message(
                        thread_id=thread_id,
                        text=f"message {self._sent[n]}",
                        key=f"m{self._sent[n]}",
                        when_busy="queue",
                    )
                    self._sent[n] += 1
                self._decide(owner)
            except AssistantError as error:
                if not isinstance(error, Unavailable):
                    raise
                time.sleep(0.01)  # the database is away; the key makes it safe to say it again

    def _decide(self, owner: Operations) -> None:
        for card in owner.list_approvals(limit=10).items:
            owner.resolve_approval(
                thread_id=card.thread_id,
                call_id=card.call_id,
                approved=self._random.random() > 1 / 4,
                digest=card.digest,
                version=card.version,
            )

    def _unrested(self) -> list[str]:
        return [
            f"{one.id} {one.turn_state} lease {one.run_id} until {one.lease_until}"
            for one in self._assistant.survey(unrested=True, limit=1000)
        ]

    def _all_rest(self) -> bool:
        self._people_act()
        return not self._unrested()

    def _examined(self) -> Report:
        report = self.report
        report.turns = sum(
            owner.get_thread(thread_id=thread_id).turn
            for owner, thread_id in zip(self._owners, self._threads, strict=True)
        )
        lines = Counter(self._effects.read_text().splitlines())
        for line, times in lines.items():
            tool = line.rsplit("-", 1)[1]
            report.ran[tool] = report.ran.get(tool, 0) + times
            if times > 1 and tool != "look":
                report.ran_twice.append(line)
        report.unrested = self._unrested()
        report.findings = [str(finding) for finding in self._assistant.doctor()]
        return report
