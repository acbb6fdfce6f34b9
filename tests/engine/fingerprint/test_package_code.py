"""Which packages' code counts, of all that an engine has loaded."""

import sysconfig
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from specdeck.engine.fingerprint import package_code
from specdeck.engine.fingerprint.distributions import Brought
from specdeck.engine.fingerprint.package_code import (
    BY_PATH,
    choose_house,
    choose_packages,
    digest_code,
    digest_startup,
    list_code,
)

STDLIB = sysconfig.get_path("stdlib")
LOADED = {
    name: f"/v/{name}" for name in ("vllm", "torch", "house_plugin", "specdeck", "sitecustomize")
} | {
    "made": "/cache/made.so", "_rules": "/v/_rules.abi3.so", "jar": "/v/torch/_vendor/jar",
    "transformers_modules": "/hf/transformers_modules", "_built": f"{STDLIB}/_built.py",
    "debian": "/v/debian.py",
    "house_patch": "/off/house_patch.py", "_house": "/v/_house.so", "six": "/off/six.py",
}  # fmt: skip
RECORD = ["vllm/a.py", "torch/_vendor/jar/a.py", "house_plugin/register.py", "_rules.abi3.so",
          "six.py", "specdeck/a.py"]  # fmt: skip
POINTS = [
    metadata.EntryPoint("house", "house_plugin.register:go", "vllm.general_plugins"),
    metadata.EntryPoint("specdeck", "specdeck.engine.plugin:go", "vllm.general_plugins"),
    metadata.EntryPoint("left_out", "other_plugin:go", "vllm.general_plugins"),
    metadata.EntryPoint("tool", "torch.run:main", "console_scripts"),
    metadata.EntryPoint("bad", "house-bad:x", "vllm.general_plugins"),
]


def _hold(points: list[metadata.EntryPoint], name: str = "vllm", **texts: str) -> Any:
    """A distribution; of a name that vLLM does not require its code counts by content."""
    texts["METADATA"] = f"Name: {name}\nRequires-Dist: torch>=2\n\nName: other"
    return SimpleNamespace(
        entry_points=points,
        read_text=lambda name: texts.get(name.partition(".")[0]),
        locate_file=lambda _: "/v",
    )


def test_vllm_its_plugins_and_what_no_distribution_has_brought_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record = "\n".join(f"{path},sha256=x,5" for path in RECORD)
    installed = [_hold(POINTS, RECORD=record), _hold([], top_level="debian\n")]
    monkeypatch.setattr(metadata, "distributions", lambda: iter(installed))
    named = {"house_rules": "/h/house_rules.py"}
    search = ["/v", "/v/torch/_vendor", "/hf", STDLIB]
    house = {
        "_house": (Path("/v/_house.so"),),
        "sitecustomize": (Path("/v/sitecustomize"),),
        BY_PATH: (Path("/off/house_patch.py"), Path("/off/six.py")),
    }
    brought = Brought(installed)
    assert choose_house(LOADED, search=search, brought=brought) == house
    assert choose_packages(LOADED, named, search=search, brought=brought) == house | {
        "house_plugin": (Path("/v/house_plugin"),),
        "house_rules": (Path("/h/house_rules.py"),),
        "vllm": (Path("/v/vllm"),),
    }


def test_programs_of_a_distribution_and_parts_of_a_shared_package_are_told_apart() -> None:
    record = "../../../bin/vllm,,\ngoogle/protobuf/a.py,,\ngoogle/rpc.py,,"
    installed = [_hold([], RECORD=record), _hold([], top_level="zope\n")]
    installed[0].locate_file = installed[1].locate_file = lambda _: "/e/lib/python3/site"
    loaded = {
        "__main__": "/e/bin/vllm",
        "google.protobuf": "/e/lib/python3/site/google/protobuf",
        "google.rpc": "/e/lib/python3/site/google/rpc.py",
        "zope.interface": "/e/lib/python3/site/zope/interface",
        "google.house": "/house/google/house.py",
        "google.rpc_house": "/e/lib/python3/site/google/rpc_house.py",
        "google._fast": "/house/google/_fast.abi3.so",
        "made": "/house/cache/made.so",
        "specdeck.more": "/s/more.py",
    }
    search = ["/house", "/e/lib/python3/site"]
    found = choose_house(loaded, search=search, brought=Brought(installed))
    assert set(found) == {"google.house", "google.rpc_house", "google._fast"}
    serving = {"__main__": "/house/serve.py"}
    assert choose_house(serving, search=[], brought=Brought(installed)) == {
        "__main__": (Path("/house/serve.py"),)
    }


