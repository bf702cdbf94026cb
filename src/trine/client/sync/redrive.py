# Generated from aio/redrive.py by `make generate`. Do not edit.
"""A redrive under way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from trine.client.reading import letter_of
from trine.client.sync.topic import Item
from trine.client.topics import wire_outgoing
from trine.log.stored import DeadLetter
from trine.model.ids import parse_message_id
from trine.model.message import RESERVED, Outgoing, draft, outgoing_many
from trine.wire import calls

if TYPE_CHECKING:
    from trine.client.sync.broker import Broker


class Redrive:
    """A redrive under way; it is durable, and goes on after a restart with `broker.resume_redrive(id)`."""

    def __init__(
        self,
        broker: Broker,
        reply: calls.RedriveReply,
        edit: Callable[[DeadLetter], Item | None] | None,
        to: str | None,
    ) -> None:
        self._broker = broker
        self._caller = broker._caller
        self._reply = reply
        self._edit = edit
        self._to = to

    @property
    def id(self) -> str:
        return self._reply.id

    @property
    def progress(self) -> dict[str, Any]:
        return self._caller.fresh(self._progress(), self._reply.progress)

    def _progress(self) -> dict[str, Any]:
        for one in self._broker._call(calls.ListRedrives()):
            if one.id == self.id:
                self._reply = one
        return self._reply.progress

    def preview(self, limit: int = 100) -> list[DeadLetter]:
        """A dry run: the dead letters the job would move, without moving any."""
        found = self._broker._call(calls.PreviewRedrive(id=self.id, limit=limit))
        return [letter_of(one) for one in found]

    def step(self, max: int = 1000) -> int:
        """Moves up to `max` (and what the rate allows now); answers how many dead letters it looked at."""
        edits = None
        if self._edit is not None:
            edits = [(letter.id, self._edited(letter)) for letter in self.preview(max)]
        self._reply = self._broker._call(calls.StepRedrive(id=self.id, limit=max, edits=edits))
        return self._reply.looked

    def _edited(self, letter: DeadLetter) -> calls.WireOutgoing | None:
        """The letter as `edit` makes it; None leaves it where it is."""
        assert self._edit is not None
        edited = self._edit(letter)
        if edited is None:
            return None
        known = self._broker._known(self._to or parse_message_id(letter.origin).topic)
        own = {name: value for name, value in letter.headers.items() if not name.startswith(RESERVED)}
        message = Outgoing(
            value=letter.value,
            key=letter.key,
            headers=own,
            priority=letter.priority if letter.priority in known.config.lanes else None,
        )
        message = next(iter(outgoing_many([edited], message)))
        return wire_outgoing(message, draft(message, known.config, self._caller.now_ms()))

    @property
    def where(self) -> str | None:
        """The condition of a job that is told its letters."""
        return self._reply.where

    @property
    def ends(self) -> list[int]:
        """Of each partition, where letters begin that are not part of the job: they came after it."""
        return self._reply.ends

    @property
    def pause_ms(self) -> int:
        """How long until the rate allows another one, as of the last step."""
        return self._reply.pause_ms

    def move(self, letters: Sequence[tuple[int, int]], *, last: bool = False) -> int:
        """Moves the letters that `where` found, by (partition, offset), rising; answers how many of them, from the
        front, are dealt with: the rate may not allow all at once. After `last` the job is over."""
        call = calls.MoveLetters(id=self.id, letters=list(letters), last=last)
        self._reply = self._broker._call(call)
        return self._reply.looked

    def run(self, *, on_progress: Callable[[dict[str, Any]], None] | None = None) -> dict[str, Any]:
        """Runs the job to its end, at its rate."""
        while not self._reply.done:
            looked = self.step()
            if on_progress is not None:
                on_progress(self._reply.progress)
            if self._reply.pause_ms and not self._reply.done and not looked:
                self._caller.sleep(self._reply.pause_ms)
        return self._reply.progress

    def cancel(self) -> None:
        self._reply = self._broker._call(calls.CancelRedrive(id=self.id))
