"""What the shipped themes promise: text that can be read, and tones that can be told apart."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.pilot import press, run
from textual.color import Color

from specdeck.console import settings, theme
from specdeck.console.settings import Settings
from specdeck.console.yaml_file import parse_yaml
from specdeck.engine.errors import ConfigError

if TYPE_CHECKING:
    from tests.console.conftest import Kit, MakeConsole

SHIPPED = {one.name: one for one in theme.load(theme.SHIPPED).themes}
OWN_COLOURS = [name for name, one in SHIPPED.items() if not one.ansi]
LEAST = 4.5
"""WCAG 2.2, contrast (minimum) of text, level AA."""
Rgb = tuple[float, float, float]


def linear(colour: str) -> Rgb:
    """Red, green and blue as light, each of 0 to 1."""
    red, green, blue = (
        one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4
        for one in Color.parse(colour).normalized
    )
    return red, green, blue


def contrast(one: str, other: str) -> float:
    """WCAG's ratio of two luminances."""
    light, dark = sorted(
        (0.2126 * red + 0.7152 * green + 0.0722 * blue for red, green, blue in
         map(linear, (one, other))), reverse=True,
    )  # fmt: skip
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("name", OWN_COLOURS)
def test_text_stands_out_on_every_background(name: str) -> None:
    one = SHIPPED[name]
    tones = {key: value for key, value in one.variables.items() if key.startswith("tone-")}
    assert len(tones) == 7
    poor = {
        (tone, behind): round(ratio, 2)
        for tone, value in tones.items()
        for behind in (one.background, one.surface, one.panel)
        if behind and (ratio := contrast(value, behind)) < LEAST
    }
    assert poor == {}


BLIND = {
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216),
                   (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413),
                     (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602),
                   (0.004733, 0.691367, 0.303900)),
}  # fmt: skip
"""What is left of light: Machado, Oliveira and Fernandes 2009, severity 1."""


