"""`export` and `import`: threads as files, for operators."""

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from engine_assistant.cli.screen import Screen

__all__ = ["bar", "counted"]


def bar(screen: Screen, unit: str) -> Progress:
    """Return a bar that moves on a terminal, and is nothing elsewhere."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn(f"{{task.fields[done]:,}} {unit}"),
        TimeElapsedColumn(),
        console=screen.bars,
        transient=True,
    )


def counted(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
