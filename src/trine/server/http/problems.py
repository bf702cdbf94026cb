"""Errors as HTTP tells them: problem details (RFC 9457), from one table.

    {"type": "/docs#unknown_topic", "title": "Unknown topic", "status": 404, "code": "unknown_topic",
     "detail": "there is no topic 'ordres' …", "instance": "/v1/topics/ordres"}

`code` is what programs compare; `detail` is for people. A fault of our own is logged with its traceback and told
without it.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException

from trine.model import errors
from trine.model.errors import TrineError

MISSING: Final = re.compile(r"Missing required \w+ parameter '([^']+)'")
"""How Litestar says it."""
MEDIA_TYPE: Final = "application/problem+json"

STATUS: Final[dict[str, int]] = {
    "error": 500,
    "invalid_input": 400,
    "invalid_name": 400,
    "invalid_duration": 400,
    "invalid_time": 400,
    "invalid_cron": 400,
    "invalid_option": 400,
    "invalid_config": 400,
    "message_too_large": 413,
    "delay_too_long": 400,
    "negative_delay": 400,
    "unknown_lane": 400,
    "empty_batch": 400,
    "invalid_receipt": 400,
    "not_found": 404,
    "unknown_topic": 404,
    "unknown_group": 404,
    "unknown_partition": 404,
    "unknown_message": 404,
    "unknown_schedule": 404,
    "unknown_job": 404,
    "offset_out_of_range": 404,
    "conflict": 409,
    "topic_exists": 409,
    "group_exists": 409,
    "schedule_exists": 409,
    "stale_receipt": 409,
    "lease_expired": 409,
    "out_of_order": 409,
    "producer_fenced": 409,
    "stale_metadata": 409,
    "closed": 503,
    "denied": 403,
    "unauthenticated": 401,
    "forbidden": 403,
    "unreachable": 503,
    "spark_failed": 502,
    "refused": 429,
    "topic_full": 429,
    "dedup_window_full": 429,
    "disk_full": 507,
    "too_many": 429,
    "store_error": 500,
    "locked": 503,
    "newer_format": 500,
    "store_failed": 503,
    "corrupt": 500,
}
"""Every code of `trine.model.errors`, and the status it has."""

OF_HTTP: Final = {
    400: "bad_request",
    404: "no_such_path",
    405: "method_not_allowed",
    413: "body_too_large",
    415: "unsupported_media_type",
    431: "headers_too_large",
    500: "internal",
    503: "not_ready",
}
"""Codes of problems that are HTTP's own, by status."""

RETRY_AFTER: Final = {429: b"1", 503: b"1"}
"""Seconds after which the same call may succeed."""


class Fault(msgspec.Struct, frozen=True):
    field: str
    """Where in the request: `messages[3].delay`, or the parameter's name."""
    message: str


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a request was not done (RFC 9457)."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    instance: str
    faults: list[Fault] = []


class BadRequest(TrineError):
    """A request that HTTP itself cannot take: its status says why."""

    code = "bad_request"

    def __init__(self, status: int, message: str, faults: list[Fault] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.faults = faults or []


def make(status: int, code: str, detail: str, instance: str, faults: list[Fault] | None = None) -> Problem:
    return Problem(
        type=f"/docs#{code}",
        title=code.replace("_", " ").capitalize(),
        status=status,
        code=code,
        detail=detail,
        instance=instance,
        faults=faults or [],
    )


def problem_of(error: BaseException, instance: str) -> Problem:
    """Any exception as a problem. What is not known is a fault of ours: it says nothing of the inside."""
    if isinstance(error, BadRequest):
        code = OF_HTTP.get(error.status, "bad_request")
        return make(error.status, code, error.message, instance, error.faults)
    if isinstance(error, TrineError):
        return make(STATUS.get(error.code, 500), error.code, error.message, instance)
    if isinstance(error, ValidationException):
        faults = _faults(error)
        told = "; ".join(f"{fault.field}: {fault.message}" for fault in faults) or error.detail
        return make(400, "bad_request", f"the parameters are off: {told}", instance, faults)
    if isinstance(error, HTTPException) and error.status_code < 500:
        status = error.status_code
        return make(status, OF_HTTP.get(status, "bad_request"), _told(status, error), instance)
    return make(
        500, "internal", "the server met a fault of its own, and has logged it; nothing is promised", instance
    )


def headers_of(problem: Problem) -> list[tuple[bytes, bytes]]:
    headers = [(b"content-type", MEDIA_TYPE.encode())]
    if problem.status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="trine"'))
    if problem.status in RETRY_AFTER and problem.code != "too_many":
        headers.append((b"retry-after", RETRY_AFTER[problem.status]))
    return headers


def encode(problem: Problem) -> bytes:
    return msgspec.json.encode(problem)


def answer_problem(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Litestar's exception handler, the only one."""
    problem = problem_of(error, request.url.path)
    if problem.status == 500:
        log_fault(request.app.state.host, error, problem.instance)
    headers = {name.decode(): value.decode() for name, value in headers_of(problem)}
    if problem.status == 405 and isinstance(error, HTTPException) and error.headers:
        headers.update(error.headers)
    return Response(encode(problem), status_code=problem.status, headers=headers, media_type=MEDIA_TYPE)


def log_fault(host: Any, error: BaseException, path: str) -> None:
    context = host.context
    if context is not None:
        context.log.error("request failed", path=path, exc_info=error)


def bad_body(error: Exception) -> BadRequest:
    """msgspec's sentence, with the field it is about: "Expected `int`, got `str` - at `$.partition`"."""
    what, _, path = str(error).partition(" - at `")
    field = path.rstrip("`").removeprefix("$").removeprefix(".") or "body"
    return BadRequest(400, f"the body is off at {field}: {what}", [Fault(field, what)])


def _faults(error: ValidationException) -> list[Fault]:
    if (missing := MISSING.search(error.detail)) is not None:
        return [Fault(missing[1], "it is needed, and is not there")]
    if not isinstance(error.extra, list):
        return []
    return [
        Fault(str(one.get("key", "?")), str(one.get("message", "")))
        for one in error.extra
        if isinstance(one, dict)
    ]


def _told(status: int, error: HTTPException) -> str:
    if status == 404:
        return "there is nothing at this path; /docs lists what there is"
    if status == 405:
        return "this path does not take this method; /docs lists what it takes"
    if status == 413:
        return "the body is larger than the server takes (limits.body_bytes)"
    return error.detail


def every_error() -> list[type[TrineError]]:
    """All classes a user can meet, for the page that explains them."""
    found = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, TrineError)]
    return sorted(found, key=lambda one: one.code)
