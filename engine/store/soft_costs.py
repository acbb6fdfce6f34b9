"""What soft k = 0 takes longer than no speculation, by the config that it was measured with."""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields

from specdeck.engine.store.database import Store


@dataclass(frozen=True, slots=True)
class SoftCost:
    """One measurement."""

    t: float
    """Unix time, seconds."""
    config: str
    """See `starts.config_key`."""
    arguments: str
    """See `Config.arguments_digest`."""
    cost: float
    """A share: 0.07 is seven percent longer."""
    low: float
    high: float
    batch: float | None
    """Requests in a step, on average."""
    load: str
    """The load that it was measured under, such as `predictable, 4 streams`."""


_COLUMNS = ", ".join(field.name for field in fields(SoftCost))


class SoftCosts:
    """Those in a store; every method raises SpecdeckError when the file cannot be used."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(self, found: SoftCost) -> None:
        """Remembers a measurement."""
        marks = ", ".join("?" for _ in fields(SoftCost))
        with self._store.transaction() as db:
            db.execute(f"INSERT INTO soft_costs ({_COLUMNS}) VALUES ({marks})", astuple(found))

    def last(self, config: str, arguments: str) -> SoftCost | None:
        """The latest one of this config with these arguments; None when there is none."""
        with self._store.transaction(write=False) as db:
            row = db.execute(
                f"SELECT {_COLUMNS} FROM soft_costs WHERE config = ? AND arguments = ?"
                " ORDER BY t DESC, id DESC LIMIT 1",
                (config, arguments),
            ).fetchone()
        return SoftCost(*row) if row else None