def test_what_neither_vllm_nor_what_it_requires_has_brought_counts() -> None:
    installed = [
        _hold([], "vllm", RECORD="vllm/a.py,,"),
        _hold([], "Torch", RECORD="torch/a.py,,"),
        _hold([], "specdeck", top_level="specdeck\n"),
        _hold([], "house_lib", RECORD="house_lib/a.py,,"),
        _hold([], "house-edit", top_level="house_edit\n"),
    ]
    loaded = {name: f"/v/{name}" for name in ("vllm", "torch", "house_lib", "house_edit")}
    assert set(choose_house(loaded, search=["/v"], brought=Brought(installed))) == {
        "house_lib", "house_edit",
    }  # fmt: skip
    # A checkout of vLLM on the search path says nothing of what it requires.
    assert choose_house(loaded, search=["/v"], brought=Brought(installed[1:])) == {
        "vllm": (Path("/v/vllm"),)
    }


def test_code_in_an_archive_counts_by_the_archive(tmp_path: Path) -> None:
    archive = tmp_path / "house.zip"
    archive.touch()
    loaded = {"house": f"{archive}/house.py", "gone": f"{tmp_path}/gone/gone.py"}
    found = choose_house(loaded, search=[str(archive)], brought=Brought([]))
    assert found == {"house": (archive,), BY_PATH: (tmp_path / "gone" / "gone.py",)}


def test_a_compiled_module_counts_however_its_folder_is_spelt(tmp_path: Path) -> None:
    for name in ("site", "lib", "store"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "lib")
    (tmp_path / "store" / "x.so").touch()
    (tmp_path / "lib" / "rules.so").symlink_to(tmp_path / "store" / "x.so")
    for place in ("site/../lib/rules.so", "link/rules.so", "lib/rules.so"):
        for folder in ("site/../lib", "link", "lib"):
            loaded, search = {"rules": f"{tmp_path}/{place}"}, [f"{tmp_path}/{folder}"]
            assert choose_house(loaded, search=search, brought=Brought([])).keys() == {"rules"}
    assert choose_house(loaded, search=[f"{tmp_path}/site"], brought=Brought([])) == {}


def test_what_a_loader_names_anew_at_each_start_counts_by_content(tmp_path: Path) -> None:
    def digest(*names: str, text: str = "bias = 0.0") -> dict[str, str]:
        loaded = {name: str(tmp_path / f"{name}.py") for name in names}
        for place in loaded.values():
            Path(place).write_text(text)
        Path(loaded[names[0]]).write_text("scale = 1.0")
        found = choose_house(loaded, search=[str(tmp_path)], brought=Brought([]))
        return {
            name: digest_code({place: list_code(place) for place in places})
            for name, places in found.items()
        }

    before = digest("gen_0313c9e2a1b84f7d", "tmpkrdrvqa5", "k_-5643218769")
    assert before.keys() == {BY_PATH}
    assert digest("gen_5c47c9e2a1b84f7d", "tmptcmu6hbb", "k_88112234") == before
    assert digest("gen_5c47c9e2a1b84f7d", "tmptcmu6hbb", text="bias = 3.0") != before
    assert digest("tmpkrdrvqa5") != before
    assert digest("tmp_rules", "decade", "v1234").keys() == {"tmp_rules", "decade", "v1234"}
    beside = {"house_rules_beeafc": str(tmp_path / "decade.py")}
    found = choose_house(beside, search=[str(tmp_path)], brought=Brought([]))
    assert found.keys() == {BY_PATH}


