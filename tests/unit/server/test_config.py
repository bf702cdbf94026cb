"""The configuration: three places, one order, and every fault at once with its place."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from trine.cli.config import as_yaml
from trine.model.errors import InvalidConfig
from trine.model.options import GroupConfig, TopicConfig
from trine.server.config import ServerConfig, check, configure, is_loopback
from trine.server.settings import FLAGS, NULLABLE, SECTIONS, WORDS, size_bytes, variables

DOCS = Path(__file__).resolve().parents[3] / "docs"


def write(folder: Path, text: str) -> str:
    path = folder / "trine.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def faults_of(folder: Path, text: str, **more: object) -> list[str]:
    path = write(folder, text)
    found = check(path, **{"environment": {}, **more})  # type: ignore[arg-type]
    assert (found.config is None) == bool(found.faults)
    return [str(fault).replace(path, "trine.yaml") for fault in found.faults]


def test_without_anything_the_defaults_hold() -> None:
    config = configure(environment={})
    assert config == ServerConfig()
    assert config.broker.listeners.binary.port == 5680
    assert config.broker.listeners.http.port == 8080
    assert config.topic_defaults() == config.group_defaults() == {}


def test_a_file_says_all_of_the_specification(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
broker:
  node_id: eu-1
  data_dir: /var/lib/trine
  listeners:
    binary: {host: 127.0.0.1, port: 5681}
    http: {port: 8081}
defaults: {partitions: 12, replication: 1, retention: 30d, segment_bytes: 16MiB}
delivery: {visibility_timeout: 45s, max_deliveries: 7, dead_letters: false, backoff: {first: 2s}}
delay: {max: 14d}
priority: {lanes: [urgent, normal]}
limits: {connections: 50, body_bytes: 1MiB, silence: 10s, member_grace: 1s, shutdown: 3s}
log: {level: debug, format: json}
""",
    )
    config = configure(path, environment={})
    assert config.broker.node_id == "eu-1"
    assert config.broker.listeners.http.port == 8081
    assert config.limits.body_bytes == 2**20
    assert (config.limits.silence_ms, config.limits.member_grace_ms, config.limits.shutdown_ms) == (
        10_000,
        1_000,
        3_000,
    )
    topic = TopicConfig.make(config.topic_defaults())
    assert (topic.partitions, topic.lanes, topic.segment_bytes) == (12, ("urgent", "normal"), 2**24)
    assert topic.delay_max_ms == 14 * 24 * 3600 * 1000
    group = GroupConfig.make(config.group_defaults())
    assert (group.lease_ms, group.max_deliveries, group.dead_letters) == (45_000, 7, False)
    assert group.backoff is not None
    assert group.backoff.first_ms == 2_000


def test_all_faults_are_told_at_once_each_with_its_line(tmp_path: Path) -> None:
    text = """\
broker:
  data_dirr: x
  listeners:
    http:
      port: 70000
      tls: {cert: /nowhere/cert.pem}
defaults:
  partitions: none
  retention: 3 fortnights
  replication: 3
delivery:
  visibility_timeout: 30s
  lease: 10s
  breaker: {share: 7}
retention: 5d
log: loud
"""
    told = faults_of(tmp_path, text, environment={"TRINE_HTTP_PRT": "1"}, flags={"--log-level": "chatty"})
    places = [fault.partition(": ")[0] for fault in told]
    assert places == [
        *(f"trine.yaml:{line}" for line in (2, 5, 6, 6, 8, 9, 10, 12, 14, 15, 16)), "TRINE_HTTP_PRT", "--log-level",
    ]  # fmt: skip
    whole = "\n".join(told)
    assert "did you mean 'data_dir'?" in whole
    assert "broker.listeners.http.port is 70000; it must be a whole number, 0 to 65535" in whole
    assert "needs both cert and key; key is missing" in whole
    assert "replication is not built yet" in whole
    assert "delivery.visibility_timeout and delivery.lease (trine.yaml:13) are the same" in whole
    assert "it stands in defaults.retention" in whole
    assert "did you mean TRINE_HTTP_PORT?" in whole


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("broker: {data_dir: [", 1, "is not YAML"),
        ("a: 1\nb: !!python/object:os.system {}\n", 1, "no section 'a'"),
        ("broker:\n  node_id: !!python/object/apply:os.getcwd []\n", 2, "cannot be read"),
        ("- 1\n- 2\n", 1, "must have words with values"),
        ("log:\n  level: info\n  level: debug\n", 3, "stands here twice, the first time in line 2"),
        ("broker: {node_id: ''}\n", 1, "it must be text"),
        ("limits: {silence: -3s}\n", 1, "negative"),
        ("limits: {body_bytes: 12 parsecs}\n", 1, "64MiB"),
        ("limits: {connections: true}\n", 1, "whole number"),
        ("priority: {lanes: [a, a]}\n", 1, "different names"),
        ("delivery:\n  headers: 3\n", 2, "headers"),
    ],
)
def test_a_fault_has_its_line(tmp_path: Path, text: str, line: int, words: str) -> None:
    told = faults_of(tmp_path, text)
    assert any(one.startswith(f"trine.yaml:{line}: ") and words in one for one in told), told


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="there is no such file"):
        configure(str(tmp_path / "none.yaml"), environment={})
    path = tmp_path / "binary.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidConfig, match="cannot be read"):
        configure(str(path), environment={})
    deep = tmp_path / "deep.yaml"
    deep.write_text("[" * 50_000)
    with pytest.raises(InvalidConfig, match="nested too deeply|is not YAML"):
        configure(str(deep), environment={})


