"""Sessions: a browser that has shown a key once, and shows a cookie from then on.

The page cannot keep the key itself: what a script can read, a script that got in by a hole can send elsewhere. So the
server remembers who logged in, under a random id that only the cookie has; of the id only a hash is kept, so that
comparing takes no time that tells of it. Sessions are not stored: a restart ends them, and the page asks for the key
again. A session ends with its key, when it was not used for a while, and at the latest after some days.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from trine.server.keys import Principal

SESSIONS_MAX: Final = 1_000
"""Of all keys; the one that was silent longest ends first."""
OF_KEY_MAX: Final = 100
"""Of one key: nobody with one key can end the sessions of all others."""
IDLE_S: Final = 12 * 3600
AGE_S_MAX: Final = 7 * 24 * 3600
ID_BYTES: Final = 32
ID_CHARS_MAX: Final = 64


@dataclass(slots=True)
class Session:
    key: Principal
    lent: Principal
    began: float
    used: float


class Sessions:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()  # the longest silent one first

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, key: Principal) -> str:
        """A session with the rights of this key; answers its id, for the cookie."""
        self._forget_old()
        own = [name for name, one in self._sessions.items() if one.key is key]
        if len(own) >= OF_KEY_MAX:
            self._end(own[0])
        elif len(self._sessions) >= SESSIONS_MAX:
            self._end(next(iter(self._sessions)))
        text = secrets.token_urlsafe(ID_BYTES)
        now = self._clock()
        self._sessions[_name(text)] = Session(key, key.lend(), now, now)
        return text

    def find(self, text: str | None) -> Principal | None:
        """Who it is, if the session is still good; it counts as used."""
        if text is None or len(text) > ID_CHARS_MAX:
            return None
        name = _name(text)
        session = self._sessions.get(name)
        if session is None:
            return None
        now = self._clock()
        if not session.lent.holds or _is_old(session, now):
            self._end(name)
            return None
        session.used = now
        self._sessions.move_to_end(name)
        return session.lent

    def end(self, text: str | None) -> None:
        """Streams that it opened end too."""
        if text is not None and len(text) <= ID_CHARS_MAX and (name := _name(text)) in self._sessions:
            self._end(name)

    def _end(self, name: bytes) -> None:
        session = self._sessions.pop(name)
        session.key.take_back(session.lent)

    def _forget_old(self) -> None:
        now = self._clock()
        for name in [name for name, one in self._sessions.items() if not one.lent.holds or _is_old(one, now)]:
            self._end(name)


def _is_old(session: Session, now: float) -> bool:
    return now - session.used > IDLE_S or now - session.began > AGE_S_MAX


def _name(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=32).digest()
