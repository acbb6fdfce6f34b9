"""What the check asks the operator: which prompt, and its options as a form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.events import Key
from textual.widgets import Input, Label, OptionList

from specdeck.console import keys
from specdeck.console.screens.dialogs import Modal
from specdeck.console.screens.divergence.prompt_file import BROWSED, load_aside
from specdeck.console.screens.divergence.view import preview
from specdeck.console.widgets.cells import Cell, Row, Tone, join_cells
from specdeck.console.widgets.options import ItemOption, LineList, read_item
from specdeck.console.widgets.text import Line
from specdeck.engine.client.address import engine_url
from specdeck.engine.divergence.prompts import (
    BUNDLED,
    Prompt,
    PromptSet,
    parse_prompt,
)
from specdeck.engine.errors import SpecdeckError, UsageError
from specdeck.engine.operations.check import CheckOptions

LISTED = 2000
"""The most prompts of a file that are shown; a check takes all of them."""


@dataclass(frozen=True, slots=True)
class PickedPrompt:
    """A prompt and where it is from."""

    prompt: Prompt
    source: str | None = None
    """The set or the file; None for what was typed."""
    found: PromptSet | None = None


class PromptPicker(Modal[PickedPrompt | None]):
    """A field for text or a path above a list to move through; escape leaves all as it is."""

    CSS_PATH = "dialogs.tcss"
    VERTICAL_BREAKPOINTS = [(0, "-short"), (22, "-medium")]
    BINDINGS = [
        Binding("escape", "dismiss(None)", "back", id="pick.back"),
        Binding("tab", "app.focus_next", "field or list", id="pick.focus"),
        *(replace(one, priority=True) for one in keys.bindings("prompt")),
    ]

    def __init__(self, source: str, chat_key: str) -> None:
        """`chat_key` is the key that turns what is typed into a message, for the hint."""
        super().__init__()
        self.chat_key = chat_key
        self.source = source
        self.found: PromptSet | None = None
        self.chat = False
        self.sources = (*BUNDLED, *([] if source in BUNDLED else [source]))

    def compose(self) -> ComposeResult:
        """Sets, prompts, the field, keys."""
        with Vertical(id="pick"):
            yield Line(id="sets")
            yield LineList(id="prompts", markup=False, compact=True)
            yield Input(
                id="typed", placeholder="a prompt, a JSON line, or a file's path", compact=True
            )
            yield Line(id="pick-problem", classes="-empty")
            yield Line(id="pick-keys")

    def on_mount(self) -> None:
        """Show the set that the prompt is of."""
        if not self.query("#prompts"):  # closed before it was put together
            return
        self._take(self.source)
        self.query_one("#prompts").focus()

    @work(group="prompts", exclusive=True)
    async def _take(self, source: str, *, then_focus: bool = False) -> None:
        """List a set or a file, or say on the screen why it cannot be read."""
        self._problem(f"reading {source}", tone="muted")
        try:
            found = await load_aside(source)
            listed = tuple(islice(found, LISTED))
        except SpecdeckError as error:
            self._problem(error.line())
            return
        except OSError as error:  # a name that no file can have
            self._problem(f"{source[:40]}…: {error.strerror or error}")
            return
        self.found, self.source = found, source
        if source not in self.sources:
            self.sources = (*BUNDLED, source)
        listing = self.query_one("#prompts", OptionList)
        listing.clear_options()
        listing.add_options(
            ItemOption(f"{one.number:>4} {preview(one)}", PickedPrompt(one, source, found))
            for one in listed
        )
        listing.highlighted = 0
        self._problem("")
        if then_focus:
            listing.focus()

    def _problem(self, text: str, *, tone: Tone = "bad") -> None:
        self.query_one("#pick-problem", Line).row = Row((Cell(text, tone),)) if text else Row()
        names = tuple(
            Cell(f"{Path(name).name}", "strong" if name == self.source else "muted",
                 f"screen.set_source({number})")
            for number, name in enumerate(self.sources)
        )  # fmt: skip
        count = 0 if self.found is None else self.found.count
        counted = f"the first {count:,}" if count == BROWSED else f"{count}"
        self.query_one("#sets", Line).row = Row(
            (*join_cells(names), Cell("  ← →", "key")), (Cell(f"{counted} prompts", "muted"),)
        )
        kind = "chat" if self.chat else "completion"
        self.query_one("#pick-keys", Line).row = Row(
            (Cell("enter ", "key"), Cell("take  ", "muted"), Cell("tab ", "key"),
             Cell("type  ", "muted"), Cell(f"{self.chat_key} ", "key"),
             Cell(f"as {kind}", "muted")),
            (Cell("esc ", "key"), Cell("back", "muted")),
        )  # fmt: skip

    def action_chat(self) -> None:
        """Take typed text for a user's message, or for text to go on from."""
        self.chat = not self.chat
        self._problem("")

    def action_set_source(self, number: int) -> None:
        """Another set."""
        self._take(self.sources[number])

    def on_key(self, event: Key) -> None:
        """Left and right go through the sets while the list has the keys."""
        if not self.query_one("#prompts").has_focus:
            return
        if event.key in ("left", "right"):
            event.stop()
            by = 1 if event.key == "right" else -1
            self._take(self.sources[(self.sources.index(self.source) + by) % len(self.sources)])

    @on(OptionList.OptionSelected)
    def _take_listed(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(read_item(event, PickedPrompt))

    @on(Input.Submitted)
    def _take_typed(self, event: Input.Submitted) -> None:
        text = event.value.strip()
        if not text:
            return
        path = _expand_home(text)
        if _is_path(text, path):
            self._take(str(path), then_focus=True)
            return
        try:
            self.dismiss(PickedPrompt(parse_prompt(text, chat=self.chat)))
        except SpecdeckError as error:
            self._problem(error.line())


def _expand_home(text: str) -> Path:
    """The path that a text would be; one of a user who is not there stays as it is."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)


def _is_path(text: str, path: Path) -> bool:
    """Whether a file is meant: one that is there, or what is spelt as one."""
    if "\n" in text or text.startswith("{"):
        return False
    looks_so = text.startswith(("/", "~/", "./", "../")) or text.endswith((".jsonl", ".txt"))
    try:
        return looks_so or (" " not in text and path.is_file())
    except OSError:  # a text too long for a name
        return False


@dataclass(frozen=True, slots=True)
class Field:
    """One line of the form."""

    name: str
    label: str
    least: int = 1
    most: int = 1_000_000
    empty: str = ""
    """What an empty field means."""


FIELDS = (
    Field("reference", "reference", empty="URL; empty: this engine, k=0"),
    Field("max_tokens", "tokens an answer"),
    Field("replays", "replays", most=100_000),
    Field("streams", "requests at once", most=512),
    Field("prompts", "prompts a check"),
    Field("threshold", "may differ"),
    Field("gentle", "gentle"),
)


def option_texts(now: CheckOptions) -> dict[str, str]:
    """The options that the form has, as text.

    >>> texts = option_texts(CheckOptions())
    >>> texts["threshold"], texts["gentle"]
    ('1.5%', 'no')
    """
    texts = {field.name: str(getattr(now, field.name)) for field in FIELDS}
    return texts | {
        "reference": now.reference or "",
        "threshold": f"{now.threshold * 100:g}%",
        "gentle": "yes" if now.gentle else "no",
    }


def parse_options(texts: Mapping[str, str], now: CheckOptions) -> CheckOptions:
    """`now` with what was typed; raises UsageError for what is no option.

    >>> now = CheckOptions(replays=50, gentle=True)
    >>> parse_options(option_texts(now), CheckOptions()) == now
    True
    """
    numbers = {field.name: _number(field, texts[field.name]) for field in FIELDS[1:5]}
    return replace(
        now,
        reference=_reference(texts["reference"].strip()),
        threshold=_share(texts["threshold"].strip()),
        gentle=_is_yes(texts["gentle"].strip().lower()),
        max_tokens=numbers["max_tokens"],
        replays=numbers["replays"],
        streams=numbers["streams"],
        prompts=numbers["prompts"],
    )


def _reference(text: str) -> str | None:
    if not text:
        return None
    # A name from `ps` is one word; it is looked up when it is asked.
    return text if text.replace("-", "").replace("_", "").isalnum() else engine_url(text)


def _number(field: Field, text: str) -> int:
    try:
        number = int(text.strip())
    except ValueError:
        number = 0
    if not field.least <= number <= field.most:
        raise UsageError(
            f"{field.label}: {text.strip() or 'nothing'} is not a valid number",
            remedy=f"give {field.least} to {field.most}",
        )
    return number


_LARGE = 0.05
"""A share of prompts that is rarely let differ."""


def _share(text: str) -> float:
    """What may differ, as a share; raises UsageError for what is none, or may be meant in percent.

    >>> _share("1.5%"), _share("0.015")
    (0.015, 0.015)
    """
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise UsageError(f"may differ: {text or 'nothing'} is no share", remedy="give 1.5% or so")
    if share >= _LARGE and not text.endswith("%"):
        # The line has it in percent: half of one is meant as likely as half of all.
        raise UsageError(
            f"may differ: {text} would be {share * 100:g}%",
            remedy=f"give {text}% or {share * 100:g}%",
        )
    return share


def _is_yes(text: str) -> bool:
    if text not in ("yes", "no", "y", "n"):
        raise UsageError(f"gentle: {text or 'nothing'} is no answer", remedy="give yes or no")
    return text.startswith("y")


class CheckForm(Modal[CheckOptions | None]):
    """Enter takes everything, escape nothing."""

    CSS_PATH = "dialogs.tcss"
    BINDINGS = [
        Binding("escape", "dismiss(None)", "back", id="form.back"),
        Binding("down", "app.focus_next", "next", id="form.next"),
        Binding("up", "app.focus_previous", "previous", id="form.previous"),
    ]

    def __init__(self, now: CheckOptions) -> None:
        super().__init__()
        self.now = now

    def compose(self) -> ComposeResult:
        """A line for each option."""
        texts = option_texts(self.now)
        with VerticalScroll(id="form", can_focus=False):
            for field in FIELDS:
                with Horizontal(classes="option"):
                    yield Label(field.label, markup=False)
                    yield Input(
                        texts[field.name], id=field.name, placeholder=field.empty, compact=True
                    )
            yield Line(id="form-problem")
            yield Line(id="form-keys")

    def on_mount(self) -> None:
        """Begin with the first."""
        if not self.query("#form-keys"):  # closed before it was put together
            return
        self.query_one("#form-keys", Line).row = Row(
            (Cell("enter ", "key"), Cell("take all  ", "muted"), Cell("↑ ↓ ", "key"),
             Cell("move", "muted")),
            (Cell("esc ", "key"), Cell("back", "muted")),
        )  # fmt: skip
        self.query_one(f"#{FIELDS[0].name}").focus()

    @on(Input.Submitted)
    def _take_form(self) -> None:
        texts = {field.name: self.query_one(f"#{field.name}", Input).value for field in FIELDS}
        try:
            found = parse_options(texts, self.now)
        except UsageError as error:
            self.query_one("#form-problem", Line).row = Row((Cell(error.line(), "bad"),))
        else:
            self.dismiss(found)
