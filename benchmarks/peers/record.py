"""What was measured, as JSON: written after every cell, so that a run that is interrupted loses nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from benchmarks import machine
from benchmarks.peers.peer import Peer
from benchmarks.peers.plan import Size

VERSION = 1


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass
class Record:
    path: Path
    content: dict[str, Any]

    @classmethod
    def open(cls, path: Path, size: Size, folder: Path) -> Record:
        """The one that is there, or a new one; `folder` is where the servers keep their data."""
        if path.exists():
            content = json.loads(path.read_text())
            if content.get("version") == VERSION and content.get("size") == size:
                return cls(path, content)
        facts = {**machine.facts(folder), "memory_gb": round(psutil.virtual_memory().total / 2**30, 1)}
        content = {
            "version": VERSION, "size": size, "began": now(), "ended": None, "machine": facts,
            "peers": {}, "skipped": {}, "limits": {}, "audit": {},
        }  # fmt: skip
        return cls(path, content)

    def anew(self, folder: Path) -> Record:
        """An empty one in the place of this one, which is kept beside it."""
        if self.path.exists():
            self.path.rename(
                self.path.with_name(f"{self.path.stem}-{self.content['began'][:19].replace(':', '')}.json")
            )
        return Record.open(self.path, self.content["size"], folder)

    @property
    def ended(self) -> bool:
        return self.content["ended"] is not None

    def peer(self, peer: Peer) -> dict[str, Any]:
        """A peer's part, with what is said of it brought up to date."""
        part: dict[str, Any] = self.content["peers"].setdefault(peer.name, {"cells": {}})
        part.update(
            broker=peer.broker, version=peer.version(), client=peer.client, durability=peer.durability,
            promise=peer.promise, acks=peer.acks, is_log=peer.is_log,
        )  # fmt: skip
        return part

    def has(self, peer: str, cell: str) -> bool:
        """Measured, or known to be impossible; what failed is tried again."""
        found = self.content["peers"].get(peer, {}).get("cells", {}).get(cell)
        return found is not None and "error" not in found

    def took_s(self, peer: str, cell: str) -> float | None:
        found = self.content["peers"].get(peer, {}).get("cells", {}).get(cell)
        return None if found is None else found.get("took_s")

    def put(self, peer: str, cell: str, found: dict[str, Any], took_s: float) -> None:
        self.content["peers"][peer]["cells"][cell] = {**found, "at": now(), "took_s": round(took_s, 1)}
        self.write()

    def write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside = self.path.with_suffix(".new")
        beside.write_text(json.dumps(self.content, indent=1, ensure_ascii=False) + "\n")
        beside.replace(self.path)
