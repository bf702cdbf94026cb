"""The dedup window of a topic: ids seen lately, each with the place of the first message that had it.

Nothing is written for it: the ids stand in the messages' headers, and recovery reads the log's tail again.
"""

from __future__ import annotations

import hashlib
from collections import deque

from trine.model.errors import DedupWindowFull
from trine.model.limits import DEDUP_IDS_MAX
from trine.model.message import Place

CONTENT = "content:"


def content_id(key: bytes | None, value: bytes | None) -> str:
    """The id of a message that has none of its own, in a topic that tells messages apart by content."""
    digest = hashlib.blake2b(digest_size=16)
    for part in (key, value):
        digest.update(b"\0" if part is None else b"\1" + len(part).to_bytes(4, "little") + part)
    return CONTENT + digest.hexdigest()


class DedupWindow:
    __slots__ = ("_ids", "_order", "window_ms")

    def __init__(self, window_ms: int) -> None:
        self.window_ms = window_ms
        self._ids: dict[str, tuple[int, Place]] = {}
        self._order: deque[tuple[int, str]] = deque()

    def __len__(self) -> int:
        return len(self._ids)

    def place_of(self, dedup_id: str, now: int) -> Place | None:
        known = self._ids.get(dedup_id)
        if known is None or known[0] + self.window_ms <= now:
            return None
        return known[1]

    def check_room(self, count: int, now: int) -> None:
        self.forget_old(now)
        if len(self._ids) + count > DEDUP_IDS_MAX:
            raise DedupWindowFull(
                f"the dedup window holds {len(self._ids)} ids and takes {DEDUP_IDS_MAX}: "
                "publish slower, or alter the topic's dedup_window to a shorter one"
            )

    def note(self, dedup_id: str, at: int, place: Place) -> None:
        known = self._ids.get(dedup_id)
        if known is not None and known[0] > at:  # recovery reads one partition after the other
            return
        self._ids[dedup_id] = (at, place)
        self._order.append((at, dedup_id))

    def forget_old(self, now: int) -> None:
        order, ids = self._order, self._ids
        limit = now - self.window_ms
        while order and order[0][0] <= limit:
            at, dedup_id = order.popleft()
            known = ids.get(dedup_id)
            if known is not None and known[0] == at:
                del ids[dedup_id]

    def scheduled(self) -> list[tuple[str, int, str]]:
        """Ids whose messages are not in the log yet: the only ones a checkpoint has to keep."""
        return [(one, at, place) for one, (at, place) in self._ids.items() if isinstance(place, str)]
