"""Command lines that nobody means: every command's own options, and values that make no sense.

As many examples for each command as the profile says: 100, and with `make fuzz` 5,000. What would
start an engine, run for ever or put load on one is left out: `demo`, `load`, and `--every`.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from specdeck.console.cli.main import group
from tests.hostile.commands import home_in, run
from tests.hostile.judge import KEY_VARIABLE
from tests.hostile.lies import ESCAPES

NOBODY = "http://127.0.0.1:9"
"""Where nobody listens."""
COMMANDS = (
    "attach",
    "watch",
    "set",
    "sweep",
    "check",
    "gate",
    "fingerprint",
    "replay",
    "ps",
    "stop",
    "doctor",
)
WITHOUT = frozenset(
    {"--every", "--metrics-port", "--count", "--patience", "--help", "-h", "--hard"}
)
"""What waits, serves, or is given to every command line that has it."""
GIVEN = {
    "watch": ["--count", "1"],
    "check": ["--patience", "0"],
    "gate": ["--patience", "0"],
}
ENGINES = (
    NOBODY, "127.0.0.1:9", "9", "demo", "http://[::1]:9", "http://[::1", "http://١.com:1",
    "http://127.0.0.1:99999", "http://127.0.0.1:-1", "http://127.0.0.1:٣", "http://:9", "http://",
    "http:///x", "https://127.0.0.1:9/../x", "http://user:pass@127.0.0.1:9", "ftp://127.0.0.1",
    "file:///etc/passwd", "javascript:1", "http://127.0.0.1:9/" + "x" * 5000, "http://" + "a" * 300,
    "http://a..b:9", "http://xn--:9", "http://\udcff:9", "http://127.0.0.1:9/?q=%zz#f",
    "http://127.0.0.1%00:9", "http://127.0.0.1:9\n", "//127.0.0.1:9", "http:127.0.0.1", "@1",
    "@" + "9" * 5000, "@-1", "@1٣", "0x7f000001:9", "localhost:9",
)  # fmt: skip
FILES = (
    ".", "..", "/", "nowhere/a.yaml", "a.yaml", "list.yaml", "empty", "lines.jsonl", "text.txt",
    "pin.json", "/proc/self/nope", "x" * 300, "/" + "x/" * 3000, "a\udcffb", "~", "-", "a\nb.yaml",
    "code", "store.sqlite",
)  # fmt: skip
WORDS = (
    "", " ", "0", "1", "-1", "3", "-0", "1e9", "1e999", "nan", "inf", "-inf", "0.5", "٣", "0x10",
    "1_000", "9" * 400, "1.5%", "150%", "0-5", "5-0", "0,2,4", "0-", "-", "--", "--x", "=", "k=3",
    "k=-1", "k=٣", "k=" + "9" * 400, "k=", "=3", "k=3=4", "mode=target-only", "mode=x",
    "policy=fixed", "policy=goodput", "breaker=open", "goodput.margin=0.1", "goodput.margin=nan",
    "a.b=c", "k=3\n",
    ESCAPES.replace("\x00", ""), "\udcff", "\U0001f680", "x" * 5000, "60s", "1h", "9" * 30 + "d",
    KEY_VARIABLE, "NO_SUCH_VARIABLE", "A=B", "PATH", "${HOME}", "$(id)", "%s", "{0}", "sd1:p0f3a",
    "0.0.0.0", "::", "code",
)  # fmt: skip
ANYTHING = st.sampled_from((*ENGINES, *FILES, *WORDS))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home without an engine, files to stumble over, and no names but addresses."""
    with home_in(tmp_path_factory.mktemp("lines")) as made, pytest.MonkeyPatch.context() as patch:
        Path("a.yaml").write_text("model: ./nowhere\nspeculative_config: {method: ngram}\n")
        Path("list.yaml").write_text("- 1\n")
        Path("empty").touch()
        Path("lines.jsonl").write_text('{"prompt": "a"}\n')
        Path("text.txt").write_text("a\nb\n")
        Path("pin.json").write_text("{}")
        resolve = socket.getaddrinfo

        def find(host: Any, *rest: Any, **named: Any) -> Any:
            if host in ("127.0.0.1", "::1", "localhost", None):
                return resolve(host, *rest, **named)
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

        patch.setattr(socket, "getaddrinfo", find)
        yield made


def values(parameter: click.Parameter) -> SearchStrategy[str]:
    """What may stand in its place: mostly something of its kind."""
    own: SearchStrategy[str] = st.sampled_from(WORDS)
    if isinstance(parameter.type, click.Path) or parameter.metavar in ("FILE", "F"):
        own = st.sampled_from(FILES)
    elif parameter.metavar is not None and "URL" in parameter.metavar:
        own = st.sampled_from(ENGINES)
    elif isinstance(parameter.type, click.Choice):
        own = st.sampled_from([*map(str, parameter.type.choices), "x"])
    return st.one_of(own, own, ANYTHING)


def options(command: click.Command) -> list[SearchStrategy[list[str]]]:
    """Each option of a command with a value, where it takes one."""
    found: list[SearchStrategy[list[str]]] = []
    for one in command.params:
        if not isinstance(one, click.Option):
            continue
        for name in (*one.opts, *one.secondary_opts):
            if name in WITHOUT:
                continue
            if one.is_flag:
                found.append(st.just([name]))
            else:
                found.append(st.tuples(st.just(name), values(one)).map(list))
    return found


@st.composite
def command_lines(draw: st.DrawFn, name: str) -> list[str]:
    """The words after `specdeck`."""
    context = click.Context(group)
    command = group.get_command(context, name)
    assert command is not None
    words = [name]
    while isinstance(command, click.Group):
        chosen = draw(st.sampled_from(command.list_commands(context)))
        words.append(chosen)
        command = command.get_command(context, chosen)
        assert command is not None
    arguments = [one for one in command.params if isinstance(one, click.Argument)]
    parts = [[draw(values(one))] for one in arguments for _ in range(draw(st.integers(0, 2)) or 1)]
    if choices := options(command):
        parts += draw(st.lists(st.one_of(choices), max_size=4))
    if draw(st.integers(0, 9)) == 0:
        parts.append([draw(ANYTHING)])
    for part in draw(st.permutations(parts)):
        words += part
    return [*words, *GIVEN.get(name, [])]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_line_ends_in_a_documented_way(name: str, home: Path) -> None:
    @given(command_lines(name))
    def give(words: list[str]) -> None:
        run([word for word in words if "\x00" not in word])

    give()


@given(st.lists(ANYTHING, max_size=4))
def test_words_that_are_no_command(home: Path, words: list[str]) -> None:
    assert run(["no-such-command", *words]).code == 2
    assert run(["run", "nowhere/a.yaml", *words]).code == 2


@pytest.mark.parametrize("name", COMMANDS)
def test_a_traceback_that_is_asked_for_has_no_secret(name: str, home: Path) -> None:
    words = [name, NOBODY, "--debug", "--api-key-env", KEY_VARIABLE, *GIVEN.get(name, [])]
    said = run(words, is_traced=True)
    assert said.code in (2, 3)
