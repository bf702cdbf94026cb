"""The page at /docs: the OpenAPI document as HTML, made here, with no script and nothing from elsewhere."""

from __future__ import annotations

import json
from html import escape
from typing import Any, Final

from trine.server.http.problems import OF_HTTP, STATUS, every_error

METHODS: Final = ("get", "post", "patch", "delete")
STYLE: Final = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:0 auto;padding:1rem}
code,pre{font:14px/1.4 ui-monospace,monospace}
pre{background:rgba(128,128,128,.12);padding:.6rem;overflow-x:auto;border-radius:4px}
table{border-collapse:collapse;width:100%;margin:.4rem 0}
td,th{border:1px solid rgba(128,128,128,.4);padding:.25rem .5rem;text-align:left;vertical-align:top}
details{border:1px solid rgba(128,128,128,.4);border-radius:4px;margin:.4rem 0;padding:.3rem .6rem}
summary{cursor:pointer}
.m{display:inline-block;min-width:4.2em;font-weight:600}
.k{opacity:.7}
:target{outline:2px solid}
"""


def render(document: dict[str, Any]) -> bytes:
    info = document["info"]
    parts = [
        "<!doctype html><html lang=en><head><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width,initial-scale=1'>",
        f"<title>{escape(info['title'])}</title><style>{STYLE}</style></head><body>",
        f"<h1>{escape(info['title'])} <span class=k>{escape(info['version'])}</span></h1>",
        f"<p>{_text(info.get('description', ''))}</p>",
        "<p>For programs: <a href=/openapi.json>/openapi.json</a>.</p>",
    ]
    groups = _by_tag(document)
    parts.append("<p>" + " · ".join(f"<a href='#{_slug(tag)}'>{escape(tag)}</a>" for tag in groups))
    parts.append(" · <a href='#structs'>structs</a> · <a href='#problems'>problems</a></p>")
    for tag, operations in groups.items():
        parts.append(f"<h2 id='{_slug(tag)}'>{escape(tag.capitalize())}</h2>")
        parts += [_operation(path, method, operation) for path, method, operation in operations]
    parts.append("<h2 id=structs>Structs</h2>")
    parts += [_struct(name, schema) for name, schema in sorted(document["components"]["schemas"].items())]
    parts.append(_problems())
    parts.append("</body></html>")
    return "".join(parts).encode()


def _by_tag(document: dict[str, Any]) -> dict[str, list[tuple[str, str, dict[str, Any]]]]:
    groups: dict[str, list[tuple[str, str, dict[str, Any]]]] = {
        tag["name"]: [] for tag in document.get("tags", [])
    }
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                groups.setdefault((item[method].get("tags") or ["other"])[0], []).append(
                    (path, method, item[method])
                )
    return {tag: operations for tag, operations in groups.items() if operations}


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    parts = [
        f"<details id='{escape(operation.get('operationId', ''))}'><summary><span class=m>{method.upper()}</span> ",
        f"<code>{escape(path)}</code> <span class=k>{escape(operation.get('summary', ''))}</span></summary>",
        f"<p>{_text(operation.get('description', ''))}</p>",
    ]
    if may := operation.get("x-trine-may"):
        parts.append(f"<p class=k>The key must be allowed to <b>{escape(may)}</b>.</p>")
    if parameters := operation.get("parameters"):
        rows = "".join(
            f"<tr><td><code>{escape(one['name'])}</code></td><td>{one['in']}{' *' if one.get('required') else ''}</td>"
            f"<td>{_kind(one.get('schema', {}))}</td><td>{_text(one.get('description', ''))}</td></tr>"
            for one in parameters
        )
        parts.append(f"<table><tr><th>parameter<th>in<th>kind<th></tr>{rows}</table>")
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        parts.append(f"<p>Body: {escape(media)}, {_kind(content.get('schema', {}))}</p>")
        if "example" in content:
            parts.append(f"<pre>{escape(_json(content['example']))}</pre>")
    for status, told in operation["responses"].items():
        if status.startswith("2"):
            kinds = ", ".join(
                f"{escape(media)}, {_kind(content.get('schema', {}))}"
                for media, content in told.get("content", {}).items()
            )
            parts.append(f"<p>{status}: {kinds or 'no body'}</p>")
    parts.append("</details>")
    return "".join(parts)


def _struct(name: str, schema: dict[str, Any]) -> str:
    required = set(schema.get("required", []))
    rows = "".join(
        f"<tr><td><code>{escape(field)}</code>{' *' if field in required else ''}</td><td>{_kind(one)}</td>"
        f"<td>{_text(one.get('description', ''))}</td></tr>"
        for field, one in schema.get("properties", {}).items()
    )
    table = f"<table><tr><th>field<th>kind<th></tr>{rows}</table>" if rows else ""
    told = schema.get("description", "") or ", ".join(map(str, schema.get("enum", [])))
    return (
        f"<details id='{escape(name)}'><summary><code>{escape(name)}</code></summary>"
        f"<p>{_text(told)}</p>{table}</details>"
    )


def _kind(schema: dict[str, Any]) -> str:
    """A schema in a few words, with links to the structs."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f"<a href='#{name}'>{name}</a>"
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(_kind(one) for one in schema[several]))
    if "enum" in schema:
        return " | ".join(f"<code>{escape(str(one))}</code>" for one in schema["enum"])
    if "const" in schema:
        return f"<code>{escape(str(schema['const']))}</code>"
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    if schema.get("type") == "object":
        inner = schema.get("additionalProperties")
        return f"object of {_kind(inner)}" if isinstance(inner, dict) and inner else "object"
    kind = schema.get("type", "any JSON")
    return escape(" or ".join(kind) if isinstance(kind, list) else str(kind))


def _problems() -> str:
    rows = "".join(
        f"<tr id='{one.code}'><td>{STATUS[one.code]}</td><td><code>{one.code}</code></td>"
        f"<td>{_text(_first_sentence(one.__doc__) if '__doc__' in vars(one) else '')}</td></tr>"
        for one in every_error()
        if one.code in STATUS
    )
    own = "".join(
        f"<tr id='{code}'><td>{status}</td><td><code>{code}</code></td><td>of HTTP itself</td></tr>"
        for status, code in OF_HTTP.items()
    )
    return (
        "<h2 id=problems>Problems</h2><p>Every error is <code>application/problem+json</code> (RFC 9457); programs "
        "compare <code>code</code>.</p><table><tr><th>status<th>code<th></tr>"
        f"{rows}{own}</table>"
    )


def _first_sentence(text: str | None) -> str:
    return " ".join((text or "").split())


def _text(text: str) -> str:
    """Escaped, with `code` between backticks."""
    pieces = escape(text).split("`")
    return "".join(f"<code>{piece}</code>" if index % 2 else piece for index, piece in enumerate(pieces))


def _slug(tag: str) -> str:
    return escape("tag-" + tag.replace(" ", "-"))


def _json(value: Any) -> str:
    return json.dumps(value, indent=2)
