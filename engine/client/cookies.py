"""What an engine or a webhook has somebody remember: nothing."""

from __future__ import annotations

from http.cookiejar import CookieJar
from typing import Any


class NoCookies(CookieJar):
    """A jar that stays empty, whatever is put into it.

    A client lives as long as its console, and cookies have no bound: an engine could have them
    grow until every request carries megabytes. Reading them is as dear: a head of 90 KB may take
    seconds, in which the loop does nothing else.
    """

    def extract_cookies(self, response: Any, request: Any) -> None:
        """Leaves the answer's headers unread."""

    def set_cookie(self, cookie: Any) -> None:
        """Drops it."""
