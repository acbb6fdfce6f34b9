"""What an API server makes of requests, as facts of the fingerprint."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from specdeck.engine.plugin import serving_facts
from specdeck.engine.plugin.fingerprint import Identity
from specdeck.engine.plugin.serving_facts import read_serving_facts


@pytest.fixture(autouse=True)
def loaded(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What the server has loaded, instead of what these tests have."""
    found: dict[str, str] = {}
    monkeypatch.setattr(serving_facts, "find_packages", lambda loaded: found)
    return found


def name_build(**args: Any) -> str:
    identity = Identity({"config": {"k": 1}})
    identity.add("serving", *read_serving_facts(SimpleNamespace(**args)))
    return str(identity.as_json()["names"]["build"])


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_another_template_under_the_same_name_is_another_build(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jinja", "{{ messages }}")
    before = name_build(chat_template=path)
    write(tmp_path / "t.jinja", "Always lie. {{ messages }}")
    assert name_build(chat_template=path) != before
    write(tmp_path / "t.jinja", "{{ messages }}")
    assert name_build(chat_template=path) == before


@pytest.mark.parametrize("is_of_home", [True, False])
def test_another_adapter_under_the_same_name_is_another_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_of_home: bool
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "lora"
    folder.mkdir()
    write(folder / "adapter_config.json", "{}")
    write(folder / "adapter_model.safetensors", "one")
    lora = [SimpleNamespace(name="sql", path="~/lora" if is_of_home else str(folder))]
    before = name_build(lora_modules=lora)
    write(folder / "adapter_model.safetensors", "two")
    assert name_build(lora_modules=lora) != before


def test_each_setting_of_a_server_counts() -> None:
    names = {
        name_build(),
        name_build(chat_template="{{ messages }}"),
        name_build(chat_template="template_chatml.jinja"),
        name_build(tool_call_parser="hermes"),
        name_build(default_chat_template_kwargs={"enable_thinking": False}),
        name_build(chat_template_content_format="string"),
        name_build(middleware=["gateway.Rewrites"]),
        name_build(lora_modules=[SimpleNamespace(name="sql", path="org/sql-lora")]),
    }
    assert len(names) == 8


def test_a_middleware_counts_behind_one_that_is_named_like_a_secret() -> None:
    keys, sold = "app.auth.verify_api_key", "https://ann:hush@hub/x"
    names = {name_build(middleware=[keys, other]) for other in ("app.Log", "app.Rewrite")}
    assert len(names) == 2
    found, _ = read_serving_facts(SimpleNamespace(middleware=[keys, sold]))
    assert found == {"middleware": [keys, "https://***@hub/x"]}


def test_an_adapter_of_an_unknown_user_counts_by_its_name() -> None:
    adapters = [SimpleNamespace(name="sql", path="~nobodyofthisname/lora")]
    found = read_serving_facts(SimpleNamespace(lora_modules=adapters))
    assert found == ({"adapters": {"sql": "~nobodyofthisname/lora"}}, [])


def test_no_secret_of_a_server_is_a_fact() -> None:
    kwargs = {"api_key": "sk-planted", "thinking": True}
    found = read_serving_facts(SimpleNamespace(api_key=["sk-planted"], port=1,
                                               default_chat_template_kwargs=kwargs))  # fmt: skip
    assert found == ({"default_chat_template_kwargs": {"thinking": True}}, [])
    assert "planted" not in json.dumps(found)


def test_files_that_changed_since_the_engine_began_to_start_leave_the_facts_partial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (adapter := tmp_path / "sql").mkdir()
    (adapter / "adapter_config.json").write_text("{}")
    (template := tmp_path / "chat.jinja").write_text("{{ x }}")
    (parser := tmp_path / "parser.py").write_text("one")
    monkeypatch.syspath_prepend(tmp_path / "code")
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "house_guard.py").touch()
    args = SimpleNamespace(
        lora_modules=[SimpleNamespace(name="sql", path=str(adapter))],
        chat_template=str(template), tool_parser_plugin=str(parser),
        middleware=["house_guard.Guard"],
    )  # fmt: skip

    def list_unread(began: float) -> set[str]:
        monkeypatch.setenv("_SPECDECK_BEGAN", f"{os.getpid()} {began}")
        return {one["fact"] for one in read_serving_facts(args)[1]}

    changed = {"adapters.sql", "chat_template", "tool_parser_plugin", "code.house_guard"}
    assert list_unread(began=1.0) >= {f"serving.{name}" for name in changed}
    assert list_unread(began=time.time() + 1) == set()
    args.chat_template = "{{ messages }}"  # one that is no file
    assert "serving.chat_template" not in list_unread(began=1.0)


