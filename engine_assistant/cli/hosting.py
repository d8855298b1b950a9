"""The commands that answer: a process for all tenants, and a chat at the terminal."""

from typing import Annotated

import typer

from engine_assistant.cli.exits import HELP, end
from engine_assistant.cli.options import DEFAULT, Database, Endpoint, Json, endpoint

__all__ = ["add_to"]

Model = Annotated[
    str,
    typer.Option(
        metavar="PROVIDER:NAME",
        envvar="ENGINE_ASSISTANT_MODEL",
        show_default=False,
        help="Whom to ask, like openai:gpt-5; its key comes from the environment."
        " demo tells a fixed story and needs none.",
    ),
]
Tools = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:REGISTRY",
        show_default="none",
        help="A ToolRegistry: what the model may call.",
    ),
]
System = Annotated[
    str | None,
    typer.Option(metavar="TEXT", show_default=False, help="What the model is told beside it all."),
]


def add_to(app: typer.Typer) -> None:
    """Add the commands in the order in which the help shows them."""
    for command in (chat, host):
        app.command(epilog=HELP)(command)


def chat(
    *,
    model: Model,
    tools: Tools = None,
    system: System = None,
    thread: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            show_default="the newest that is not at rest, or a new one",
            help="Which thread to go on with.",
        ),
    ] = None,
    yes: Annotated[
        bool | None,
        typer.Option(
            "--yes/--no", help="Approve, or deny, without being asked.", show_default=False
        ),
    ] = None,
    database: Database = DEFAULT,
    json: Json = False,
) -> None:
    """Talk with an assistant at the terminal; what is said is kept like any other thread.

    Makes the tables when there are none. What is typed while the assistant works joins its turn;
    /stop ends the turn, /quit leaves. A call that needs approval is shown, and only a yes is a
    yes. Without a terminal each line of standard input is a message, and nobody is asked.
    """
    from engine_assistant.cli.chat import Order
    from engine_assistant.cli.chat import chat as body

    order = Order(model=model, tools=tools, system=system, thread=thread, approve=yes)
    end(lambda screen: body(screen, database, order), json=json)


def host(
    *,
    model: Model,
    tools: Tools = None,
    system: System = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Turns that may run at once.")] = 8,
    every: Annotated[
        float, typer.Option(min=0.05, help="Seconds between two looks at the record.")
    ] = 1.0,
    stale_after: Annotated[
        float,
        typer.Option(
            min=0.5,
            max=3600,
            help="Seconds after which another process may take over from one that is silent.",
        ),
    ] = 15.0,
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds that turns may take to come to rest at the end.")
    ] = 30.0,
    health: Annotated[
        Endpoint | None,
        typer.Option(
            metavar="[ADDRESS:]PORT",
            parser=endpoint,
            show_default=False,
            help="Answer GET /health there; on loopback, if no address is given. 0: any port that"
            " is free.",
        ),
    ] = None,
    database: Database = DEFAULT,
    json: Json = False,
) -> None:
    """Run the turns of every tenant, until SIGTERM or Ctrl-C.

    Any number of these may run on one database: each turn is run by one of them, and those of a
    process that dies are taken over. Told to stop, it begins nothing more, lets what runs come to
    rest, and exits 0; told again, it does not wait.
    """
    from engine_assistant.cli.serve import Order, serve

    order = Order(
        model=model,
        tools=tools,
        system=system,
        concurrency=concurrency,
        every=every,
        stale_after=stale_after,
        grace=grace,
        health=health,
    )
    end(lambda screen: serve(screen, database, order), json=json)