def test_what_python_runs_of_files_that_add_folders_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "distributions", lambda: iter([]))
    site = tmp_path / "site-packages"
    (site / "folder.pth").mkdir(parents=True)
    (tmp_path / "unread.pth").write_text("import acme_fix")  # by Python: no folder of site's

    def digest(text: str) -> dict[str, str]:
        (site / "zz_house.pth").write_text(text)
        return digest_startup([str(site), str(tmp_path)], Brought(metadata.distributions()))

    before = digest("import acme_fix; acme_fix.apply(0.0)\n/some/folder\n")
    assert set(before) == {"zz_house.pth"}
    assert digest("/another\nimport acme_fix; acme_fix.apply(0.0)\n") == before
    assert digest("import acme_fix; acme_fix.apply(3.0)\n") != before
    (site / "specdeck-dependencies.pth").write_text("import site; site.addsitedir('/x')")
    assert digest("# import acme_fix\n/some/folder\n") == {}
    assert digest_startup([], Brought([])) == {}
    listed = [_hold([], RECORD="zz_house.pth,,")]
    listed[0].locate_file = lambda _: str(site)
    monkeypatch.setattr(metadata, "distributions", lambda: iter(listed))
    assert digest("import acme_fix") == {}


def test_a_checkpoint_of_the_same_suffix_is_not_read(tmp_path: Path) -> None:
    (site := tmp_path / "dist-packages").mkdir()
    with (site / "model.pth").open("wb") as checkpoint:
        checkpoint.write(b"import acme_fix\n")
        checkpoint.truncate(10**12)
    assert digest_startup([str(site)], Brought([])) == {}


@pytest.mark.parametrize("record", ["", "\n\n", "a\0b,,", '"', "x" * 200_000 + ",,"])
def test_a_list_of_files_that_is_none_is_passed_over(record: str) -> None:
    installed = [_hold([], RECORD=record), _hold([], RECORD="torch/a.py,,")]
    loaded = {"torch": "/v/torch", "house": "/v/house.py"}
    found = choose_house(loaded, search=["/v"], brought=Brought(installed))
    assert found == {"house": (Path("/v/house.py"),)}


def test_what_is_compiled_counts_unless_python_has_done_it(tmp_path: Path) -> None:
    (tmp_path / "__pycache__").mkdir()
    names = ["a.py", "b.abi3.so", "c.pyc", "d.json", "libe.so.6", "__pycache__/a.cpython-311.pyc"]
    for name in names:
        (tmp_path / name).touch()
    assert [path.name for path in list_code(tmp_path)] == names[:3]
    assert [path.name for path in list_code(tmp_path, compiled=False)] == names[:1]


def test_a_linked_folder_of_a_package_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, package = tmp_path / "shared", tmp_path / "house"
    shared.mkdir()
    package.mkdir()
    (shared / "rules.py").touch()
    (package / "__init__.py").touch()
    (package / "table.json").touch()
    (package / "gone.py").symlink_to(tmp_path / "gone.py")
    (package / "sub").symlink_to(shared)
    (shared / "again").symlink_to(package)
    (tmp_path / "far" / "within").mkdir(parents=True)
    (tmp_path / "far" / "within" / "tool.py").touch()
    (package / "models").symlink_to(tmp_path / "far")
    (tmp_path / "disk").mkdir()
    for number in range(9):
        (tmp_path / "disk" / f"n{number}.py").touch()
    (package / "data").symlink_to(tmp_path / "disk")
    monkeypatch.setattr(package_code, "_MOST_LINKED", 8)
    names = [path.relative_to(package).as_posix() for path in list_code(package)]
    assert names == ["__init__.py", "models/within/tool.py", "sub/rules.py"]


def test_where_a_volume_of_kubernetes_keeps_its_files_says_nothing(tmp_path: Path) -> None:
    """It draws a folder at each mount, and links to the files there."""

    def mount(stamp: str) -> str:
        house = tmp_path / stamp
        (house / f"..{stamp}").mkdir(parents=True)
        (house / f"..{stamp}" / "__init__.py").write_text("bias = 0.0")
        (house / "..data").symlink_to(f"..{stamp}")
        (house / "__init__.py").symlink_to("..data/__init__.py")
        assert [path.name for path in list_code(house)] == ["__init__.py"]
        return digest_code({house: list_code(house)})

    assert mount("2026_11_29_17_00_00.123") == mount("2026_11_29_18_11_12.987")