def test_variables_over_the_file_and_flags_over_both(tmp_path: Path) -> None:
    path = write(tmp_path, "broker: {listeners: {http: {port: 1001}}}\ndefaults: {partitions: 2}\n")
    environment = {"TRINE_HTTP_PORT": "1002", "TRINE_DEFAULTS_PARTITIONS": "3", "TRINE_CONFIG": path}
    assert configure(environment=environment).broker.listeners.http.port == 1002
    found = check(path, environment=environment, flags={"--http-port": 1003})
    assert found.config is not None
    assert found.config.broker.listeners.http.port == 1003
    assert found.config.topic_defaults() == {"partitions": 3}
    origins = {row.path: row.origin for row in found.shown()}
    assert origins["broker.listeners.http.port"] == "--http-port"
    assert origins["defaults.partitions"] == "TRINE_DEFAULTS_PARTITIONS"
    assert origins["limits.silence"] == "default"


def test_a_variable_may_have_its_whole_name_or_a_short_one() -> None:
    for name in ("TRINE_BROKER_LISTENERS_HTTP_PORT", "TRINE_LISTENERS_HTTP_PORT", "TRINE_HTTP_PORT"):
        assert configure(environment={name: "7"}).broker.listeners.http.port == 7
    with pytest.raises(InvalidConfig, match="keep one of them"):
        configure(environment={"TRINE_HTTP_PORT": "7", "TRINE_LISTENERS_HTTP_PORT": "8"})


def test_no_two_words_share_a_variable() -> None:
    names = [name for place in (*WORDS, *NULLABLE) for name in variables(place)]
    assert len(names) == len(set(names))


def test_variables_are_read_as_yaml_unless_they_are_text() -> None:
    config = configure(
        environment={
            "TRINE_PRIORITY_LANES": "[a, b]", "TRINE_DELIVERY_BREAKER": "null", "TRINE_NODE_ID": "null",
            "TRINE_DELIVERY_DEAD_LETTERS": "false", "TRINE_DEFAULTS_TTL": "1h",
        }
    )  # fmt: skip
    assert config.topic_defaults() == {"lanes": ["a", "b"], "ttl": "1h"}
    assert config.group_defaults() == {"breaker": None, "dead_letters": False}
    assert config.broker.node_id == "null"


def test_what_kubernetes_and_clients_set_is_not_ours() -> None:
    environment = {
        "TRINE_SERVICE_HOST": "10.0.0.1", "TRINE_PORT": "tcp://10.0.0.1:5680", "TRINE_HTTP_PORT": "tcp://10.0.0.1:80",
        "TRINE_PORT_5680_TCP_PROTO": "tcp", "TRINE_SERVER": "trine://x", "TRINE_KEY": "trine_a_b",
    }  # fmt: skip
    assert configure(environment=environment) == ServerConfig()


