"""Writes the generated parts of docs/ from the code that they describe.

    python scripts/generate_docs.py            rewrites them (`make docs`)
    python scripts/generate_docs.py --check    exits with 1 where one is out of date (`make check`)

A generated part stands between `<!-- generated: NAME -->` and `<!-- end -->`; NAME is a key of
PARTS below. Everything outside of such a part is written by hand.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from inspect import cleandoc
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import click

from specdeck.console import keys
from specdeck.console.cli.main import COMMANDS, group
from specdeck.engine.config.schema import ConfigSettings
from specdeck.engine.launch.known_bad import KNOWN_BAD
from specdeck.engine.plugin import drafters
from specdeck.engine.plugin.capabilities import capabilities
from specdeck.engine.plugin.contract import ROWS
from specdeck.engine.plugin.engine import Build
from specdeck.engine.plugin.provenance import RUN_HERE, how_known
from specdeck.engine.policy.parameters import (
    BreakerParameters,
    GoodputParameters,
    Range,
    ThresholdParameters,
    TrialParameters,
    ranges,
)
from specdeck.engine.protocol.vllm_versions import is_too_old

DOCS = Path(__file__).parents[1] / "docs"
PART = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table.

    >>> print(table(("a", "b"), [("1", "x|y")]))
    | a | b |
    |---|---|
    | 1 | x\\|y |
    """
    titles = list(head)
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    lines += ["| " + " | ".join(_cell(text) for text in row) + " |" for row in rows]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


# What a config may hold: the schema's own docstrings.


def configuration() -> str:
    """specdeck's blocks of a config, a table for each."""
    schema = ConfigSettings.model_json_schema()
    blocks: Mapping[str, Any] = schema["$defs"]
    plain, parts = {}, []
    for name, field in schema["properties"].items():
        block = _block(field)
        if block is None:
            plain[name] = field
        else:
            parts.append(_config_block(name, blocks[block]))
    general = _config_table(plain)
    return "\n\n".join([f"### Keys of their own\n\n{general}", *parts])


def _block(field: Mapping[str, Any]) -> str | None:
    """The name of the block that a field holds; None for a plain value."""
    for choice in (field, *field.get("anyOf", ()), *field.get("allOf", ())):
        if "$ref" in choice:
            return str(choice["$ref"]).rsplit("/", 1)[-1]
    return None


def _config_block(name: str, block: Mapping[str, Any]) -> str:
    about = cleandoc(block["description"])
    return f"### `{name}`\n\n{about}\n\n{_config_table(block['properties'])}"


def _config_table(properties: Mapping[str, Any]) -> str:
    return table(
        ("key", "value", "default", "meaning"),
        (
            (f"`{name}`", _value(field), _default(field), field.get("description", ""))
            for name, field in properties.items()
        ),
    )


_TYPES = {"boolean": "true or false", "integer": "whole number", "string": "text"}


def _value(field: Mapping[str, Any]) -> str:
    choices = [c for c in field.get("anyOf", [field]) if c.get("type") != "null"]
    return " or ".join(map(_choice, choices))


def _choice(field: Mapping[str, Any]) -> str:
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    kind = field.get("type", "")
    if kind == "array":
        return "list of text"
    if kind == "object":
        return "names with text"
    return _with_bounds(
        _TYPES.get(kind, kind),
        field.get("minimum"),
        field.get("maximum"),
        field.get("exclusiveMinimum"),
    )


def _with_bounds(
    kind: str, low: float | None, high: float | None, above: float | None = None
) -> str:
    """A kind of number with its bounds.

    >>> _with_bounds("number", 0.0, 1.0), _with_bounds("whole number", 1, None)
    ('number, 0 to 1', 'whole number, at least 1')
    >>> _with_bounds("number", None, 1)
    'number, at most 1'
    """
    if above is not None:
        return f"{kind}, above {above:g}" + (f", at most {high:g}" if high is not None else "")
    if low is not None and high is not None:
        return f"{kind}, {low:g} to {high:g}"
    if low is not None:
        return f"{kind}, at least {low:g}"
    return f"{kind}, at most {high:g}" if high is not None else kind


def _default(field: Mapping[str, Any]) -> str:
    value = field.get("default")
    if value is None or value in ([], {}):
        return "–"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


# What `set` may change: the policies' own dataclasses.


def parameters() -> str:
    """Every parameter by its dotted name."""
    blocks: dict[str, type[Any]] = {
        "threshold": ThresholdParameters,
        "goodput": GoodputParameters,
        "breaker": BreakerParameters,
        "trial": TrialParameters,
    }
    rows = [
        (f"`{block}.{each.name}`", _range(ranges(cls)[each.name]), _plain(each.default),
         ranges(cls)[each.name].doc)
        for block, cls in blocks.items()
        for each in fields(cls)
    ]  # fmt: skip
    return table(("parameter", "value", "default", "meaning"), rows)


