"""Permission for tiles is asked for where a CPU has them, and by engines on a CPU alone."""

from types import SimpleNamespace

import pytest

from specdeck.engine.plugin.cpu_tiles import permit_tiles


@pytest.mark.parametrize(
    ("cuda", "has_tiles", "granted", "asked", "result"),
    [
        (None, True, True, 1, True),
        (None, True, False, 1, False),
        (None, False, True, 0, False),
        ("13.0", True, True, 0, False),
    ],
)
def test_tiles_are_asked_for_where_they_are(
    cuda: str | None, has_tiles: bool, granted: bool, asked: int, result: bool
) -> None:
    calls: list[str] = []

    def ask() -> bool:
        calls.append("asked")
        return granted

    torch = SimpleNamespace(
        cpu=SimpleNamespace(_is_amx_tile_supported=lambda: has_tiles, _init_amx=ask),
        version=SimpleNamespace(cuda=cuda, hip=None),
    )
    assert permit_tiles(torch) is result
    assert len(calls) == asked


def test_a_torch_without_it_is_left_alone() -> None:
    torch = SimpleNamespace(cpu=SimpleNamespace(), version=SimpleNamespace(cuda=None, hip=None))
    assert not permit_tiles(torch)
