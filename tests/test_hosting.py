"""What docs/hosting.md shows is run, and what it says in tables is compared with the code."""

import re
from dataclasses import asdict

from engine_assistant import Limits
from tests.rig.pages import ROOT, URL, run_snippets, snippets

PAGE = ROOT / "docs" / "hosting.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_the_snippets_run_in_their_order(empty_database_url: str) -> None:
    assert sum(URL in text for _, text in snippets(PAGE)) == 2, "one sync and one async use"
    run_snippets(PAGE, empty_database_url)


def test_the_limits_are_those_of_the_code() -> None:
    _, table = TEXT.split("| | at most |\n|---|---|\n")
    said: list[int] = []
    for line in table.split("\n\n")[0].splitlines()[:-1]:
        for number, unit in re.findall(r"(\d[\d,]*)( KiB| MiB)?", line.split("|")[2]):
            size = {"": 1, " KiB": 1024, " MiB": 1024 * 1024}[unit]
            said.append(int(number.replace(",", "")) * size)
    assert said == list(asdict(Limits()).values())


def test_the_commands_it_names_are_there() -> None:
    from typer.main import get_command

    from engine_assistant.cli.app import app

    known = set(getattr(get_command(app), "commands", {}))
    _, table = TEXT.split("| to see, or do | command | in code |\n|---|---|---|\n")
    cells = [line.split("|")[2] for line in table.split("\n\n")[0].splitlines()]
    named = {word for cell in cells for word in re.findall(r"`(\w+)", cell)}
    assert len(named) > 8
    assert named <= known
