"""The commands and their options. Each imports what it does only when it is run."""

from pathlib import Path
from typing import Annotated

import typer

from engine_assistant.cli import hosting, record
from engine_assistant.cli.exits import HELP, ExitCode, end
from engine_assistant.cli.options import DEFAULT, Database, Json
from engine_assistant.cli.screen import Screen

__all__ = ["app"]

app = typer.Typer(
    help="The durable record of chats with an assistant that may do things.",
    epilog=HELP,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
db = typer.Typer(help="The tables: bring them up to date, or look.", epilog=HELP)
app.add_typer(db, name="db", no_args_is_help=True)


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it so
    if wanted:
        from engine_assistant import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _app(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version."),
    ] = False,
) -> None:
    pass


@app.command(epilog=HELP)
def demo(
    *,
    database: Database = DEFAULT,
    yes: Annotated[
        bool | None,
        typer.Option(
            "--yes/--no", help="Approve, or deny, without being asked.", show_default=False
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Tell the main job as a story: ask, approve, run once, and what is refused.

    Creates or upgrades the tables. Without a terminal the answer is yes.
    """
    from engine_assistant.cli.demo import demo as body

    end(lambda screen: body(screen, database, approve=yes), json=json)


@app.command(epilog=HELP)
def replay(
    *,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE…",
            exists=True,
            dir_okay=False,
            readable=True,
            show_default=False,
            help="JSON Lines of {id, messages}, or a .json file with one, a list, or messages.",
        ),
    ],
    gate: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOOL,…",
            show_default=False,
            help="Tools that need approval. May be given several times.",
        ),
    ] = None,
    tenant: Annotated[str, typer.Option(help="Whose data it becomes.")] = "replay",
    owner: Annotated[str, typer.Option(help="The person who owns the threads.")] = "usr_replay",
    database: Database = DEFAULT,
    json: Json = False,
) -> None:
    """Record conversations in the OpenAI message format, as a host would.

    A person's messages are sent by the owner, the assistant's side is written under a lease, and
    gated tools go through request, approval, claim and output. A broken line is reported as
    FILE:LINE and the rest goes on. Run again after it was stopped or killed, it continues where
    it was and repeats nothing.

    Makes the tables when there are none. An id names one conversation of the tenant and owner.
    System messages, and an assistant's before the first user message, have no side in the record:
    they become `data` events whose kind is their role.
    """
    from engine_assistant.cli.replay import Order
    from engine_assistant.cli.replay import replay as body

    tools = [name.strip() for names in gate or [] for name in names.split(",")]
    order = Order(tuple(files), frozenset(filter(None, tools)), tenant, owner)
    end(
        lambda screen: body(screen, database, order),
        json=json,
        stopped="Stopped. Run the same command again: it continues where it was.",
    )


@db.command(epilog=HELP)
def upgrade(*, database: Database = DEFAULT, json: Json = False) -> None:
    """Bring the tables to what this version expects."""
    _look("upgrade", database, json=json)


@db.command(epilog=HELP)
def current(*, database: Database = DEFAULT, json: Json = False) -> None:
    """Show at which revision the tables stand."""
    _look("current", database, json=json)


@db.command(epilog=HELP)
def check(*, database: Database = DEFAULT, json: Json = False) -> None:
    """Exit 0 if this version can work with the tables, 1 if not, 3 without a database."""
    _look("check", database, json=json)


@db.command(epilog=HELP)
def sql(
    *,
    grants: Annotated[
        bool, typer.Option("--grants", help="Print the Postgres roles' grants instead.")
    ] = False,
) -> None:
    """Print the SQL of the upgrade for Postgres, to be read or run by hand."""

    def body(screen: Screen) -> ExitCode:
        from engine_assistant.cli import db as commands

        return commands.sql(screen, grants=grants)

    end(body, json=False)


def _look(command: str, database: str, *, json: bool) -> None:
    def body(screen: Screen) -> ExitCode:
        from engine_assistant.cli import db as commands

        act = {"upgrade": commands.upgrade, "current": commands.current, "check": commands.check}
        return act[command](screen, database)

    end(body, json=json)


hosting.add_to(app)
record.add_to(app)
