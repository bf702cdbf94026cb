"""Trine's server over HTTP, with the HTTP client of the standard library: one connection, kept open."""

from __future__ import annotations

import base64
import http.client
import json
import os
import time
from typing import Any

from benchmarks.peers.peer import Consumer, Producer, Received, Topic
from benchmarks.peers.trine import TrineSynced, TrineWritten

JSON = {"content-type": "application/json"}
BYTES = {"content-type": "application/octet-stream"}


class Calls:
    """One connection, and the answer to each call."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._link = http.client.HTTPConnection(*address, timeout=60)

    def post(self, path: str, body: bytes, headers: dict[str, str]) -> Any:
        self._link.request("POST", path, body, headers)
        answer = self._link.getresponse()
        said = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{path}: {answer.status} {said.decode(errors='replace')}")
        return json.loads(said)

    def close(self) -> None:
        self._link.close()


class _Http(TrineSynced):
    client = "http.client (the standard library)"
    acks = "one request for each, or for each fetch; answered at the group's durability"
    bulk = 1_000
    only = ("W1", "W2", "W3", "W4")

    async def producer(self, topic: Topic) -> Producer:
        return HttpProducer(Calls(self.http_address), topic.name)

    async def consumer(self, topic: Topic, group: str) -> Consumer:
        return HttpConsumer(Calls(self.http_address), topic.name, group)


class HttpProducer(Producer):
    def __init__(self, calls: Calls, topic: str) -> None:
        self._calls = calls
        self._path = f"/v1/topics/{topic}/publish"

    async def publish(self, payload: bytes) -> None:
        self._calls.post(self._path, payload, BYTES)

    async def publish_batch(self, payloads: list[bytes]) -> None:
        self._put([{"base64": base64.b64encode(one).decode()} for one in payloads])

    async def publish_later(self, payloads: list[bytes], delays_ms: list[int]) -> None:
        now = time.time()
        pairs = zip(payloads, delays_ms, strict=True)
        self._put(
            [
                {"base64": base64.b64encode(one).decode(), "deliver_at": now + delay / 1000}
                for one, delay in pairs
            ]
        )

    async def publish_ranked(self, payloads: list[bytes], high: bool) -> None:
        lane = "high" if high else "low"
        self._put([{"base64": base64.b64encode(one).decode(), "priority": lane} for one in payloads])

    def _put(self, messages: list[dict[str, Any]]) -> None:
        self._calls.post(self._path, json.dumps({"messages": messages}).encode(), JSON)

    async def turn_to(self, topic: Topic) -> None:
        self._path = f"/v1/topics/{topic.name}/publish"

    async def close(self) -> None:
        self._calls.close()


class HttpConsumer(Consumer):
    def __init__(self, calls: Calls, topic: str, group: str) -> None:
        self._calls = calls
        self._path = f"/v1/topics/{topic}/groups/{group}"
        self._member = f"c{os.getpid()}"

    async def fetch(self, limit: int, timeout: float) -> list[Received]:
        asked = {"max": limit, "wait": timeout, "member": self._member, "as": "base64"}
        answer = self._calls.post(f"{self._path}/receive", json.dumps(asked).encode(), JSON)
        return [(base64.b64decode(one["base64"]), one["receipt"]) for one in answer["messages"]]

    async def ack(self, handle: str) -> None:
        self._settle("ack", [handle])

    async def ack_batch(self, handles: list[str]) -> None:
        self._settle("ack", handles)

    async def retry(self, handle: str) -> None:
        self._settle("nack", [handle])

    def _settle(self, how: str, receipts: list[str]) -> None:
        answer = self._calls.post(f"{self._path}/{how}", json.dumps({"receipts": receipts}).encode(), JSON)
        if answer["failed"]:
            raise RuntimeError(f"not settled: {answer['failed'][0]}")

    async def close(self) -> None:
        self._calls.close()


class HttpSynced(_Http):
    name = "trine-http"


class HttpWritten(_Http):
    name = "trine-http-written"
    durability = "written"
    promise = TrineWritten.promise