def _range(allowed: Range) -> str:
    if allowed.kind == "flag":
        return "true or false"
    if allowed.kind == "word":
        return ", ".join(f"`{word}`" for word in allowed.choices)
    kind = "whole number" if allowed.kind == "whole" else "number"
    return _with_bounds(kind, allowed.low, allowed.high) + (
        ", or `none`" if allowed.optional else ""
    )


def _plain(value: object) -> str:
    return f"`{'none' if value is None else str(value).lower()}`"


# What can be changed on which engine: the plugin's own rules, asked for every drafter.


class Method(NamedTuple):
    """A speculative method and the class that drafts for it, read in vLLM's source."""

    names: str
    runner: str
    drafter: tuple[str, ...]
    """The class and those of its bases that the plugin knows."""
    method: str
    """One of the names, as the plugin is asked about it."""
    draft: str | None = None
    """Architecture of the draft, where that makes a difference."""
    parallel: bool = False
    """With parallel_drafting in the config."""


_V1, _AR = "SpecDecodeBaseProposer", "TargetDependentARSpeculator"
METHODS = (
    Method("draft_model", "V1", ("DraftModelProposer", _V1), "draft_model"),
    Method("draft_model", "V2", ("StandaloneARSpeculator",), "draft_model"),
    Method("eagle, eagle3, mtp", "V1", ("EagleProposer", _V1), "eagle"),
    Method("eagle, eagle3, mtp", "V2", ("EagleSpeculator", _AR), "eagle"),
    Method("eagle3, draft_model with parallel_drafting", "V1", ("EagleProposer", _V1), "eagle3",
           parallel=True),
    Method("mtp of Step 3.5", "V1", ("Step3p5MTPProposer", _V1), "mtp", "step3p5_mtp"),
    Method("mtp of several modules", "V2", ("MultiModuleMTPSpeculator",), "mtp"),
    Method("dflash", "V1", ("DFlashProposer", _V1), "dflash"),
    Method("dflash", "V2", ("DFlashSpeculator",), "dflash"),
    Method("dspark", "V2", ("DSparkSpeculator",), "dspark"),
    Method("ngram", "V1", ("NgramProposer",), "ngram"),
    Method("ngram, ngram_gpu", "V2", ("NgramGPUSpeculator",), "ngram"),
    Method("ngram_gpu", "V1", ("NgramProposerGPU",), "ngram_gpu"),
    Method("suffix", "V1", ("SuffixDecodingProposer",), "suffix"),
    Method("medusa", "V1", ("MedusaProposer",), "medusa"),
    Method("extract_hidden_states", "V1", ("ExtractHiddenStatesProposer",),
           "extract_hidden_states"),
    Method("extract_hidden_states", "V2", ("ExtractHiddenStatesSpeculator",),
           "extract_hidden_states"),
    Method("custom_class", "V1", ("Proposer",), "custom_class"),
)  # fmt: skip
READ: Mapping[str, Mapping[str, Any]] = {
    file.stem.removeprefix("contract-"): json.loads(file.read_text(encoding="utf-8"))
    for file in sorted((DOCS.parent / "benchmarks" / "data").glob("contract-*.json"))
}
"""What each version has of the contract's rows, as `benchmarks.contract` found it."""
ASKED = {
    "live_k": "live k",
    "target_only": "target-only",
    "cold": "cold",
    "request_k": "k per request",
}


def versions() -> str:
    """What of the contract each version has that was read, and so what it can."""
    return table(
        ("vLLM", "engines", "rows of the contract", "what is not there", "how it is known"),
        (_version_row(version, read) for version, read in READ.items()),
    )


def _version_row(version: str, read: Mapping[str, Any]) -> list[str]:
    absent = [row for row in ROWS if "lacks" in read[row.key] or read[row.key]["place"] is None]
    needed = [row for row in absent if not row.optional]
    listed = "; ".join(f"`{row.name}` ({row.without})" for row in needed or absent)
    can = "can only be watched" if needed else "can be changed"
    run = any(version == each.vllm for each in RUN_HERE)
    how = "run here, and read in source" if run else "read in source"
    return [version, can, f"{len(ROWS) - len(absent)} of {len(ROWS)}", listed or "–", how]


def engines() -> str:
    """What can be changed with which method, runner and version, why not, and how it is known."""
    notes: list[str] = []
    rows = [
        [method.names, method.runner, each, *row]
        for method in METHODS
        for each, row in _engine_rows(method, notes)
    ]
    listed = "\n".join(f"{number}. {note}" for number, note in enumerate(notes, 1))
    head = ("method", "runner", "vLLM", *ASKED.values(), "how it is known")
    return f"{table(head, rows)}\n\n{listed}"


