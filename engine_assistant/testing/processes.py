"""Folders and child processes that are gone when the test run is gone, also after SIGKILL."""

import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from engine_assistant.testing.polling import poll_until

__all__ = ["Child", "Folder", "User", "server_user"]

PREFIX: Final = "engine-assistant-test-"
LAUNCH: Final = Path(__file__).with_name("launch.py")
# A socket's path must fit in some 100 bytes on every system.
LONGEST_FOLDER: Final = 60


@dataclass(frozen=True)
class User:
    """Who a server runs as."""

    uid: int
    gid: int


def server_user() -> User:
    """Return ourselves, or somebody unprivileged when we are root: servers refuse to be root."""
    if os.geteuid() != 0:
        return User(os.geteuid(), os.getegid())
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return User(entry.pw_uid, entry.pw_gid)
    raise RuntimeError("as root the test servers need a user 'postgres' or 'nobody' to run as")


@dataclass
class Folder:
    """A temporary folder that carries a lock for as long as its owner lives."""

    path: Path
    _lock: int

    @classmethod
    def make(cls, user: User) -> Self:
        """Make one that `user` may enter; remove those whose owner was killed."""
        place = _place()
        for old in place.glob(f"{PREFIX}*"):
            _remove_if_abandoned(old)
        path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
        # It gets its name only when it is locked: nobody finds a lock that seems to be abandoned.
        unnamed = path / "lock.new"
        lock = os.open(unnamed, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        unnamed.rename(path / "lock")
        if os.geteuid() == 0:
            os.chown(path, user.uid, user.gid)
        return cls(path, lock)

    def remove(self) -> None:
        """Remove it and give the lock up."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _place() -> Path:
    """Return the temporary folder, if others may pass through it and sockets fit; else /tmp."""
    place = Path(tempfile.gettempdir()).resolve()
    open_to_all = all(part.stat().st_mode & 0o001 for part in (place, *place.parents))
    if len(str(place)) > LONGEST_FOLDER or (os.geteuid() == 0 and not open_to_all):
        return Path("/tmp")  # noqa: S108 - mkdtemp below it
    return place


def _remove_if_abandoned(folder: Path) -> None:
    try:
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return  # being made, being removed, or not ours
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return  # its owner lives
    else:
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


@dataclass
class Child:
    """A server process, its log, and how it is asked to stop."""

    process: subprocess.Popen[bytes]
    log: Path
    stop_signal: signal.Signals = field(default=signal.SIGINT)

    @classmethod
    def start(
        cls,
        command: Sequence[str | Path],
        user: User,
        log: Path,
        env: Mapping[str, str] | None = None,
    ) -> Self:
        """Start a program as `user`, with its output in `log`; it ends when we do."""
        words = [sys.executable, "-I", "-S", LAUNCH, os.getpid(), user.uid, user.gid, *command]
        with log.open("ab") as out:
            process = subprocess.Popen(
                [str(word) for word in words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=log.parent,
                env=None if env is None else dict(env),
            )
        return cls(process, log)

    def wait(self, seconds: float) -> None:
        """Wait until it ends well; raise with its log when it does not."""
        if self.process.wait(seconds) != 0:
            raise RuntimeError(f"{self.process.args!r} failed:\n{self.tail()}")

    def wait_until(self, ready: Callable[[], bool], seconds: float = 60) -> None:
        """Poll `ready`; raise with the log when the process ends or the time is over."""
        poll_until(
            lambda: self.process.poll() is not None or ready(),
            lambda: f"{self.process.args!r} did not come up:\n{self.tail()}",
            seconds,
        )
        if self.process.poll() is not None:
            raise RuntimeError(f"{self.process.args!r} ended:\n{self.tail()}")

    def stop(self, seconds: float = 20) -> None:
        """Ask it to stop; kill it when it has not after `seconds`."""
        self.process.send_signal(self.stop_signal)
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def tail(self) -> str:
        """Return the last lines of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-30:])
