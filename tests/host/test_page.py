"""What docs/host.md shows is run, and what it says in tables is compared with the code."""

import re

import pytest

from engine_assistant.host import Status
from engine_assistant.model.events import TurnFinish
from tests.rig.guest import python
from tests.rig.pages import ROOT, run_snippets, snippets

PAGE = ROOT / "docs" / "host.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_the_snippets_run_in_their_order() -> None:
    assert len(snippets(PAGE)) == 5
    run_snippets(PAGE, "no database")


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
