"""Pages that real engines wrote."""

from __future__ import annotations

from pathlib import Path

PAGES = Path(__file__).parents[1] / "engine" / "metrics" / "pages"


def recorded_page(name: str) -> str:
    """The page of that name; README.md beside the pages tells how they were recorded."""
    return (PAGES / f"{name}.txt").read_text(encoding="utf-8")
