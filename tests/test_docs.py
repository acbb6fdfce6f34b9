"""README and docs/ say what the code says, and lead somewhere."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from specdeck.console.cli.main import group
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.recording import reading_as_json

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^ *```(?:\w*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)


def targets(page: Path) -> list[str]:
    """The links of a page that lead into the repository."""
    found = LINK.findall(page.read_text(encoding="utf-8"))
    return [target for target in found if "://" not in target]


def anchors(page: Path) -> set[str]:
    """The headings of a page as links spell them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings}


def commands(page: Path) -> Iterator[list[str]]:
    """The words of every `specdeck …` line in the page's code blocks."""
    for block in FENCE.findall(page.read_text(encoding="utf-8")):
        for line in block.splitlines():
            if line.strip().startswith("specdeck ") and "[OPTIONS]" not in line:
                words = re.split(r"\s{2,}", line.strip())[0].partition(" > ")[0]
                yield shlex.split(words, comments=True)[1:]


def test_the_generated_parts_are_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "generate_docs.py"), "--check"]
    checked = subprocess.run(command, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in targets(page):
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), target


def test_readme_leads_to_every_page() -> None:
    assert {f"docs/{page.name}" for page in PAGES[1:]} <= set(targets(PAGES[0]))


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: page.name)
def test_every_page_leads_back_and_to_another(page: Path) -> None:
    found = {target.partition("#")[0] for target in targets(page)}
    assert "../README.md" in found
    assert {other.name for other in PAGES[1:]} - {page.name} & found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_shown_exists_with_its_options(page: Path) -> None:
    for words in commands(page):
        command: click.Command = group
        context = click.Context(group, info_name="specdeck")
        while isinstance(command, click.Group):
            found = command.get_command(context, words.pop(0))
            assert found is not None, words
            command = found
        known = {spelling for each in command.params for spelling in each.opts}
        known |= {spelling for each in command.params for spelling in each.secondary_opts}
        assert {word for word in words if word.startswith("--")} <= known, words


def test_the_sample_that_is_shown_has_every_key() -> None:
    blocks = FENCE.findall((ROOT / "docs" / "commands.md").read_text(encoding="utf-8"))
    samples = [json.loads(block) for block in blocks if block.startswith("{")]
    (shown,) = [sample for sample in samples if "tokens_per_second" in sample]
    assert set(shown) == set(reading_as_json(Reading(0.0, "http://engine")))


def test_readme_has_the_commands_that_run_and_test_it() -> None:
    text = PAGES[0].read_text(encoding="utf-8")
    assert all(f"\nmake {target}\n" in text for target in ("setup", "demo", "test"))


def test_the_walk_of_a_key_names_what_is_there() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = text.partition("## A key, followed\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([\w/]+)` \| (.*) \|$", section, re.MULTILINE)
    assert len(dict(rows)) == len(rows) == 14
    for module, words in rows:
        source = (ROOT / f"{module}.py").read_text(encoding="utf-8")
        named = re.findall(r"`(\w+)(?:\.(\w+))?`", words)
        assert named, module
        for name in filter(None, (part for pair in named for part in pair)):
            assert re.search(rf"\b{name}\b", source), (module, name)


def test_what_is_looked_for_is_where_the_page_says() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = text.partition("## Where is what\n")[2].partition("\n## ")[0]
    modules = re.findall(r"`((?:engine|console)/[\w/]*\w)`", section)
    assert len(modules) > 25
    assert [module for module in modules if not (ROOT / f"{module}.py").exists()] == []
