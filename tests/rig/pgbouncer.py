"""PgBouncer in transaction mode in front of the test server, where the binary is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from sqlalchemy import URL

from engine_assistant.testing.postgres import libpq
from engine_assistant.testing.processes import Child, Folder, User, server_user

# Few server connections: clients really do change places between transactions.
POOL_SIZE = 4
# Since this version it follows prepared statements through the pool, unless told not to.
FOLLOWS_PREPARED = (1, 21)
PORT = 5432


@dataclass
class PgBouncer:
    """A running pooler; a database of the server behind it has the same name in front of it."""

    url: URL
    _child: Child = field(repr=False)
    _folder: Folder = field(repr=False)

    def address(self, database: str) -> URL:
        return self.url.set(database=database)

    def stop(self) -> None:
        self._child.stop()
        self._folder.remove()


def find() -> Path | None:
    """Answer the binary, which Debian keeps in a folder that is not on everybody's path."""
    found = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    return None if found is None else Path(found)


def start(binary: Path, server: URL) -> PgBouncer:
    user = server_user()
    folder = Folder.make(user)
    try:
        return _start_in(folder, binary, server, user)
    except BaseException:
        folder.remove()
        raise


def _start_in(folder: Folder, binary: Path, server: URL, user: User) -> PgBouncer:
    given = psycopg.conninfo.conninfo_to_dict(libpq(server))
    login = str(given["user"])
    behind = {key: given[key] for key in ("host", "port", "user", "password") if key in given}
    settings = {
        "listen_port": PORT,
        "unix_socket_dir": folder.path,
        "unix_socket_mode": "0777",
        "auth_type": "trust",
        "auth_file": folder.path / "users.txt",
        "pool_mode": "transaction",
        "max_client_conn": 200,
        "default_pool_size": POOL_SIZE,
    }
    if _version(binary) >= FOLLOWS_PREPARED:
        settings["max_prepared_statements"] = 0
    lines = ["[databases]", "* = " + " ".join(f"{k}={_quoted(v)}" for k, v in behind.items())]
    lines += ["[pgbouncer]", *(f"{name} = {value}" for name, value in settings.items())]
    config = folder.path / "pgbouncer.ini"
    config.write_text("\n".join(lines) + "\n")
    (folder.path / "users.txt").write_text(f'"{login}" ""\n')
    for path in (config, folder.path / "users.txt"):
        shutil.chown(path, user.uid, user.gid)
    child = Child.start([binary, config], user, folder.path / "log")
    url = URL.create(
        "postgresql+psycopg",
        username=login,
        database=server.database,
        query={"host": str(folder.path)},
    )
    try:
        child.wait_until(lambda: _answers(url))
    except BaseException:
        child.stop()
        raise
    return PgBouncer(url, child, folder)


def _quoted(value: object) -> str:
    doubled = str(value).replace("'", "''")
    return f"'{doubled}'"


def _version(binary: Path) -> tuple[int, int]:
    words = subprocess.run([binary, "--version"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"(\d+)\.(\d+)", words)
    if found is None:
        raise RuntimeError(f"{binary} --version says no version")
    return int(found[1]), int(found[2])


def _answers(url: URL) -> bool:
    try:
        psycopg.connect(libpq(url), connect_timeout=5).close()
    except psycopg.OperationalError:
        return False
    return True
