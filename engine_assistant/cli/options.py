"""Options that many commands share."""

from typing import Annotated, Final

import typer

__all__ = ["DEFAULT", "Database", "Json", "Limit", "Person", "Tenant"]

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
