"""Lines of a list that know what they stand for.

A key or a click on a line is handled after the list may have changed: by then its number is
another line's, or none's.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Generic, TypeVar

from textual.visual import VisualType
from textual.widgets import OptionList
from textual.widgets.option_list import Option

_T = TypeVar("_T")


class ItemOption(Option, Generic[_T]):
    """A line for `item`."""

    def __init__(self, line: VisualType, item: _T) -> None:
        super().__init__(line)
        self.item = item


class LineList(OptionList):
    """An OptionList with keys that may come before it is drawn.

    Textual counts lines as it draws: until then a page of them is a KeyError or an IndexError.
    """

    def action_page_up(self) -> None:
        """As Textual does, once there are lines."""
        with suppress(KeyError, IndexError):
            super().action_page_up()  # type: ignore[no-untyped-call]

    def action_page_down(self) -> None:
        """As Textual does, once there are lines."""
        with suppress(KeyError, IndexError):
            super().action_page_down()  # type: ignore[no-untyped-call]


def read_item(event: OptionList.OptionSelected, kind: type[_T]) -> _T:
    """What the line stands for that was chosen; raises TypeError for another list's."""
    item = event.option.item if isinstance(event.option, ItemOption) else None
    if not isinstance(item, kind):
        raise TypeError(f"the line stands for {type(item).__name__}, not {kind.__name__}")
    return item
