"""Screens that lie over the live one: it goes on following and steering beneath them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.screen import Screen

from specdeck.console.screens.steering import SteeringScreen
from specdeck.console.view.track import Track

if TYPE_CHECKING:
    from specdeck.console.app import Console


class OverScreen(Screen[None]):
    """Looks at the engine of the live screen in one particular way; escape goes back there."""

    def __init__(self, live: SteeringScreen) -> None:
        super().__init__()
        self.live = live
        """Has the desk, the engines' tracks and the engine that is selected."""

    def show(self) -> None:
        """Bring what the live screen knows by now onto this one."""
        raise AssertionError("a screen over the live one says what it shows")

    def action_over(self, name: str) -> None:
        """Put another screen, or the same one anew, in this one's place."""
        if not isinstance(self, screen(name)):
            self.app.switch_screen(screen(name)(self.live))

    def action_back(self) -> None:
        """The live screen again."""
        self.dismiss()

    def spelt(self, name: str) -> str:
        """The key of an action, for a hint."""
        return self.live.desk.spelt(name)

    @property
    def track(self) -> Track:
        """The engine of the live screen over time."""
        return self.live.tracks[self.live.selected]

    @property
    def console(self) -> Console:
        """The app, as what it is."""
        from specdeck.console.app import Console

        assert isinstance(self.app, Console)  # nothing else pushes these screens
        return self.app


def screen(name: str) -> type[OverScreen]:
    """The screen that a key names; imported when it is first wanted."""
    if name == "divergence":
        from specdeck.console.screens.divergence import DivergenceScreen

        return DivergenceScreen
    if name == "fingerprint":
        from specdeck.console.screens.fingerprint import FingerprintScreen

        return FingerprintScreen
    from specdeck.console.screens.tuning import TuningScreen

    return TuningScreen
