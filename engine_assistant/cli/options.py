"""Options that many commands share."""

from typing import Annotated, Final, NamedTuple

import typer

__all__ = [
    "DEFAULT",
    "Database",
    "Endpoint",
    "Json",
    "Limit",
    "Person",
    "Tenant",
    "endpoint",
]

DEFAULT: Final = "sqlite:///assistant.db"

Database = Annotated[
    str,
    typer.Option(
        help="Where the record lives: postgresql://… or sqlite:///…",
        envvar="ENGINE_ASSISTANT_DATABASE_URL",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
Tenant = Annotated[str | None, typer.Option(help="Only this tenant.", show_default="all of them")]
Person = Annotated[str, typer.Option("--as", metavar="PERSON", help="Who decides.")]
Limit = Annotated[int, typer.Option(min=1, help="How many at most.")]

_LOOPBACK: Final = "127.0.0.1"
_LAST_PORT: Final = 65535


class Endpoint(NamedTuple):
    """Where to listen."""

    address: str
    port: int

    def __str__(self) -> str:
        """Return it as it stands in a URL."""
        address = f"[{self.address}]" if ":" in self.address else self.address
        return f"{address}:{self.port}"


def endpoint(given: str) -> Endpoint:
    """Read `8080`, which is on loopback, or `0.0.0.0:8080`.

    Raises:
        BadParameter: it is neither.
    """
    address, _, port = given.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) <= _LAST_PORT):
        raise typer.BadParameter("say a port, 8080, or an address and a port, 0.0.0.0:8080")
    return Endpoint(address.strip("[]") or _LOOPBACK, int(port))
