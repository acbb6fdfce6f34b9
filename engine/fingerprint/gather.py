"""Reads what takes long to read, in a process beside the engine: models, libraries and code.

Parsing a tokenizer or hashing weights in one of the engine's own threads would hold its
interpreter again and again. `python -m specdeck.engine.fingerprint.gather FD` takes one JSON
object on stdin and writes JSON lines to that descriptor: progress, and at last the result.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from specdeck.engine.fingerprint import package_code
from specdeck.engine.fingerprint.digest import Digests, total_size
from specdeck.engine.fingerprint.distributions import Brought
from specdeck.engine.fingerprint.loaded_files import list_code, list_settings
from specdeck.engine.fingerprint.sources import (
    TOKENIZER_FILES,
    Text,
    Version,
    digest_shape,
    digest_tokenizer,
    find_model,
    list_installed,
    read_machine,
    read_sampling,
    shorten,
    text,
    version,
    weight_files,
)
from specdeck.engine.fingerprint.start_changes import StartChanges

Say = Callable[[dict[str, Any]], None]

NICENESS = 10
_EVERY_S = 0.25
"""Between two lines of progress, seconds."""


class Gatherer:
    """Gathers facts, and keeps book of what could not be read and how far it is."""

    def __init__(
        self,
        digests: Digests,
        environment: Mapping[str, str],
        say: Say = lambda _: None,
        *,
        clock: Callable[[], float] = time.monotonic,
        text: Text = text,
        version: Version = version,
    ) -> None:
        self._digests = digests
        self._environment = environment
        self._say = say
        self._clock = clock
        self._text = text
        self._version = version
        self._unread: list[dict[str, str]] = []
        self._changes = StartChanges(None)
        self._downloads: set[Path] = set()
        """Folders in a hub's cache, into which the start itself may have put what is new there."""
        self._total = self._done = 0
        self._said = float("-inf")

    def gather(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Facts of the models, tokenizers, libraries and packages that `request` names.

        A file that cannot be read is named under `unread` with its reason, and so is one that has
        changed since `began`, when the engine began to start: it may have loaded another.
        """
        self._changes = StartChanges(request.get("began"))
        models: dict[str, Any] = dict(request.get("models") or {})
        places = {role: self._place(role, model) for role, model in models.items()}
        libraries = shorten(request.get("libraries") or ())
        weights = {
            role: self._weights_place(role, models[role], place) for role, place in places.items()
        }
        files = {role: self._weights(role, models[role], place) for role, place in weights.items()}
        self._total = total_size(path for found in files.values() for path in found)
        self._total += total_size(map(Path, libraries.values()))
        brought = Brought(metadata.distributions())
        code = package_code.choose_packages(
            request.get("loaded") or {},
            request.get("named") or {},
            search=request.get("search") or (),
            brought=brought,
        )
        # vLLM's libraries are facts once they are mapped.
        code_files = {
            name: {
                place: package_code.list_code(place, compiled=name != "vllm") for place in places
            }
            for name, places in code.items()
        }
        self._total += total_size(
            path for found in code_files.values() for paths in found.values() for path in paths
        )
        facts: dict[str, Any] = {}
        for role, place in places.items():
            facts[role] = self._model(role, models[role], place, weights[role], files[role])
        known = set(places.values())
        for role, model in (request.get("tokenizers") or {}).items():
            facts[role] = self._tokenizer(role, model, known)
        runtime = read_machine(self._text, self._version)
        runtime["libraries"] = self._hash_files(
            "runtime.libraries", {name: Path(path) for name, path in libraries.items()}
        )
        self._note_installs(request.get("search") or ())
        digests = self._digest_packages(code_files) | self._digest_startup(request, brought)
        if digests:
            runtime["code"] = digests
        self._digests.save()
        return {"model": facts, "runtime": runtime, "unread": self._unread, "bytes": self._done}

    def _find(self, name: str, revision: str | None, **more: str) -> Path | None:
        """Where a model lies; `more` are variables beside those of the environment."""
        found = find_model(name, revision, {**self._environment, **more})
        if found is not None and found != Path(name).expanduser():
            self._downloads.add(found)
        return found

    def _place(self, role: str, model: Mapping[str, Any]) -> Path | None:
        found = self._find(str(model["name"]), model.get("revision"))
        if found is None:
            self._miss(f"model.{role}", "its files are not on this machine")
        return found

    def _weights_place(
        self, role: str, model: Mapping[str, Any], place: Path | None
    ) -> Path | None:
        """The folder of the weights: another one where vLLM keeps its downloads apart."""
        downloads = model.get("downloads")
        if place is None or not downloads or model.get("load_format") == "dummy":
            return place
        if Path(str(model["name"])).expanduser().exists():
            return place
        found = self._find(str(model["name"]), model.get("revision"), HF_HUB_CACHE=str(downloads))
        if found is None:
            self._miss(f"model.{role}.weights", "its downloads are not on this machine")
        return found

    def _weights(self, role: str, model: Mapping[str, Any], place: Path | None) -> list[Path]:
        if place is None or model.get("load_format") == "dummy":
            return []
        found = weight_files(place, str(model.get("load_format") or "auto"))
        if not found:
            self._miss(f"model.{role}.weights", "no file with weights is there")
        return found

    def _model(
        self,
        role: str,
        model: Mapping[str, Any],
        place: Path | None,
        weights: Path | None,
        files: list[Path],
    ) -> dict[str, Any] | None:
        if place is None:
            return None
        found: dict[str, Any] = {
            "weights": self._hash_files(
                f"model.{role}.weights", {path.name: path for path in files}
            )
        }
        config = self._config_place(role, model, place)
        defaults = self._defaults_place(role, model, config)
        readers = (
            ("shape", digest_shape, config, "config.json"),
            ("sampling", read_sampling, defaults, "generation_config.json"),
        )
        for name, read, where, file in readers:
            if where is None:
                found[name] = None
                continue
            self._note_change(f"model.{role}.{name}", where / file)
            try:
                found[name] = read(where)
            except (OSError, ValueError) as error:
                self._miss(f"model.{role}.{name}", reason(error))
        folders = [("files", place)]
        for name, other in (("config_files", config), ("downloaded_files", weights)):
            if other not in (place, None):
                folders.append((name, other))
        for name, where in folders:
            self._note_change(f"model.{role}.{name}", where, entries=True)
            if digests := self._digest_small_files(f"model.{role}.{name}", model, where):
                found[name] = digests
        return found

    def _defaults_place(
        self, role: str, model: Mapping[str, Any], config: Path | None
    ) -> Path | None:
        """The folder of the defaults of requests, which may be one of their own."""
        if not model.get("generation"):
            return config
        found = self._find(str(model["generation"]), None)
        if found is None:
            self._miss(f"model.{role}.sampling", "its folder is not on this machine")
        return found

    def _config_place(self, role: str, model: Mapping[str, Any], place: Path) -> Path | None:
        """The folder of config.json, where vLLM was given another one than that of the weights."""
        if not model.get("config"):
            return place
        found = self._find(str(model["config"]), model.get("revision"))
        if found is None:
            self._miss(f"model.{role}.shape", "its config is not on this machine")
        return found

    def _tokenizer(
        self, role: str, model: Mapping[str, Any], known: Collection[Path | None]
    ) -> dict[str, Any] | None:
        """`known` are folders whose small files stand under their models."""
        if (place := self._place(role, model)) is None:
            return None
        for name in TOKENIZER_FILES:
            self._note_change(f"model.{role}.{name}", place / name)
        try:
            found: dict[str, Any] = digest_tokenizer(place)
        except (OSError, ValueError) as error:
            self._miss(f"model.{role}", reason(error))
            return None
        if place not in known:
            self._note_change(f"model.{role}.files", place, entries=True)
            if digests := self._digest_small_files(f"model.{role}.files", model, place):
                found["files"] = digests
        return found

    def _digest_small_files(
        self, fact: str, model: Mapping[str, Any], where: Path
    ) -> dict[str, str | None]:
        """Of the small files in `where`, code among them where the engine runs it."""
        if not where.is_dir():  # the one file of a GGUF
            return {}
        found: dict[str, Path | None] = {**list_settings(where)}
        if model.get("trusted"):
            revision = model.get("code_revision")
            try:
                found |= list_code(where, lambda name: self._find(name, revision))
            except (OSError, ValueError) as error:
                self._miss(f"{fact}.code", reason(error))
        for name, path in found.items():
            if path is None:
                self._miss(f"{fact}.{name}", "its code is not on this machine")
        there = {name: path for name, path in found.items() if path}
        self._total += total_size(there.values())
        return self._hash_files(fact, there)

    def _digest_packages(self, packages: Mapping[str, Mapping[Path, list[Path]]]) -> dict[str, str]:
        found = {}
        for name, files in packages.items():
            # What is loaded by its path may be made at every start: its content counts alone.
            if name != package_code.BY_PATH:
                paths = (path for within in files.values() for path in within)
                self._add_change(f"runtime.code.{name}", self._changes.describe_any(paths))
            read = partial(self._read, name)
            try:
                found[name] = package_code.digest_code(files, read)
            except OSError as error:
                self._miss(f"runtime.code.{name}", reason(error))
        return found

    def _digest_startup(self, request: Mapping[str, Any], brought: Brought) -> dict[str, str]:
        try:
            return package_code.digest_startup(request.get("search") or (), brought)
        except OSError as error:
            self._miss("runtime.code.pth", reason(error))
            return {}

    def _hash_files(self, fact: str, files: Mapping[str, Path]) -> dict[str, str | None]:
        found: dict[str, str | None] = {}
        for name, path in files.items():
            self._note_change(f"{fact}.{name}", path)
            try:
                found[name] = self._digests.of(path, partial(self._read, name))
            except OSError as error:
                found[name] = None
                self._miss(f"{fact}.{name}", reason(error))
        return found

    def _note_installs(self, search: Iterable[str]) -> None:
        """A version is read where its package is installed, which may be newer than what runs."""
        for name, path in list_installed(search).items():
            self._add_change(f"runtime.versions.{name}", self._changes.describe(path))

    def _note_change(self, fact: str, path: Path, *, entries: bool = False) -> None:
        if self._downloads.isdisjoint((path, *path.parents)):
            self._add_change(fact, self._changes.describe(path, entries=entries))

    def _add_change(self, fact: str, change: str | None) -> None:
        if change:
            self._miss(fact, change)

    def _read(self, name: str, count: int) -> None:
        self._done += count
        now = self._clock()
        if now - self._said >= _EVERY_S:
            self._said = now
            self._say({"bytes": self._done, "total_bytes": self._total, "file": name})

    def _miss(self, fact: str, why: str) -> None:
        self._unread.append({"fact": fact, "reason": why})


def reason(error: Exception) -> str:
    """An error in few words, without the path that the fact names anyway.

    >>> reason(PermissionError(13, "Permission denied", "/secret/path"))
    'Permission denied'
    """
    said = error.strerror if isinstance(error, OSError) else None
    return (said or " ".join(str(error).split()) or type(error).__name__)[:120]


def main() -> None:
    """One request on stdin, lines of JSON on the descriptor that is the first argument."""
    with suppress(OSError):
        os.nice(NICENESS)
    request = json.loads(sys.stdin.readline())
    cache = request.get("cache")
    # The reader is the engine: when it has gone, the pipe is closed and this ends.
    with suppress(BrokenPipeError), open(int(sys.argv[1]), "w", encoding="utf-8") as answers:

        def tell(value: dict[str, Any]) -> None:
            answers.write(json.dumps(value) + "\n")
            answers.flush()

        gatherer = Gatherer(Digests(Path(cache) if cache else None), os.environ, tell)
        tell({"result": gatherer.gather(request)})


if __name__ == "__main__":
    main()
