"""The load generator as a child process: it ends with its parent, however that ends."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress

from specdeck.engine.fingerprint.secret_names import drop_secrets

PROFILES = ("predictable", "hard", "mixed", "burst", "prompts")
"""The profiles of `engine.demo.profiles`, in the order in which they are stepped through."""


class LoadProcess:
    """Load on one engine, steered through the child's stdin; its end ends the load."""

    def __init__(
        self,
        url: str,
        profile: str,
        *,
        environment: Mapping[str, str],
        api_key_env: str | None = None,
        python: str = sys.executable,
        module: str = "specdeck.engine.demo.load",
    ) -> None:
        """`module` is run as the child; one of its own takes words before the URL in `start`.

        Of the credentials in `environment` the child has only the API key that `api_key_env` names.
        """
        self._program = [python, "-P", "-m", module]
        self._url = url
        self._key = ["--api-key-env", api_key_env] if api_key_env else []
        self._environment = drop_secrets(environment, keep=filter(None, (api_key_env,)))
        self._profile = profile
        self._popen: subprocess.Popen[bytes] | None = None

    @property
    def profile(self) -> str:
        """The profile that runs, or that will once the load is started."""
        return self._profile

    @property
    def pid(self) -> int | None:
        """The child's pid; None while there is none."""
        return self._popen.pid if self._popen else None

    def start(self, *words: str) -> None:
        """Begins the load; `words` stand before the URL."""
        self._popen = subprocess.Popen(
            [*self._program, *words, self._url, "--profile", self._profile, *self._key],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=self._environment,
            # The terminal's Ctrl-C is for the console; the load ends when its stdin does.
            start_new_session=True,
        )

    def next(self) -> str:
        """Switches to the next profile and names it."""
        self._profile = PROFILES[(PROFILES.index(self._profile) + 1) % len(PROFILES)]
        if self._popen is not None and self._popen.stdin is not None:
            with suppress(BrokenPipeError):
                self._popen.stdin.write(f"{self._profile}\n".encode())
                self._popen.stdin.flush()
        return self._profile

    def close(self, patience_s: float = 3.0) -> None:
        """Ends the load; a child that does not listen is killed."""
        if self._popen is None or self._popen.stdin is None:
            return
        with suppress(BrokenPipeError):
            self._popen.stdin.close()
        try:
            self._popen.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