def _engine_rows(method: Method, notes: list[str]) -> Iterator[tuple[str, list[str]]]:
    """The rows of a method: one for all versions of which the same is known in the same way."""
    classes = {f"{name}.propose" for name in method.drafter[:1]}
    named = [row for row in ROWS if row.name in classes]
    rows: dict[tuple[str, ...], list[str]] = {}
    for version, read in READ.items():
        there = all(read[row.key]["place"] is not None for row in named)
        if there and not is_too_old(version):
            rows.setdefault(tuple(_engine_row(method, version, notes)), []).append(version)
    for row, found in rows.items():
        yield ", ".join(found), list(row)


def _engine_row(method: Method, version: str, notes: list[str]) -> list[str]:
    """A row of the table; reasons are collected in `notes` and referred to by number."""
    build = _build(method, version)
    answers = {one.name: one for one in capabilities(build)}
    row: list[str] = []
    for name in ASKED:
        found = answers[name]
        row.append("yes" if found.available else "no")
        if found.reason:
            note = found.reason + (f": {found.remedy}" if found.remedy else "")
            if note not in notes:
                notes.append(note)
            row[-1] += f" [{notes.index(note) + 1}]"
    return [*row, how_known(build)]


def _build(method: Method, version: str) -> Build:
    """An engine with this drafter, as the plugin would find it."""
    runner = SimpleNamespace(drafter=_drafter(method))
    found = drafters.install(SimpleNamespace(model_runner=runner))
    blank = Build(version, "model", method.method, method.runner, k_max=5, device="cpu")
    return replace(
        blank,
        draft_architecture=method.draft,
        parallel_drafting=method.parallel,
        drafter_obeys=bool(found["obeys"]),
        can_skip_drafter=bool(found["skippable"]),
    )


def _drafter(method: Method) -> object:
    """An object whose class and bases are called as in vLLM."""
    base: type[Any] = object
    for name in reversed(method.drafter):
        members = {member: None for row in ROWS if row.name == name for member in row.members}
        base = type(name, (base,), {**members, "propose": lambda self, **given: None})
    drafter: object = base()
    return drafter


def known_bad() -> str:
    """The combinations that the preflight warns of."""
    return table(
        ("what", "level", "what happens", "remedy", "vLLM issue"),
        (
            (each.name, each.level, each.message, each.remedy, f"{each.issue or '–'}")
            for each in KNOWN_BAD
        ),
    )


# The command line: click's own declarations.


def commands() -> str:
    """Every command with its options."""
    context = click.Context(group, info_name="specdeck")
    parts = []
    for name in COMMANDS:
        command = group.get_command(context, name)
        assert command is not None
        inside = command.commands.values() if isinstance(command, click.Group) else (command,)
        parent = f"specdeck {name}" if isinstance(command, click.Group) else "specdeck"
        parts += [_command(f"{parent} {one.name}", one) for one in inside]
    return "\n\n".join(parts)


def _command(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=name)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    options = [each for each in command.params if isinstance(each, click.Option)]
    parts = [f"### {name}", f"```\n{usage}\n```", cleandoc(command.help or "")]
    if options:
        parts.append(table(("option", "meaning"), map(_option, options)))
    return "\n\n".join(parts)


def _option(option: click.Option) -> tuple[str, str]:
    value = "" if option.is_flag else " " + (option.metavar or _metavar(option))
    names = ", ".join([*option.opts, *option.secondary_opts])
    return f"`{names}{value}`", " ".join(_meaning(option))


def _metavar(option: click.Option) -> str:
    kind = option.type
    return "|".join(kind.choices) if isinstance(kind, click.Choice) else "N"


def _meaning(option: click.Option) -> Iterator[str]:
    if option.help:
        yield option.help
    if isinstance(option.type, click.IntRange | click.FloatRange):
        low, high = option.type.min, option.type.max
        above = low if option.type.min_open else None
        bounds = _with_bounds("", low, high, above).removeprefix(", ")
        if bounds:
            yield f"{bounds[0].upper()}{bounds[1:]}."
    if option.show_default and option.default is not None:
        yield f"Default: `{option.default}`."


PARTS: Mapping[str, Callable[[], str]] = {
    "commands": commands,
    "configuration": configuration,
    "engines": engines,
    "keys": keys.markdown,
    "known_bad": known_bad,
    "parameters": parameters,
    "versions": versions,
}


def generate(text: str) -> str:
    """A page with its generated parts made again."""
    return PART.sub(lambda found: f"{found[1]}{PARTS[found[2]]()}\n{found[3]}", text)


def main(arguments: list[str]) -> int:
    """Rewrites the pages, or with --check says which are out of date."""
    outdated = []
    for path in sorted(DOCS.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        wanted = generate(text)
        if wanted != text:
            outdated.append(path.name)
            if "--check" not in arguments:
                path.write_text(wanted, encoding="utf-8")
    if outdated and "--check" in arguments:
        print(f"docs: out of date: {', '.join(outdated)}: run `make docs`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
