"""`trine config` and `trine key`, as people type them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from trine.cli.app import app
from trine.server.keys import Keys


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TRINE_CONFIG", "TRINE_KEYS_FILE", "TRINE_HTTP_PORT"):
        monkeypatch.delenv(name, raising=False)


def trine(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_config_check(tmp_path: Path) -> None:
    file = tmp_path / "trine.yaml"
    file.write_text("broker:\n  data_dirr: x\nlog: {level: loud}\n")
    found = trine("config", "check", str(file))
    assert found.exit_code == 2
    assert f"{file}:2: broker has no word 'data_dirr'; did you mean 'data_dir'?" in found.stderr
    assert f"{file}:3: log.level is 'loud'" in found.stderr
    assert len(found.stderr.splitlines()) == 3, "a line for each"

    found = trine("config", "check", str(file), "--json")
    assert found.exit_code == 2
    told = json.loads(found.stdout)
    assert told["sound"] is False
    assert [fault["place"] for fault in told["faults"]] == [f"{file}:2", f"{file}:3"]

    file.write_text("")
    found = trine("config", "check", str(file))
    assert (found.exit_code, found.stdout) == (0, "the configuration is sound\n")


def test_config_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "trine.yaml"
    file.write_text("defaults: {partitions: 3}\n")
    monkeypatch.setenv("TRINE_CONFIG", str(file))
    monkeypatch.setenv("TRINE_HTTP_PORT", "8181")
    shown = trine("config", "show").stdout
    assert f"partitions: 3 # {file}:1" in " ".join(shown.split())
    assert "port: 8181 # TRINE_HTTP_PORT" in " ".join(shown.split())
    told = json.loads(trine("--json", "config", "show").stdout)
    assert told["broker.listeners.http.port"] == {"value": 8181, "from": "TRINE_HTTP_PORT"}
    assert told["limits.silence"] == {"value": "30s", "from": "default"}


def test_keys_from_first_to_last(tmp_path: Path) -> None:
    file = str(tmp_path / "keys.yaml")
    made = trine(
        "key", "create", "--keys-file", file, "--role", "producer", "--topics", "orders*,mail", "--id", "shop"
    )
    assert made.exit_code == 0, made.stderr
    key = made.stdout.strip()
    assert Keys(file).authenticate(key, "10.0.0.1").topics == ("orders*", "mail")
    assert "not shown again" in made.stderr
    assert key not in made.stderr

    listed = trine("key", "list", "--keys-file", file, "--json")
    assert [(one["id"], one["role"]) for one in json.loads(listed.stdout)] == [("shop", "producer")]
    assert key.rpartition("_")[2] not in listed.stdout

    assert trine("key", "create", "--keys-file", file, "--role", "root").exit_code == 2
    assert trine("key", "create", "--keys-file", file, "--role", "admin", "--id", "shop").exit_code == 1
    assert trine("key", "delete", "--keys-file", file, "nobody").exit_code == 3
    assert trine("key", "delete", "--keys-file", file, "shop").exit_code == 0
    assert json.loads(trine("key", "list", "--keys-file", file, "--json").stdout) == []


def test_the_keys_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = trine("key", "list")
    assert found.exit_code == 2
    assert "say which keys file" in found.stderr
    config = tmp_path / "trine.yaml"
    config.write_text(f"security: {{keys_file: {tmp_path}/from-config.yaml}}\n")
    assert trine("key", "create", "--role", "admin", "--config", str(config)).exit_code == 0
    assert (tmp_path / "from-config.yaml").exists()
    monkeypatch.setenv("TRINE_KEYS_FILE", str(tmp_path / "from-environment.yaml"))
    assert trine("key", "create", "--role", "admin").exit_code == 0
    assert (tmp_path / "from-environment.yaml").exists()


def test_serve_names_its_flags() -> None:
    shown = trine("serve", "--help").stdout
    for flag in (
        "--config",
        "--data-dir",
        "--host",
        "--binary-port",
        "--http-port",
        "--keys-file",
        "--ports-file",
    ):
        assert flag in shown
