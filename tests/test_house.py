"""The house rules: format, lint, types, floors, and what no tool holds for us."""

import ast
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "engine_assistant"
FILE_LINES = 300
# A model of the record, or the table of its states, reads better in one piece.
RIG_LINES = 500
FUNCTION_LINES = 60
TOOLS = {
    "lint": "ruff check .",
    "format": "ruff format --check .",
    "types": "mypy",
    "floors": "lint-imports --no-cache",
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def _sources(*folders: Path) -> Iterator[tuple[str, str, ast.Module]]:
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            yield str(path.relative_to(ROOT)), text, ast.parse(text, str(path))


@pytest.mark.parametrize("name", TOOLS)
def test_the_tools_find_nothing(name: str) -> None:
    if name == "types" and find_spec("pydantic_ai") is None:
        pytest.skip("types are checked where every extra is installed")
    program, *arguments = shlex.split(TOOLS[name])
    command = [str(Path(sys.executable).with_name(program)), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_files_stay_short() -> None:
    for folder, most in ((PACKAGE, FILE_LINES), (ROOT / "tests" / "rig", RIG_LINES)):
        sizes = {path: text.count("\n") for path, text, _ in _sources(folder)}
        assert sizes, f"found no source in {folder}"
        assert {path: lines for path, lines in sizes.items() if lines >= most} == {}


def test_functions_stay_short() -> None:
    long = {}
    for path, _, tree in _sources(PACKAGE, ROOT / "tests" / "rig"):
        for node in ast.walk(tree):
            if isinstance(node, Function):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines >= FUNCTION_LINES:
                    long[f"{path}:{node.lineno} {node.name}"] = lines
    assert long == {}


def _public(tree: ast.Module | ast.ClassDef) -> Iterator[tuple[int, ast.expr]]:
    """Walk the annotations that a user of the module can see."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from _public(node)
        elif isinstance(node, Function) and (not node.name.startswith("_") or _dunder(node.name)):
            of = node.args
            every = [*of.posonlyargs, *of.args, *of.kwonlyargs, of.vararg, of.kwarg]
            annotations = [arg.annotation for arg in every if arg is not None]
            yield from ((node.lineno, note) for note in [*annotations, node.returns] if note)
        elif (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and not node.target.id.startswith("_")
        ):
            yield node.lineno, node.annotation


def _dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _says_any(annotation: ast.expr) -> bool:
    for node in ast.walk(annotation):
        match node:
            case ast.Name(id="Any") | ast.Attribute(attr="Any"):
                return True
            case ast.Constant(value=str(quoted)) if "Any" in quoted.replace("[", " ").split():
                return True
    return False


def test_no_public_signature_says_any() -> None:
    found = [
        f"{path}:{line}: {ast.unparse(annotation)}"
        for path, _, tree in _sources(PACKAGE)
        for line, annotation in _public(tree)
        if _says_any(annotation)
    ]
    assert found == []


def test_migrations_are_frozen_text() -> None:
    """A migration that imports today's code changes when that code does."""
    sources = list(_sources(ROOT / "migrations"))
    assert sources, "found no migration"
    found = []
    for path, _, tree in sources:
        for node in ast.walk(tree):
            match node:
                case ast.Import(names=names):
                    modules = [alias.name for alias in names]
                case ast.ImportFrom(module=str(module)):
                    modules = [module]
                case _:
                    continue
            ours = [name for name in modules if name.split(".")[0] == "engine_assistant"]
            found += [f"{path}:{node.lineno}: {name}" for name in ours]
    assert found == []


def test_ci_runs_the_test_command_of_the_readme() -> None:
    *_, command = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert "pytest" in command
    lines = [line.strip() for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines()]
    assert command in lines


def test_core_dependencies_are_the_five_agreed() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {requirement.split(">")[0] for requirement in project["dependencies"]}
    agreed = {"sqlalchemy[asyncio]", "alembic", "pydantic", "psycopg", "python-ulid"}
    assert names == agreed
