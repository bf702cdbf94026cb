"""Single publishes that are made in one turn of the loop go out together, as one frame and as few batches as they need.

    publish ─┐
    publish ─┼─▶ Burst (of one topic, durability and lane) ──end of the turn──▶ PUBLISH ──▶ a receipt for each
    publish ─┘

Nobody waits for company: a publish that is alone in its turn goes alone. If the server refuses a burst, nothing of it
has happened, and each of its messages is sent by itself, so that everyone gets the answer that is his.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from trine.client.topics import WORDS, Known, encode_value, receipt_of, single_parts
from trine.log import batch
from trine.log.alike import common_size
from trine.model.errors import Refused
from trine.model.limits import MIB
from trine.model.message import PublishReceipt
from trine.wire.bodies import read_published, write_publish
from trine.wire.frames import Command

if TYPE_CHECKING:
    from trine.client.link import Link

BURST_BYTES_MAX: Final = 1 * MIB
"""What goes together; more is another frame."""
BURST_MESSAGES_MAX: Final = 4_000


class Receiver(Protocol):
    """Who is told where his message went: a future of the loop, or a slot a thread waits on."""

    def set_result(self, result: PublishReceipt, /) -> None: ...
    def set_exception(self, exception: BaseException, /) -> None: ...
    def done(self) -> bool: ...


One = tuple[bytes | None, bytes, Receiver]
"""Key, value, and who waits for the receipt."""


class Burst:
    """Messages of one topic, durability and lane, by partition; and the reply to the frame they went with."""

    __slots__ = ("_lane", "_level", "_link", "bytes", "count", "known", "ones")

    def __init__(self, link: Link, known: Known, level: int, lane: int) -> None:
        self.known = known
        self.ones: dict[int, list[One]] = {}
        self.bytes = 0
        self.count = 0
        self._link = link
        self._level = level
        self._lane = lane

    def add(self, number: int, key: bytes | None, value: bytes, receiver: Receiver) -> None:
        self.bytes += len(value) + (0 if key is None else len(key))
        self.count += 1
        here = self.ones.get(number)
        if here is None:
            self.ones[number] = [(key, value, receiver)]
        else:
            here.append((key, value, receiver))

    def send(self) -> None:
        known, now = self.known, self._link.now_ms()
        if self.count == 1:
            ((number, ((key, value, _),)),) = self.ones.items()
            data = encode_value(known, self._lane, key, value, now)
            self._link.send(Command.PUBLISH, single_parts(known, self._level, number, data), self)
            return
        batches = [(number, self._packed(ones, now)) for number, ones in self.ones.items()]
        parts = write_publish(known.name, self._level, known.version, 0, batches)
        self._link.send(Command.PUBLISH, tuple(parts), self)

    def _packed(self, ones: list[One], now: int) -> bytearray:
        compression = self.known.compression
        if any(key is not None for key, _, _ in ones):
            records = [(now, key, value, batch.NO_HEADERS) for key, value, _ in ones]
            return batch.encode(records, lane=self._lane, compression=compression)
        values = [value for _, value, _ in ones]
        size = common_size(values)
        return batch.encode_values(values, now, lane=self._lane, compression=compression, size=size)

    # --- the reply

    def done(self) -> bool:
        return False

    def set_result(self, body: bytes) -> None:
        name = self.known.name
        if self.count == 1:
            ((_, ((_, _, receiver),)),) = self.ones.items()
            if not receiver.done():
                receiver.set_result(receipt_of(name, body))
            return
        level, placed = read_published(memoryview(body))
        word = WORDS[level]
        for ones, (partition, _, first) in zip(self.ones.values(), placed, strict=True):
            for offset, (_, _, receiver) in enumerate(ones, first):
                if not receiver.done():
                    receiver.set_result(PublishReceipt(name, word, partition, offset))

    def set_exception(self, error: BaseException) -> None:
        alone = isinstance(error, Refused) and self.count > 1
        for number, ones in self.ones.items():
            for key, value, receiver in ones:
                if receiver.done():
                    continue
                if alone:
                    single = Burst(self._link, self.known, self._level, self._lane)
                    single.add(number, key, value, receiver)
                    single.send()
                else:
                    receiver.set_exception(error)


class Bursts:
    """What is to be published at the end of this turn."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._open: dict[tuple[str, int, int], Burst] = {}
        self._full: list[Burst] = []
        self._asked = False

    def put(
        self,
        known: Known,
        level: int,
        lane: int,
        number: int,
        key: bytes | None,
        value: bytes,
        receiver: Receiver,
    ) -> None:
        """One message; to be called in the loop."""
        name = (known.name, level, lane)
        burst = self._open.get(name)
        if burst is not None and (
            burst.known is not known
            or burst.bytes + len(value) > BURST_BYTES_MAX
            or burst.count >= BURST_MESSAGES_MAX
        ):
            self._full.append(burst)
            burst = None
        if burst is None:
            burst = self._open[name] = Burst(self._link, known, level, lane)
        burst.add(number, key, value, receiver)
        if not self._asked:
            self._asked = True
            assert self._link.loop is not None
            self._link.loop.call_soon(self._go)

    def _go(self) -> None:
        self._asked = False
        bursts = [*self._full, *self._open.values()]
        self._full, self._open = [], {}
        for burst in bursts:
            burst.send()
        self._link.flush()
