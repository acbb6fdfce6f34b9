"""The start of an engine in words."""

from __future__ import annotations

from specdeck.console.widgets.cells import Cell, Row
from specdeck.engine.launch.progress import STAGES, StartProgress
from specdeck.engine.text import format_duration, oneline

_SPOKEN = {
    "environment": "environment checked",
    "weights": "weights in place",
    "process": "engine process",
    "loading": "loading the model",
    "warming": "warming up",
    "ready": "ready",
}


def notice(lines: tuple[str, ...]) -> tuple[Row, ...]:
    """What whoever starts an engine should know before anything else."""
    return tuple(Row((Cell(f"  {oneline(text)}", "warn"),)) for text in lines)


def stages(progress: StartProgress) -> tuple[Row, ...]:
    """One row for each stage: done, going on, failed, or to come."""
    now = STAGES.index(progress.stage)
    return tuple(_stage(name, index - now, progress) for index, name in enumerate(STAGES))


def _stage(name: str, ahead: int, progress: StartProgress) -> Row:
    spoken = Cell(_SPOKEN[name])
    if ahead < 0 or progress.ready:
        return Row((Cell("  ✓ ", "good"), spoken))
    if ahead > 0:
        return Row((Cell("  · ", "muted"), Cell(spoken.text, "muted")))
    if progress.failed is not None:
        return Row((Cell("  ✗ ", "bad"), Cell(spoken.text, "bad")))
    return Row((Cell("  ● ", "accent"), Cell(spoken.text, "strong")))


def clock(progress: StartProgress) -> Row:
    """How long it has taken, against the last start."""
    took = Cell(f"  {format_duration(progress.elapsed)}", "strong")
    text = "the first start; the next ones are compared with it"
    if progress.last_elapsed is not None:
        text = f"the last start took {format_duration(progress.last_elapsed)}"
    return Row((took, Cell(f"  {text}", "muted")))


def share(progress: StartProgress) -> float | None:
    """How much of the last start's time has passed, at most 1; None without a last start."""
    if not progress.last_elapsed:
        return None
    return min(1.0, progress.elapsed / progress.last_elapsed)


def verdict(progress: StartProgress) -> tuple[Row, ...]:
    """The engine's own reason when it failed, and where to read on."""
    if progress.failed is None:
        return ()
    rows = [Row((Cell("  the engine did not start", "bad"),)),
            Row((Cell(f"  {oneline(progress.failed)}"),))]  # fmt: skip
    if progress.log_path is not None:
        rows.append(Row((Cell("  log ", "muted"), Cell(str(progress.log_path), "accent"))))
    return (*rows, Row((Cell("  q quits", "muted"),)))


def log(progress: StartProgress) -> tuple[Row, ...]:
    """The engine's last lines."""
    return tuple(Row((Cell(f"  {oneline(text)}", "muted"),)) for text in progress.log)