def lab(light: Rgb) -> Rgb:
    """CIE L*a*b* of linear sRGB, white D65."""
    red, green, blue = light
    white = (0.95047, 1.0, 1.08883)
    xyz = (
        0.4124564 * red + 0.3575761 * green + 0.1804375 * blue,
        0.2126729 * red + 0.7151522 * green + 0.0721750 * blue,
        0.0193339 * red + 0.1191920 * green + 0.9503041 * blue,
    )
    x, y, z = (
        value ** (1 / 3) if value > 216 / 24389 else (24389 / 27 * value + 16) / 116
        for value in (max(0.0, part) / whole for part, whole in zip(xyz, white, strict=True))
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def seen(colour: str, kind: str) -> Rgb:
    """The colour as somebody sees it who lacks a cone."""
    light = linear(colour)
    rows = BLIND[kind]
    red, green, blue = (sum(a * b for a, b in zip(row, light, strict=True)) for row in rows)
    return lab((red, green, blue))


@pytest.mark.parametrize("kind", BLIND)
def test_who_lacks_a_cone_tells_good_warn_and_bad_apart(kind: str) -> None:
    told = [SHIPPED["colour-blind"].variables[f"tone-{tone}"] for tone in ("good", "warn", "bad")]
    for one, other in combinations(told, 2):
        a, b = seen(one, kind), seen(other, kind)
        distance = sum((p - q) ** 2 for p, q in zip(a, b, strict=True)) ** 0.5
        assert distance > 25, (one, other, distance)


async def test_production_looks_like_production_and_the_next_engine_does_not(
    kit: type[Kit], console: MakeConsole
) -> None:
    chosen = Settings(theme="light", engine_themes={"prod-*": "production"})
    app = console(kit.engine(kit.run(3)), kit.engine(kit.run(3), name="prod-eu"), settings=chosen)
    async with run(app) as pilot:
        assert app.theme == "light"
        await press(pilot, "tab")
        assert app.theme == "production"
        await press(pilot, "tab")
        assert app.theme == "light"
    only = console(kit.engine(kit.run(3), name="prod-eu"), settings=replace(chosen, theme="dark"))
    async with run(only):
        assert only.theme == "production"


def bomb(merge: bool = False) -> list[str]:
    """Twelve levels of aliases, each ten times the last."""
    first = "{x: 1}" if merge else "[x, x]"
    lines = [f"a0: &a0 {first}"]
    for level in range(1, 13):
        ten = ", ".join([f"*a{level - 1}"] * 10)
        lines.append(f"a{level}: &a{level} " + (f"{{<<: [{ten}]}}" if merge else f"[{ten}]"))
    return lines


PRIMARY = 'primary: "#112233"\n'
BROKEN = {
    "a bomb of variables": PRIMARY + "variables:\n  " + "\n  ".join(bomb()),
    "a bomb of parts": PRIMARY + "\n".join([*bomb(), "dark: *a12"]),
    "a bomb as a colour": "variables:\n  " + "\n  ".join(bomb()) + "\nprimary: *a12",
    "a bomb of merges": PRIMARY + "variables:\n  " + "\n  ".join(bomb(merge=True)),
    "a name that is a list": PRIMARY + "name: [x]",
    "a name that steers": PRIMARY + 'name: "\\e]52;c;AAAA\\a"',
    "a long name": PRIMARY + f"name: {'w' * 200_000}",
    "no name": PRIMARY + 'name: ""',
    "a long part": PRIMARY + f"{'w' * 1000}: 1",
    "a part that is a number": PRIMARY + "5: 1",
    "a spread of nan": PRIMARY + "luminosity_spread: .nan",
    "a spread of inf": PRIMARY + "luminosity_spread: .inf",
    "a huge spread": PRIMARY + "luminosity_spread: 1.0e+308",
    "an alpha of -inf": PRIMARY + "text_alpha: -.inf",
    "a spread of true": PRIMARY + "luminosity_spread: true",
    "a brace": PRIMARY + 'variables: {foreground: "}"}',
    "a rule of CSS": PRIMARY + 'variables: {rule: "red; } Screen { background: red"}',
    "a variable of itself": PRIMARY + "variables: {primary: $primary}",
    "an empty variable": PRIMARY + 'variables: {foreground: ""}',
    "an odd variable": PRIMARY + 'variables: {"a b{": "#112233"}',
    "a word for a colour": PRIMARY + "variables: {foreground: loud}",
    "a colour by what is behind it": PRIMARY + "variables: {border: auto 50%}",
    "a share that is taken of elsewhere": PRIMARY + "variables: {primary: red 50%}",
    "a share of a shade": PRIMARY + "variables: {background-darken-1: red 50%}",
    "a share of more than all": PRIMARY + "variables: {border: red 200%}",
    "no such style": PRIMARY + "variables: {link-style: loud}",
    "half a style": PRIMARY + "variables: {link-style: bold not}",
    "variables that are a list": PRIMARY + "variables: [x]",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_theme_is_left_out_with_one_line(name: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(BROKEN[name])
    found = theme.load(tmp_path)
    assert found.themes == ()
    (line,) = found.broken
    assert line.isprintable()
    assert len(line) < 300 + len(str(tmp_path))


@pytest.mark.parametrize("name", ["[/x]", "[@click=app.exit(5)]zzz[/]", "ünder one"])
async def test_a_themes_name_is_no_markup(
    name: str, tmp_path: Path, console: MakeConsole, kit: type[Kit]
) -> None:
    style = 'variables: {link-style: "bold not underline", text: auto 87%, border: "#112233 30%"}'
    (tmp_path / "mine.yaml").write_text(f'{PRIMARY}name: "{name}"\n{style}\n')
    app = console(kit.engine(kit.run(5)), themes=(tmp_path,))
    assert app.broken_themes == ()
    async with run(app) as pilot:
        for _ in app.theme_names:
            await press(pilot, "ctrl+t")
        await press(pilot, "ctrl+p", "t", "h", "e", "escape")
        app.use_theme(name)
        await press(pilot, "question_mark", "escape")
    assert app.crash is None


async def test_a_theme_in_the_terminals_own_colours_may_have_nothing_but_a_primary(
    tmp_path: Path, console: MakeConsole, kit: type[Kit]
) -> None:
    (tmp_path / "mine.yaml").write_text("primary: red\nansi: true\n")
    app = console(kit.engine(kit.run(5)), themes=(tmp_path,), theme="mine")
    assert app.broken_themes == ()
    async with run(app) as pilot:
        for key in ("question_mark", "escape", "d", "escape", "ctrl+p", "escape"):
            await press(pilot, key)
    assert app.crash is None


def test_no_value_of_the_settings_is_an_alias_of_aliases(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    for name in ("keymap", "engine_themes", "theme", "interval", "unknown"):
        deep = "\n  ".join(["", *bomb(), "x: *a12"])
        file.write_text(f"{name}:{deep}")
        with pytest.raises(ConfigError) as caught:
            settings.read(file)
        assert len(caught.value.line()) < 300 + len(str(tmp_path))
    with pytest.raises(ValueError, match="`<<` is not read here"):
        parse_yaml("\n".join(bomb(merge=True)))


@pytest.mark.parametrize("filler", ["", "# " + "x" * 8_000])
@pytest.mark.parametrize(
    "number", ["1" + ":59" * 400 + ".5", "1" + ":59" * 4_000, "0x" + "f" * 9_000]
)
def test_a_number_that_nothing_can_hold_is_refused(
    number: str, filler: str, tmp_path: Path
) -> None:
    file = tmp_path / "file.yaml"
    for line in (f"interval: {number}", f"? {number}\n: 1", f"text_alpha: {number}"):
        file.write_text(f"{PRIMARY}{line}\n{filler}\n")
        for read in (settings.read, theme.read):
            with pytest.raises(ConfigError, match="a number that is too long"):
                read(file)
