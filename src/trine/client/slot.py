"""One answer, set in the loop's thread and waited for in another: a future with nothing on it."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

T = TypeVar("T")


class Slot(Generic[T]):
    __slots__ = ("_error", "_lock", "_result")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self._result: T | None = None
        self._error: BaseException | None = None

    def set_result(self, result: T) -> None:
        self._result = result
        self._lock.release()

    def set_exception(self, exception: BaseException) -> None:
        self._error = exception
        self._lock.release()

    def done(self) -> bool:
        return not self._lock.locked()

    def wait(self) -> T:
        self._lock.acquire()
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # or the traceback would keep this slot, and this slot the traceback
        return self._result  # type: ignore[return-value]
