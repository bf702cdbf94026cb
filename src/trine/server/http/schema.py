"""The OpenAPI document: paths and parameters from Litestar, bodies and answers from the structs themselves.

Litestar describes structs by their annotations; msgspec knows what it accepts and writes: limits, fields that may be
left out, unknown fields refused. So the structs are described by msgspec, and every operation gets the problems.
"""

from __future__ import annotations

from typing import Any, Final, get_args, get_origin

import msgspec
from litestar import Litestar, Response
from litestar.handlers import HTTPRouteHandler
from litestar.response import Stream

from trine.server.http.bodies import PublishedMany, PublishedOne
from trine.server.http.problems import MEDIA_TYPE, Problem
from trine.server.http.requests import BODIES

JSON: Final = "application/json"
REF: Final = "#/components/schemas/{name}"
TOLD: Final = {
    "400": "The request is off; `faults` names the fields.",
    "401": "No API key, or one that is not known.",
    "403": "The key may not do this.",
    "404": "There is no such thing.",
    "409": "The state of things says no.",
    "413": "Too large.",
    "415": "The body is of a kind that is not taken.",
    "429": "A limit was reached; the same call may succeed later.",
    "503": "Not ready, or closing; try again.",
    "default": "A problem.",
}
BODY_ONLY: Final = frozenset({"413", "415"})


def describe(app: Litestar) -> dict[str, Any]:
    """The document, as plain data."""
    document = app.openapi_schema.to_schema()
    kinds: set[Any] = {Problem, PublishedOne, PublishedMany}
    found: list[tuple[dict[str, Any], HTTPRouteHandler]] = []
    for route in app.routes:
        for handler in getattr(route, "route_handlers", []):
            if not isinstance(handler, HTTPRouteHandler) or not handler.resolve_include_in_schema():
                continue
            item = document["paths"].get(_documented(route.path_format), {})
            for method in handler.http_methods:
                operation = item.get(str(method).lower())
                if operation is not None:
                    found.append((operation, handler))
                    kinds.update(_kinds(handler))
    refs, components = msgspec.json.schema_components(kinds, ref_template=REF)
    by_kind = dict(zip(kinds, refs, strict=True))
    for operation, handler in found:
        _complete(operation, handler, by_kind)
    document["components"]["schemas"] = components
    document["paths"].update(_probes())
    return document


def _plain(parameter: dict[str, Any]) -> dict[str, Any]:
    """A parameter without what says nothing. It may be left out, but it is never null."""
    schema = dict(parameter.get("schema", {}))
    kinds = [one for one in schema.pop("oneOf", []) if one.get("type") != "null"]
    if len(kinds) == 1:
        schema.update(kinds[0])
    elif kinds:
        schema["oneOf"] = kinds
    if isinstance(schema.get("type"), list):
        schema["type"] = next(kind for kind in schema["type"] if kind != "null")
        schema["enum"] = [one for one in schema["enum"] if one is not None]
    schema.pop("description", None)
    if schema.get("type") == "integer":
        schema.setdefault("minimum", 0)
    kept = ("name", "in", "description")
    plain = {word: parameter[word] for word in kept if parameter.get(word)}
    return {**plain, "required": bool(parameter.get("required")), "schema": schema}


def _documented(path: str) -> str:
    return path.rstrip("/") or "/"


def _kinds(handler: HTTPRouteHandler) -> set[Any]:
    kinds = {handler.opt[word] for word in ("body", "or") if word in handler.opt}
    answer = _answer(handler)
    return kinds | ({answer} if answer is not None else set())


def _answer(handler: HTTPRouteHandler) -> Any:
    kind = handler.parsed_fn_signature.return_type.annotation
    if get_origin(kind) is Response:
        kind = get_args(kind)[0]
    if kind is None or kind is type(None) or kind is bytes or kind is Stream:
        return None
    return kind