@pytest.mark.parametrize("name", ["tool_parser_plugin", "reasoning_parser_plugin"])
def test_a_parser_of_ones_own_counts_by_its_code(name: str, tmp_path: Path) -> None:
    code = tmp_path / "parser.py"

    def read(text: str) -> dict[str, object]:
        code.write_text(text)
        found, unread = read_serving_facts(SimpleNamespace(**{name: str(code)}))
        assert (set(found), unread) == ({name}, [])
        return found

    assert read("one") != read("two")


@pytest.mark.parametrize("name", ["tool_parser_plugin", "reasoning_parser_plugin"])
def test_a_parser_of_ones_own_may_be_a_module(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)

    def read(text: str) -> dict[str, object]:
        (tmp_path / "house_parser.py").write_text(text)
        found, unread = read_serving_facts(SimpleNamespace(**{name: "house_parser"}))
        assert (found[name], set(found["code"]), unread) == ("house_parser", {"house_parser"}, [])
        return found

    assert read("one") != read("two")


def test_a_parser_may_be_a_module_of_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "house_parsers").mkdir()
    for name in ("__init__.py", "hermes.py"):
        (tmp_path / "house_parsers" / name).touch()
    args = SimpleNamespace(tool_parser_plugin="house_parsers.hermes")
    found, unread = read_serving_facts(args)
    assert (found["tool_parser_plugin"], unread) == ("house_parsers.hermes", [])
    assert set(found["code"]) == {"house_parsers"}


def test_middleware_counts_by_its_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    code = tmp_path / "house_middleware.py"
    args = SimpleNamespace(middleware=["house_middleware.Trim", "vllm.x.Y", "gone.away.Z"])

    def read(text: str) -> object:
        code.write_text(text)
        found, unread = read_serving_facts(args)
        assert (set(found["code"]), unread) == ({"house_middleware"}, [])
        return found["code"]

    assert read("one") != read("two")


def test_what_a_middleware_imports_counts(
    tmp_path: Path, loaded: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    rules = tmp_path / "house_rules.py"
    loaded |= {"house_rules": write(rules, "one"), "pytest": str(pytest.__path__[0])}
    before, _ = read_serving_facts(SimpleNamespace())
    assert set(before["code"]) == {"house_rules"}
    write(rules, "two")
    assert read_serving_facts(SimpleNamespace())[0] != before


def test_what_cannot_be_read_makes_the_names_partial(tmp_path: Path) -> None:
    identity = Identity({"config": {}})
    gone = str(tmp_path / "gone.py")
    args = SimpleNamespace(tool_parser_plugin=gone, tool_call_parser="hermes")
    identity.add("serving", *read_serving_facts(args))
    found = identity.as_json()
    assert found["facts"]["serving"] == {"tool_call_parser": "hermes"}
    assert [one["fact"] for one in found["partial"]] == ["serving.tool_parser_plugin"]
    assert "~" in found["fingerprint"]
    identity.complete({"model": {"a": 1}}, [])
    assert "~" in identity.as_json()["fingerprint"]
    identity.add("serving", {}, [])
    assert "~" not in identity.as_json()["fingerprint"]


def test_a_credential_under_a_second_name_is_no_fact() -> None:
    args = SimpleNamespace(
        additional_config={"redis_password": "s3cr3t-pw"},
        default_chat_template_kwargs={"tenant": "s3cr3t-pw", "n": 5},
        response_role="s3cr3t-pw",
    )
    found, _ = read_serving_facts(args)
    assert found == {
        "default_chat_template_kwargs": {"tenant": "***", "n": 5}, "response_role": "***",
    }  # fmt: skip


def test_an_adapters_address_is_told_without_its_credential() -> None:
    args = SimpleNamespace(lora_modules=[SimpleNamespace(name="sql", path="s3://me:hush@store/a")])
    found, _ = read_serving_facts(args)
    assert found["adapters"] == {"sql": "s3://***@store/a"}
