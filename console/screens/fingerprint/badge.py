"""The three names on the live screen, and the badge that says one differs from its pin."""

from __future__ import annotations

from specdeck.console.state.fingerprint_names import FingerprintNames
from specdeck.console.widgets.cells import BLANK, Cell, Cells, Row, Tone


def digits(name: str | None, count: int) -> str:
    """A name as short as it is told apart: its letter, a tilde when partial, and `count` digits.

    >>> digits("sd1:p~0f3a9c1288aa77bb", 4), digits("sd1:b0f3a9c1288aa77bb", 4)
    ('p~0f3a', 'b0f3a')
    """
    if name is None:
        return ""
    bare = name.rpartition(":")[2]
    return bare[: count + (2 if "~" in bare[:2] else 1)]


def names(found: FingerprintNames, path: str | None, *, live: bool) -> Row:
    """All three in a line; `path` is the engine's latest word, which moves before the others.

    >>> found = FingerprintNames("sd1:b0123456789abcdef", "sd1:p0123456789abcdef")
    >>> row = names(found, None, live=True)
    >>> [cell.text for cell in row.right]
    ['b01234567', ' ', 'p01234567', ' ', 'x–']
    """
    right, *shorter = (_names(found, path or found.path, count, live) for count in (8, 7, 6, 5, 4))
    return Row((Cell("sd1:", "muted"),), right, shorter=tuple(shorter))


def _names(found: FingerprintNames, path: str, count: int, live: bool) -> Cells:
    layers = (("build", found.build), ("path", path), ("behaviour", found.behaviour))
    cells: list[Cell] = []
    for layer, name in layers:
        tone: Tone = "plain" if live else "muted"
        if live and found.differs is not None:
            # A path differs with every build.
            tone = "warn" if found.differs in (layer, "build") and name else tone
        text = digits(name, count)
        cells += [Cell(" ")] if cells else []
        cells.append(Cell(text, tone) if text else Cell(f"x{BLANK.text}", "muted"))
    return tuple(cells)


def badge(found: FingerprintNames | None) -> Cells:
    """What stands beside up and armed while a name differs from its pin.

    >>> badge(FingerprintNames("b", "p", pinned=True, differs="path"))[0].text
    '≠ pin: path'
    """
    if found is None or found.differs is None:
        return ()
    return (Cell(f"≠ pin: {found.differs}", "bad", "app.open_screen('fingerprint')"), Cell("  "))
