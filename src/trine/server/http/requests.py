"""What handlers share: reading a body as its struct, the parameters several of them take, and calls done at once."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple, TypeAlias, TypeVar

import msgspec
from litestar import Request
from litestar.di import NamedDependency
from litestar.params import QueryParameter, SkipValidation

from trine.model.duration import instant_ms
from trine.server.http.bodies import Show, decode_body
from trine.server.http.problems import BadRequest

T = TypeVar("T")

Given: TypeAlias = NamedDependency[SkipValidation[T]]
"""What the application gives a handler, as it is."""

Limit = Annotated[int, QueryParameter(ge=1, le=10_000, description="The most that is answered.")]
As = Annotated[
    Show,
    QueryParameter(
        name="as",
        description="How content is shown: `json`, `text`, `base64`, or the first of these that can hold it (`auto`).",
    ),
]
WaitFor = Annotated[
    str | None,
    QueryParameter(
        description="How long to wait when there is nothing: `5s`, at most 60 s.",
        schema_extra={"examples": ["5s"]},
    ),
]
Instant = Annotated[
    str | None,
    QueryParameter(description="An instant: ISO 8601 text, or seconds since the epoch."),
]
Filter = Annotated[
    str | None,
    QueryParameter(
        name="filter", description="Part of a name, or a pattern with `*` and `?`; case does not matter."
    ),
]
Skip = Annotated[int, QueryParameter(name="offset", ge=0, le=2**31, description="How many to leave out.")]
PageLimit = Annotated[
    int, QueryParameter(name="limit", ge=1, le=1_000, description="The most that is answered.")
]
Preview = Annotated[
    int,
    QueryParameter(
        ge=0, le=2**20, description="Bytes of a value that are shown; a longer one is cut, and says so."
    ),
]
Whole = Annotated[int | None, QueryParameter(ge=0, le=2**62)]


def instant(text: str | None) -> str | float | None:
    """A parameter as an instant: seconds since the epoch come as text too."""
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        return text


def instant_ms_of(text: str | None) -> int | None:
    given = instant(text)
    return None if given is None else instant_ms(given)


class Done(NamedTuple):
    """A call that was done without waiting for anything."""

    body: bytes
    """The answer's, to be sent with status 200."""
    lsn: int | None
    """The answer is only true when all below this is on disk; None: it is true now."""


async def read(request: Request[Any, Any, Any], kind: type[T]) -> T:
    """The JSON body as a struct; an empty body is an empty object."""
    body = await request.body()
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given and given != "application/json" and not given.endswith("+json"):
        raise BadRequest(415, f"the body must be application/json, not {given}")
    if body and not given:
        raise BadRequest(415, "say what the body is: content-type: application/json")
    decoder = _DECODERS.get(kind)
    if decoder is None:
        decoder = _DECODERS[kind] = msgspec.json.Decoder(kind)
    made: T = decode_body(body, decoder)
    return made


_DECODERS: dict[type[Any], msgspec.json.Decoder[Any]] = {}


BODIES: dict[str, Any] = {
    "CreateTopic": {"name": "orders", "partitions": 3, "retention": "7d"},
    "TopicOptions": {"retention": "14d"},
    "PublishIn": {"value": {"order_id": 123}, "key": "customer-7", "headers": {"kind": "order"}},
    "ProduceIn": {"topic": "orders", "value": {"order_id": 123}, "key": "customer-7"},
    "CreateGroup": {"name": "billing", "lease": "30s", "max_deliveries": 5},
    "GroupOptions": {"lease": "1m"},
    "ReceiveIn": {"max": 10, "wait": "20s", "member": "worker-1"},
    "SeekIn": {"time": "2026-01-14T15:00:00Z"},
    "ReplayIn": {"failed": True},
    "RedriveIn": {"reason": "timeout", "rate": 100, "dry_run": True},
    "MoveIn": {"delay": "5m"},
    "LoginIn": {"key": "trine_root_3vJ6…"},
    "CronIn": {
        "name": "nightly",
        "topic": "reports",
        "expression": "0 3 * * *",
        "message": {"value": {"kind": "nightly"}},
        "timezone": "Europe/Berlin",
    },
}
"""An example of each body, for readers of the schema."""
