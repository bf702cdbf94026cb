"""`trine serve` as people start it, and `Server` inside a loop: start, recovery, signals, keys, certificates, end."""

from __future__ import annotations

import asyncio
import datetime
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

import trine
from tests.integration.serving import Serving
from trine.model.errors import Closed, InvalidConfig, Locked
from trine.server.config import ServerConfig, configure
from trine.server.keys import create_key, delete_key
from trine.server.server import Server

BOUND_S = 20.0
"""For things that take a moment; a loaded machine must not fail a test."""


def flags(data: Path | str, **more: Any) -> dict[str, Any]:
    return {"--data-dir": str(data), "--binary-port": 0, "--http-port": 0, **more}


def config_of(data: Path | str, environment: dict[str, str] | None = None, **more: Any) -> ServerConfig:
    return configure(environment=environment or {}, flags=flags(data, **more))


def url(server: Server, scheme: str = "http") -> str:
    return f"{scheme}://127.0.0.1:{server.http_address[1]}"


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not condition():
            await asyncio.sleep(0.01)


def lines_of(serving: Serving) -> list[dict[str, Any]]:
    """Every line it logged: all of them are JSON."""
    return [json.loads(line) for line in serving.logs.splitlines()]


# --- the process


def test_one_life_of_a_server(tmp_path: Path) -> None:
    """Ready; a second one is refused; SIGTERM under load: exit 0 in time, and every confirmed message is there."""
    serving = Serving(tmp_path / "data")
    confirmed: list[str] = []
    stopped = threading.Event()

    def produce() -> None:
        with httpx.Client(base_url=serving.http_url) as client:
            number = 0
            while not stopped.is_set():
                try:
                    text = f"{threading.get_ident()}-{number}"
                    client.post("/v1/topics/orders/publish", json={"text": text}).raise_for_status()
                except httpx.HTTPError:
                    return
                confirmed.append(text)
                number += 1

    with serving:
        assert httpx.get(f"{serving.http_url}/health").status_code == 200
        assert httpx.get(f"{serving.http_url}/ready").json()["state"] == "ready"
        httpx.post(
            f"{serving.http_url}/v1/topics", json={"name": "orders", "partitions": 2}
        ).raise_for_status()

        second = Serving(tmp_path / "data")
        second._ports_file = tmp_path / "second.json"
        second._log_file = tmp_path / "second.log"
        second.binary, second.http = (
            serving.binary,
            serving.http,
        )  # started twice, as it is: the lock says it best
        second.launch()
        assert second.wait() == 1
        said = second.logs.splitlines()[-1]
        assert "is already open in another broker (process " in said
        assert said.endswith("(locked)")

        producers = [threading.Thread(target=produce) for _ in range(3)]
        for producer in producers:
            producer.start()
        end = time.monotonic() + BOUND_S
        while len(confirmed) < 60 and time.monotonic() < end:
            time.sleep(0.01)
        begin = time.monotonic()
        assert serving.terminate() == 0
        assert time.monotonic() - begin < 10.0
        stopped.set()
        for producer in producers:
            producer.join()
    events = [line["event"] for line in lines_of(serving)]
    assert events[0] == "no API keys: only this machine may connect"
    assert [event for event in events if event in ("recovering", "ready", "asked to stop", "stopping", "stopped")] == [
        "recovering", "ready", "asked to stop", "stopping", "stopped",
    ]  # fmt: skip
    assert not (tmp_path / "data.ports.json").exists()
    with trine.open(str(tmp_path / "data")) as broker:
        stored = {message.value.decode() for message in broker.topic("orders").read(max=100_000)}
    assert len(confirmed) >= 60
    assert set(confirmed) <= stored


def test_kill_and_restart(tmp_path: Path) -> None:
    with Serving(tmp_path / "data") as serving:
        httpx.post(f"{serving.http_url}/v1/topics", json={"name": "orders"}).raise_for_status()
        body = {"messages": [{"text": str(number)} for number in range(500)]}
        httpx.post(f"{serving.http_url}/v1/topics/orders/publish", json=body).raise_for_status()
        serving.kill()
        serving.restart()
        ready = [line for line in lines_of(serving) if line["event"] == "ready"][-1]
        assert ready["topics"] == 1
        assert ready["journal_bytes"] > 0
        assert httpx.get(f"{serving.http_url}/v1/topics/orders").json()["messages"] == 500

        # A request that never ends: the first signal waits for it, the second does not.
        with socket.create_connection(serving.http) as slow:
            slow.sendall(
                b"POST /v1/topics/orders/publish HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
            )
            while "asked to stop" not in serving.logs:
                os.kill(serving.pid, signal.SIGTERM)
                time.sleep(0.05)
            assert serving._end(signal.SIGTERM, 5.0) == 128 + signal.SIGTERM
    assert "a second signal: leaving at once" in serving.logs


