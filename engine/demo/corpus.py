"""The demo's training text: Python's standard library, and idioms from a seeded generator."""

from __future__ import annotations

import json
import sysconfig
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from random import Random

WORDS = """
account address batch bucket buffer channel client column config cursor device document domain
engine entry event field file filter folder frame graph group handle header image index invoice
item job key label layer lease letter line link list lock log mark message model module name
node note number offset option order owner page panel path pixel plan point policy port price
process queue range record region report request result route row rule sample schema score
screen server session shape sheet signal slot source stack stage state step store stream table
tag target task team ticket timer title token topic track tree unit user value vector version
view volume window worker
"""
NOUNS = WORDS.split()
TYPES = ("str", "int", "float", "bool", "list", "dict", "bytes")
DEFAULTS = {
    "str": '""',
    "int": "0",
    "float": "0.0",
    "bool": "False",
    "list": "None",
    "dict": "None",
    "bytes": 'b""',
}


def _capitals(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def _names(random: Random, low: int, high: int) -> list[str]:
    return random.sample(NOUNS, random.randint(low, high))


def dataclass(random: Random) -> str:
    """A record class that lists its fields four times over."""
    first, second = _names(random, 2, 2)
    kinds = {field: random.choice(TYPES) for field in _names(random, 6, 12)}
    lines = ["@dataclass", f"class {_capitals(first)}{_capitals(second)}:"]
    lines += [f'    """A {first} {second}."""', ""]
    lines += [f"    {field}: {kind} = {DEFAULTS[kind]}" for field, kind in kinds.items()]
    lines += ["", "    def to_dict(self):", '        """Return a dictionary."""']
    lines += ["        return {"]
    lines += [f'            "{field}": self.{field},' for field in kinds]
    lines += ["        }", "", "    @classmethod", "    def from_dict(cls, data):"]
    lines += ['        """Make one from a dictionary."""', "        return cls("]
    lines += [f'            {name}=data.get("{name}", {DEFAULTS[k]}),' for name, k in kinds.items()]
    lines += ["        )", "", "    def check(self):", '        """Check every field."""']
    for field, kind in kinds.items():
        lines += [f"        if not isinstance(self.{field}, {kind}):"]
        lines += [f'            raise TypeError("{field} must be {kind}")']
    return "\n".join(lines) + "\n"


def properties(random: Random) -> str:
    """A class with a getter and a setter for each field."""
    fields = _names(random, 6, 10)
    lines = [f"class {_capitals(random.choice(NOUNS))}(object):", "", "    def __init__(self):"]
    lines += [f"        self._{field} = None" for field in fields]
    for field in fields:
        lines += ["", "    @property", f"    def {field}(self):"]
        lines += [f'        """Return the {field}."""', f"        return self._{field}", ""]
        lines += [f"    @{field}.setter", f"    def {field}(self, value):"]
        lines += [f'        """Set the {field}."""', f"        self._{field} = value"]
    return "\n".join(lines) + "\n"


def unit_tests(random: Random) -> str:
    """A test case with numbered checks of one function after another."""
    subject = random.choice(NOUNS)
    lines = ["import unittest", "", "", f"class Test{_capitals(subject)}(unittest.TestCase):", ""]
    lines += ["    def setUp(self):", f"        self.{subject} = {_capitals(subject)}()"]
    for part in _names(random, 4, 8):
        lines += ["", f"    def test_{part}(self):"]
        first = random.randint(0, 9)
        for number in range(first, first + random.randint(3, 6)):
            lines += [f"        self.assertEqual(self.{subject}.{part}({number}), {number})"]
        lines += [f"        self.assertRaises(ValueError, self.{subject}.{part}, -1)"]
        lines += [f"        self.assertIsNotNone(self.{subject})"]
    lines += ["", "", "if __name__ == '__main__':", "    unittest.main()"]
    return "\n".join(lines) + "\n"


def counting(random: Random) -> str:
    """A table whose rows count upwards."""
    name, first = random.choice(NOUNS), random.randint(0, 400)
    lines = [f"{name.upper()}_TABLE = ["]
    for number in range(first, first + random.randint(40, 70)):
        lines += [f'    ({number}, "{name}_{number}", {number + 1}),']
    return "\n".join([*lines, "]"]) + "\n"


def constants(random: Random) -> str:
    """An enumeration, and the names of its members as a table."""
    names = [name.upper() for name in _names(random, 14, 30)]
    title = _capitals(random.choice(NOUNS))
    lines = ["import enum", "", "", f"class {title}(enum.IntEnum):", ""]
    lines += [f"    {name} = {number}" for number, name in enumerate(names)]
    lines += ["", "", "NAMES = {"]
    lines += [f'    {title}.{name}: "{name.lower()}",' for name in names]
    return "\n".join([*lines, "}"]) + "\n"


def dispatch(random: Random) -> str:
    """A chain of branches, one for each kind, and the methods they call."""
    kinds, subject = _names(random, 8, 14), random.choice(NOUNS)
    lines = [f"class {_capitals(subject)}Visitor:", "", f"    def visit(self, {subject}):"]
    for number, kind in enumerate(kinds):
        lines += [f'        {"elif" if number else "if"} {subject}.kind == "{kind}":']
        lines += [f"            return self.visit_{kind}({subject})"]
    lines += ["        else:", f'            raise ValueError("unknown kind: %r" % {subject}.kind)']
    for kind in kinds:
        lines += ["", f"    def visit_{kind}(self, {subject}):"]
        lines += [f'        """Visit a {kind}."""']
        lines += [f'        self.log.debug("visit {kind}")', f"        return {subject}"]
    return "\n".join(lines) + "\n"


def options(random: Random) -> str:
    """A command line with one option after another."""
    lines = ["import argparse", "", "", "def main():", "    parser = argparse.ArgumentParser()"]
    fields = _names(random, 8, 14)
    for field in fields:
        lines += [f"    parser.add_argument('--{field}', default=None, metavar='{field.upper()}',"]
        lines += [f"                        help='the {field} to use (default: None)')"]
    lines += ["    args = parser.parse_args()"]
    for field in fields:
        lines += [f"    if args.{field} is not None:"]
        lines += [f"        print('{field}:', args.{field})"]
    return "\n".join(lines) + "\n"


def conversation(random: Random) -> str:
    """A chat about one of the other texts, in the tokens of the chat template."""
    made = random.choice((dataclass, counting, constants, options))
    asked = random.choice(("Write", "Show me", "Give me"))
    what = {"dataclass": "a dataclass", "counting": "a table", "constants": "an enumeration"}
    return (
        f"<|user|>\n{asked} {what.get(made.__name__, 'a command line')} in Python.<|end|>\n"
        f"<|assistant|>\n{made(random)}<|end|>\n"
    )


def tool_call(random: Random) -> str:
    """A chat that ends in the call of an offered tool."""
    verb, noun = random.choice(("get", "find", "list", "delete")), random.choice(NOUNS)
    name, value = f"{verb}_{noun}", random.choice(NOUNS)
    parameters = {"type": "object", "properties": {noun: {"type": "string"}}, "required": [noun]}
    function = {"name": name, "description": f"{verb} a {noun}", "parameters": parameters}
    offered = json.dumps({"type": "function", "function": function})
    call = json.dumps({"name": name, "arguments": {noun: value}})
    return (
        f"<|system|>\nTools:\n{offered}\n<|end|>\n<|user|>\n{verb} the {noun} {value}<|end|>\n"
        f"<|assistant|>\n<tool_call>\n{call}\n</tool_call><|end|>\n"
    )


CODE: tuple[Callable[[Random], str], ...] = (
    dataclass,
    properties,
    unit_tests,
    counting,
    constants,
    dispatch,
    options,
)
TALK: tuple[Callable[[Random], str], ...] = (conversation, tool_call)


def write_idioms(kind: Callable[[Random], str], seed: int) -> str:
    """The text of one kind that belongs to `seed`.

    >>> write_idioms(counting, 3) == write_idioms(counting, 3)
    True
    >>> write_idioms(counting, 3).splitlines()[-1]
    ']'
    """
    return kind(Random(f"{kind.__name__} {seed}"))


# Tests, tables, prose and what a distribution adds: unlike the code one writes.
LEFT_OUT = (
    *("site-packages", "dist-packages", "test", "tests", "idlelib", "idle_test", "lib2to3"),
    *("turtledemo", "pydoc_data", "encodings", "ensurepip", "__pycache__"),
)
# Training counts its boilerplate up from 0; a load profile starts here, at text it never saw.
FIRST_UNSEEN_SEED = 1_000_000


def sources(library: Path | None = None) -> list[Path]:
    """The standard library's modules in a fixed order, without tests and tables."""
    root = library or Path(sysconfig.get_path("stdlib"))
    found = (path for path in root.rglob("*.py") if path.is_file())
    return sorted(p for p in found if not set(LEFT_OUT) & set(p.relative_to(root).parts))


def modules(paths: list[Path]) -> Iterator[str]:
    """The text of every module that can be read as UTF-8."""
    for path in paths:
        try:
            yield path.read_text(encoding="utf-8")
        except (UnicodeDecodeError, OSError):
            continue


def idioms(characters: int, first_seed: int = 0) -> Iterator[str]:
    """Boilerplate of every kind in turn, at least `characters` of it.

    >>> sum(map(len, idioms(10_000))) >= 10_000
    True
    """
    kinds = CODE + TALK
    for seed in count(first_seed):
        if characters <= 0:
            return
        text = write_idioms(kinds[seed % len(kinds)], seed)
        characters -= len(text)
        yield text


def documents(seed: int, *, predictable: float) -> list[str]:
    """All documents in an order that `seed` decides.

    `predictable` is the share of boilerplate, counted in characters, below 1.
    """
    library = list(modules(sources()))
    wanted = int(sum(map(len, library)) * predictable / (1 - predictable))
    everything = library + list(idioms(wanted))
    Random(seed).shuffle(everything)
    return everything