def _complete(operation: dict[str, Any], handler: HTTPRouteHandler, by_kind: dict[Any, Any]) -> None:
    opt = handler.opt
    body = opt.get("body")
    if "parameters" in operation:
        operation["parameters"] = [_plain(one) for one in operation["parameters"]]
    if body is not None:
        content: dict[str, Any] = {JSON: {"schema": by_kind[body], **_example(body)}}
        if opt.get("octets"):
            content["application/octet-stream"] = {"schema": {"type": "string", "format": "binary"}}
            operation.setdefault("parameters", []).extend(_octet_options())
        required = any(field.required for field in msgspec.structs.fields(body))
        operation["requestBody"] = {"content": content, "required": required or bool(opt.get("octets"))}
    good = {status: told for status, told in operation["responses"].items() if status.startswith("2")}
    for told in good.values():
        told.pop("content", None)
        if (schema := _answered(handler, by_kind)) is not None:
            told["content"] = schema
    if handler.parsed_fn_signature.return_type.annotation is not None and opt.get("may") is not None:
        _also(operation, handler, good)
    guarded = opt.get("may") is not None or bool(opt.get("session"))
    operation["responses"] = {**good, **_problems(by_kind, body is not None, guarded)}
    if opt.get("may") is None:
        operation["security"] = [{}]
    else:
        operation["x-trine-may"] = opt["may"]


def _also(operation: dict[str, Any], handler: HTTPRouteHandler, good: dict[str, Any]) -> None:
    """Answers whose status depends on what was there."""
    if "201" in good and get_origin(handler.parsed_fn_signature.return_type.annotation) is Response:
        good["200"] = {**good["201"], "description": "It was there already."}
    if "202" in good:
        good["200"] = {**good["202"], "description": "A dry run: nothing was moved."}


def _answered(handler: HTTPRouteHandler, by_kind: dict[Any, Any]) -> dict[str, Any] | None:
    if handler.opt.get("events"):
        return {"text/event-stream": {"schema": {"type": "string"}}}
    if handler.opt.get("text"):
        return {"text/plain": {"schema": {"type": "string"}}}
    if handler.opt.get("octets") or handler.opt.get("answer") == "published":
        either = [by_kind[PublishedOne], by_kind[PublishedMany]]
        return {JSON: {"schema": {"anyOf": either}}}
    answer = _answer(handler)
    if (other := handler.opt.get("or")) is not None:
        return {JSON: {"schema": {"anyOf": [by_kind[answer], by_kind[other]]}}}
    return None if answer is None else {JSON: {"schema": by_kind[answer]}}


def _problems(by_kind: dict[Any, Any], has_body: bool, guarded: bool) -> dict[str, Any]:
    content = {MEDIA_TYPE: {"schema": by_kind[Problem]}}
    skipped = set() if has_body else set(BODY_ONLY)
    if not guarded:
        skipped |= {"401", "403", "404", "409", "429"}
    return {
        status: {"description": words, "content": content}
        for status, words in TOLD.items()
        if status not in skipped
    }


def _example(body: Any) -> dict[str, Any]:
    given = BODIES.get(body.__name__)
    return {} if given is None else {"example": given}


def _octet_options() -> list[dict[str, Any]]:
    words = {
        "key": "The message's key.",
        "priority": "A lane of the topic.",
        "delay": "A duration: `5m`.",
        "deliver_at": "An instant: ISO 8601, or seconds since the epoch.",
        "ttl": "A duration.",
        "dedup_id": "Seen before within the window: answered with the first one's place.",
        "partition": "A whole number.",
        "producer": "Who published it.",
        "durability": "memory, written or synced.",
        "wait": "How long to wait for room in a full topic.",
    }
    return [
        {
            "name": name,
            "in": "query",
            "required": False,
            "description": f"{told} With `application/octet-stream` only.",
            "schema": {"type": "string"},
        }
        for name, told in words.items()
    ]


def _probes() -> dict[str, Any]:
    """Health and readiness, which the gate answers."""
    state = {"type": "object", "properties": {"state": {"type": "string"}}, "required": ["state"]}
    alive = {"type": "object", "properties": {"status": {"const": "alive"}}, "required": ["status"]}
    problem = {MEDIA_TYPE: {"schema": {"$ref": REF.format(name="Problem")}}}
    return {
        "/health": {
            "get": {
                "operationId": "health",
                "tags": ["operations"],
                "summary": "Whether the process is alive",
                "security": [{}],
                "responses": {"200": {"description": "It is.", "content": {JSON: {"schema": alive}}}},
            }
        },
        "/ready": {
            "get": {
                "operationId": "ready",
                "tags": ["operations"],
                "summary": "Whether the server has recovered and serves",
                "security": [{}],
                "responses": {
                    "200": {"description": "It does.", "content": {JSON: {"schema": state}}},
                    "503": {"description": "Not yet; how far it is.", "content": problem},
                },
            }
        },
    }