def test_a_later_source_replaces_a_section_that_was_switched_off(tmp_path: Path) -> None:
    path = write(tmp_path, "delivery: {breaker: null}\n")
    assert configure(path, environment={}).group_defaults() == {"breaker": None}
    config = configure(path, environment={"TRINE_DELIVERY_BREAKER_SHARE": "0.5"})
    assert config.group_defaults() == {"breaker": {"share": 0.5}}


def test_an_address_others_can_reach_needs_keys(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidConfig, match=r"--host: .*is 0\.0\.0\.0, which others can reach.*trine key create"
    ):
        configure(environment={}, flags={"--host": "0.0.0.0"})
    with pytest.raises(InvalidConfig, match="does not exist; make the first key with"):
        configure(environment={}, flags={"--host": "0.0.0.0", "--keys-file": str(tmp_path / "keys.yaml")})
    (tmp_path / "keys.yaml").write_text("keys: []\n")
    config = configure(
        environment={}, flags={"--host": "0.0.0.0", "--keys-file": str(tmp_path / "keys.yaml")}
    )
    assert config.needs_keys


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True), ("127.9.9.9", True), ("localhost", True), ("::1", True), ("[::1]", True),
        ("::ffff:127.0.0.1", True), ("0.0.0.0", False), ("::", False), ("192.168.1.1", False), ("", False),
        ("localhost.example.com", False), ("example.com", False),
    ],
)  # fmt: skip
def test_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_defaults_of_queues_are_of_both(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "defaults: {partitions: 2, backoff: {first: 1s}, durability: written}\n"
        "delivery: {lease: 5s, backoff: null, durability: memory}\n",
    )
    assert configure(path, environment={}).queue_defaults() == {
        "partitions": 2, "backoff": {"first": "1s"}, "durability": "written", "lease": "5s",
    }  # fmt: skip


def test_what_is_shown_can_be_read_again(tmp_path: Path) -> None:
    path = write(
        tmp_path, "delivery: {visibility_timeout: 45s, backoff: {first: 3s}}\npriority: {lanes: [a]}\n"
    )
    found = check(path, environment={"TRINE_DELIVERY_BREAKER": "null"})
    text = "\n".join(as_yaml(found.shown()))
    again = tmp_path / "again.yaml"
    again.write_text(text)
    assert found.config is not None
    config = configure(str(again), environment={})
    assert TopicConfig.make(config.topic_defaults()) == TopicConfig.make(found.config.topic_defaults())
    assert GroupConfig.make(config.group_defaults()) == GroupConfig.make(found.config.group_defaults())
    assert config.broker == found.config.broker
    assert yaml.safe_load(text)["delivery"]["breaker"] is None


@pytest.mark.parametrize(("given", "size"), [("16MiB", 2**24), (7, 7), ("1 kb", 1000), ("3GiB", 3 * 2**30)])
def test_sizes(given: object, size: int) -> None:
    assert size_bytes(given) == size


def test_every_word_and_flag_is_documented() -> None:
    text = (DOCS / "configuration.md").read_text(encoding="utf-8")
    rows = {
        cell for line in text.splitlines() if line.startswith("|") for cell in re.findall(r"`([^`]+)`", line)
    }
    for place in WORDS:
        if place[0] not in ("defaults", "delivery") or place[1] in ("replication", "visibility_timeout"):
            assert ".".join(place) in rows, place
    for flag in FLAGS:
        assert flag in text
    for section in SECTIONS:
        if len(section) == 1:
            assert f"\n{section[0]}:" in text, section


def test_the_documented_file_is_sound(tmp_path: Path) -> None:
    text = (DOCS / "configuration.md").read_text(encoding="utf-8")
    sample = re.search(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert sample is not None
    assert faults_of(tmp_path, sample[1]) == []


def test_reading_a_configuration_starts_quickly() -> None:
    """`trine config` and `trine key` must not load the listeners."""
    code = (
        "import sys, trine.server.config, trine.server.keys;"
        "print(sorted({'litestar', 'uvicorn', 'prometheus_client', 'structlog', 'uvloop'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
