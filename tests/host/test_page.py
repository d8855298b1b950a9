"""What docs/host.md shows is run, and what it says in tables is compared with the code."""

import re
from dataclasses import fields
from inspect import signature

import pytest

from engine_assistant.host import AssistantHost, Batching, Ended, Service, Status
from engine_assistant.model.events import TurnFinish
from tests.rig.guest import python
from tests.rig.pages import ROOT, run_snippets, snippets

PAGE = ROOT / "docs" / "host.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_the_snippets_run_in_their_order(empty_database_url: str) -> None:
    assert len(snippets(PAGE)) == 8
    run_snippets(PAGE, empty_database_url)


def test_the_table_of_what_a_host_is_given_is_that_of_the_code() -> None:
    _, table = TEXT.split("| given | what it is for |\n|---|---|\n")
    cells = [line.split("|")[1] for line in table.split("\n\n")[0].splitlines()]
    said = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
    assert said == [field.name for field in fields(AssistantHost)]
    assert f"`{Batching()!r}`" in table


def test_the_table_of_what_a_service_is_given_is_that_of_the_code() -> None:
    _, table = TEXT.split("| for a service | what it is for |\n|---|---|\n")
    cells = [line.split("|")[1:3] for line in table.split("\n\n")[0].splitlines()]
    given = list(signature(Service).parameters.values())
    assert [name.strip(" `") for name, _ in cells] == [one.name for one in given]
    said = {name.strip(" `"): said.rpartition("; ")[2].strip() for name, said in cells}
    numbers = [one for one in given if isinstance(one.default, int | float)]
    assert [f"{one.default:g}" for one in numbers] == [said[one.name] for one in numbers]


def test_the_table_of_how_runs_end_is_that_of_the_code() -> None:
    _, table = TEXT.split("| `report.ended` | what happened |\n|---|---|\n")
    cells = [line.split("|")[1] for line in table.split("\n\n")[0].splitlines()]
    said = [word for cell in cells for word in re.findall(r"`([a-z-]+)`", cell)]
    assert sorted(said) == sorted(ended.value for ended in Ended)


def test_the_statuses_are_those_of_the_code_and_reasons_of_a_turn_finish() -> None:
    _, table = TEXT.split("| `outcome.status` | what happened |\n|---|---|\n")
    said = re.findall(r"^\| `([a-z-]+)` \|", table.split("\n\n")[0], re.MULTILINE)
    assert said == [status.value for status in Status]
    assert [TurnFinish(reason=status.value).reason for status in Status] == said


@pytest.mark.guarantee("G-HOST-38")
def test_the_engine_loads_no_part_of_the_loop_and_the_loop_no_client() -> None:
    done = python(
        "import sys, engine_assistant\n"
        "assert not [name for name in sys.modules if name.startswith('engine_assistant.host')]\n"
        "import engine_assistant.host\n"
        "late = {'pydantic_ai', 'fastmcp', 'mcp', 'httpx', 'openai', 'anthropic', 'groq'}\n"
        "print(sorted(late & set(sys.modules)))\n"
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "[]", "")


@pytest.mark.guarantee("G-HOST-38")
@pytest.mark.parametrize(("module", "extra"), [("pydantic_ai", "host"), ("mcp", "mcp")])
def test_without_its_extra_a_module_says_what_to_install(module: str, extra: str) -> None:
    done = python(
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in {'pydantic_ai', 'fastmcp'}:\n"
        "            raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        f"import engine_assistant.host.{module}\n"
    )
    assert done.returncode == 1
    assert f"pip install 'engine-assistant[{extra}]'" in done.stderr.splitlines()[-1]
