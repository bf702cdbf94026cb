"""Backoff: how long a failed message rests before it is tried again.

Exponential with jitter: the n-th failure waits `first_ms * factor ** (n - 1)`, at most `cap_ms`, give or
take the jitter's share, so that messages that failed together do not come back together. Randomness is
handed in.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from trine.model.errors import InvalidOption

if TYPE_CHECKING:
    import random


class Backoff(msgspec.Struct, frozen=True):
    """The rule: 1 s, 2 s, 4 s and so on up to 5 minutes, each give or take a fifth, unless told otherwise.

    >>> import random
    >>> Backoff(first_ms=100, factor=2.0, cap_ms=1000, jitter=0.0).delay_ms(3, random.Random(1))
    400
    """

    first_ms: int = 1000
    factor: float = 2.0
    cap_ms: int = 300_000
    jitter: float = 0.2

    def __post_init__(self) -> None:
        if self.first_ms < 0:
            raise InvalidOption(f"The first delay is {self.first_ms} ms; it must be zero or more.")
        if not (math.isfinite(self.factor) and self.factor >= 1.0):
            raise InvalidOption(f"The backoff factor is {self.factor}; it must be 1 or more.")
        if self.cap_ms < self.first_ms:
            raise InvalidOption(
                f"The longest delay, {self.cap_ms} ms, is shorter than the first, {self.first_ms} ms."
            )
        if not 0.0 <= self.jitter <= 1.0:
            raise InvalidOption(f"The jitter is {self.jitter}; it is a share, from 0 to 1.")

    def nominal_ms(self, attempt: int) -> float:
        """The delay after failure number `attempt` (from 1) before jitter. Safe for any attempt.

        The power is compared as a logarithm first: 2.0 ** 65534 is no float.
        """
        assert attempt >= 1, "attempts are counted from 1"
        if self.first_ms == 0:
            return 0.0
        doublings = (attempt - 1) * math.log(self.factor)
        if doublings >= math.log(self.cap_ms / self.first_ms):
            return float(self.cap_ms)
        return self.first_ms * math.exp(doublings)

    def delay_ms(self, attempt: int, rng: random.Random) -> int:
        """The delay to wait: evenly drawn from the nominal one plus or minus the jitter's share.

        Never above the cap. At the cap the range is cut rather than the result, or half of all messages would
        wait exactly the cap and come back together.
        """
        nominal = self.nominal_ms(attempt)
        if self.jitter == 0.0:
            return round(nominal)
        low = nominal * (1.0 - self.jitter)
        high = min(nominal * (1.0 + self.jitter), float(self.cap_ms))
        return round(rng.uniform(low, high))