@pytest.mark.parametrize("listener", ["http", "binary"])
def test_a_port_in_use_is_told_with_its_setting(tmp_path: Path, listener: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        serving = Serving(tmp_path / "data")
        setattr(serving, listener, ("127.0.0.1", port))
        serving.launch()
        assert serving.wait() == 2
    said = serving.logs.splitlines()[-1]
    assert f"port {port} of 127.0.0.1 is in use" in said
    assert f"broker.listeners.{listener}.port (TRINE_{listener.upper()}_PORT, --{listener}-port)" in said
    assert not (tmp_path / "data").exists(), "it is told before anything is opened"
    assert "Traceback" not in serving.logs


def test_faults_of_the_configuration_are_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "trine.yaml"
    file.write_text("broker:\n  data_dirr: x\nlimits: {silence: never}\n")
    serving = Serving(tmp_path / "data", "--config", str(file), "--host", "0.0.0.0")
    serving.launch()
    assert serving.wait() == 2
    for place in (f"{file}:2: ", f"{file}:3: ", "--host: "):
        assert place in serving.logs
    assert not (tmp_path / "data").exists()


# --- within a loop


async def test_in_a_loop_with_time_that_is_simulated() -> None:
    clock = trine.SimulatedClock()
    server = Server(config_of(":memory:"), clock=clock)
    with pytest.raises(Closed):
        _ = server.binary_address
    async with server:
        assert server.context is not None
        topic = await server.context.broker.create_topic("orders")
        await topic.publish("later", delay="1h")
        clock.advance("1h")
        await server.context.broker.tick()
        assert len(await topic.read()) == 1
        async with httpx.AsyncClient(base_url=url(server)) as client:
            assert (await client.get("/ready")).json()["state"] == "ready"
    assert server.context is None
    await server.stop()  # again: nothing happens


def test_recovery_tells_how_far_it_is(tmp_path: Path) -> None:
    """A store of 200,000 messages that was never checkpointed: all of it is in the journal."""
    code = """
import os, sys, trine
broker = trine.open(sys.argv[1], clock=trine.SimulatedClock())
topic = broker.create_topic("orders", partitions=2)
values = [b"%0100d" % number for number in range(20)]
for _ in range(10_000):
    topic.publish_many(values, durability="written")
os._exit(0)
"""
    data = tmp_path / "data"
    subprocess.run([sys.executable, "-c", code, str(data)], check=True)

    async def main() -> None:
        told: list[dict[str, Any]] = []
        answers: list[httpx.Response] = []
        server = Server(config_of(data), progress_s=0.02)
        server.log = Told(told)

        async def look() -> None:
            """As somebody else sees it meanwhile."""
            await until(lambda: server._http is not None)
            async with httpx.AsyncClient(base_url=url(server)) as client:
                answers.extend(
                    [await client.get("/health"), await client.get("/ready"), await client.get("/v1/topics")]
                )

        looking = asyncio.create_task(look())
        async with server:
            await looking
            assert server.context is not None
            assert server.context.engine.topics["orders"].counts()["messages"] == 200_000
        assert answers[0].status_code == 200
        assert [answer.status_code for answer in answers[1:]] == [503, 503]
        assert answers[1].json()["readiness"]["state"] == "recovering"
        percents = [line["percent"] for line in told if line.get("step") == "journal"]
        assert percents
        assert percents == sorted(percents)
        (ready,) = [line for line in told if line["event"] == "ready"]
        assert ready["journal_bytes"] > 20_000_000
        assert ready["seconds"] > 0

    asyncio.run(main())


class Told:
    """A logger that keeps its lines."""

    def __init__(self, lines: list[dict[str, Any]]) -> None:
        self._lines = lines

    def __getattr__(self, level: str) -> Callable[..., None]:
        return lambda event, **fields: self._lines.append({"event": event, "level": level, **fields})


async def test_a_directory_is_served_once(tmp_path: Path) -> None:
    async with Server(config_of(tmp_path / "data")):
        with pytest.raises(Locked):
            await Server(config_of(tmp_path / "data")).start()
    async with Server(config_of(tmp_path / "data")):  # what failed has left nothing behind
        pass


async def test_the_binary_port_is_told_too(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = Server(config_of(tmp_path / "data", **{"--binary-port": port}))
        with pytest.raises(InvalidConfig, match=f"port {port} .*broker.listeners.binary.port"):
            await server.start()
    assert server.readiness.state == "failed"
    async with Server(config_of(tmp_path / "data")):
        pass


async def test_a_request_that_never_ends_is_ended_in_time(tmp_path: Path) -> None:
    server = Server(config_of(tmp_path / "data", {"TRINE_LIMITS_SHUTDOWN": "200ms"}))
    await server.start()
    _, writer = await asyncio.open_connection(*server.http_address)
    writer.write(b"POST /v1/topics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
    await writer.drain()
    async with httpx.AsyncClient(base_url=url(server)) as client:
        assert (await client.get("/health")).status_code == 200  # so the other one has arrived
    begin = time.monotonic()
    await server.stop()
    assert 0.15 < time.monotonic() - begin < 5.0
    writer.close()


async def test_keys_are_needed_and_noticed_when_they_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trine.server.server.KEYS_LOOK_S", 0.02)
    file = str(tmp_path / "keys.yaml")
    admin = create_key(file, role="admin", id="root")
    async with (
        Server(config_of(tmp_path / "data", **{"--keys-file": file})) as server,
        httpx.AsyncClient(base_url=url(server)) as client,
    ):

        async def status(key: str | None) -> int:
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            return (await client.get("/v1/topics", headers=headers)).status_code

        assert await status(None) == 401
        assert await status("trine_root_guess") == 401
        assert await status(admin) == 200
        late = create_key(file, role="read-only", id="late")
        async with asyncio.timeout(BOUND_S):
            while await status(late) != 200:
                await asyncio.sleep(0.05)
            delete_key(file, "late")
            while await status(late) != 401:
                await asyncio.sleep(0.05)
        metrics = (await client.get("/metrics", headers={"Authorization": f"Bearer {admin}"})).text
        assert 'trine_refused_total{why="wrong"}' in metrics
        assert 'trine_refused_total{why="missing"} 1.0' in metrics
        assert 'trine_connections{listener="http"} 1.0' in metrics


def make_certificate(folder: Path, name: str) -> int:
    """A certificate of its own for 127.0.0.1 in cert.pem and key.pem; its serial number."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    serial = x509.random_serial_number()
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return serial


async def test_certificates_are_read_again(tmp_path: Path) -> None:
    first = make_certificate(tmp_path, "first")
    cert, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    environment = {
        f"TRINE_{listener}_TLS_{what}": file
        for listener in ("HTTP", "BINARY")
        for what, file in (("CERT", cert), ("KEY", key))
    }

    async def serials(server: Server) -> set[int]:
        found = set()
        trusting = ssl.create_default_context()
        trusting.check_hostname = False
        trusting.verify_mode = ssl.CERT_NONE
        for address in (server.http_address, server.binary_address):
            _, writer = await asyncio.open_connection(*address, ssl=trusting)
            raw = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            found.add(x509.load_der_x509_certificate(raw).serial_number)
            writer.close()
        return found

    async with Server(config_of(tmp_path / "data", environment)) as server:
        assert await serials(server) == {first}
        (tmp_path / "key.pem").write_text("nonsense")
        server.reload()
        assert await serials(server) == {first}, "what is off changes nothing"
        second = make_certificate(tmp_path, "second")
        server.reload()
        assert await serials(server) == {second}


async def test_a_certificate_that_is_off_keeps_the_server_from_starting(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("nonsense")
    environment = {
        "TRINE_HTTP_TLS_CERT": str(tmp_path / "cert.pem"), "TRINE_HTTP_TLS_KEY": str(tmp_path / "cert.pem"),
    }  # fmt: skip
    with pytest.raises(InvalidConfig, match="cannot be used together"):
        await Server(config_of(tmp_path / "data", environment)).start()
