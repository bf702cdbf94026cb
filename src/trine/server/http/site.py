"""The page at `/`: files that were built into the package, and nothing else. They need no key: they tell nothing.

    /               index.html, asked for anew each time; the page routes by what follows the #
    /ui/assets/*    files with a hash in their name: kept by browsers for a year
    /ui/*           the rest, asked for anew each time

All files are read once and kept, compressed too; a page that was built again is read again. A path is looked up among
the names that are there, so none leads out of the folder. Where no page was built, `/` says how to build it.
"""

from __future__ import annotations

import asyncio
import gzip
import mimetypes
from dataclasses import dataclass
from hashlib import blake2b
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from trine.model.limits import KIB, MIB
from trine.server.http.problems import BadRequest

STATIC: Final = Path(str(files("trine"))) / "dashboard" / "static"
BYTES_MAX: Final = 16 * MIB
"""Of all files together: they are kept in memory."""
SMALL: Final = 1 * KIB
"""Below this, compressing saves no packet."""

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
ASK_AGAIN: Final = (b"cache-control", b"no-cache")
KEEP: Final = (b"cache-control", b"public, max-age=31536000, immutable")

NOT_BUILT: Final = b"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Trine</title></head><body>
<h1>Trine</h1>
<p>The dashboard was not built. In the project's folder, run <code>make dashboard</code>, and load this page again.</p>
<p>The API is described at <a href="/docs">/docs</a>.</p>
</body></html>
"""

KINDS: Final = {".js": "text/javascript", ".woff2": "font/woff2", ".svg": "image/svg+xml"}
"""Where the system's table may know another kind, or none."""


@dataclass(frozen=True, slots=True)
class StaticFile:
    body: bytes
    zipped: bytes | None
    """None where it would not be smaller."""
    kind: bytes
    tag: bytes
    keep: bool


class Site:
    """The built page, as it was when it was last looked at."""

    def __init__(self, folder: Path = STATIC) -> None:
        self._folder = folder
        self._built: tuple[int, int] | None = None
        self._files: dict[str, StaticFile] = {}

    @staticmethod
    def has(path: str) -> bool:
        """Whether a path is the page's; whether there is such a file is another question."""
        return path == "/" or path.startswith("/ui/")

    async def answer(self, scope: Any, send: Any) -> None:
        """Raises BadRequest for what is not there."""
        path: str = scope["path"]
        if path == "/" or not self._files:
            await asyncio.to_thread(self._look)
        found = self._files.get(path)
        if found is None:
            raise BadRequest(404, "there is no such file of the dashboard; load the page anew")
        given = dict(scope["headers"])
        headers = [*HEADERS, KEEP if found.keep else ASK_AGAIN, (b"etag", found.tag)]
        if found.tag in [one.strip() for one in given.get(b"if-none-match", b"").split(b",")]:
            await _send(send, 304, headers, b"")
            return
        headers += [(b"content-type", found.kind), (b"vary", b"accept-encoding")]
        body = found.body
        if found.zipped is not None and _takes_gzip(given.get(b"accept-encoding", b"")):
            headers.append((b"content-encoding", b"gzip"))
            body = found.zipped
        headers.append((b"content-length", b"%d" % len(body)))
        await _send(send, 200, headers, body)

    def _look(self) -> None:
        """Reads all files, if the page was built since they were read."""
        index = self._folder / "index.html"
        try:
            found = index.stat()
        except FileNotFoundError:
            self._built, self._files = None, {"/": _made(NOT_BUILT, ".html", keep=False)}
            return
        built = (found.st_mtime_ns, found.st_size)
        if built == self._built:
            return
        read: dict[str, StaticFile] = {}
        size = 0
        for one in sorted(self._folder.rglob("*")):
            if not one.is_file():
                continue
            body = one.read_bytes()
            size += len(body)
            assert size <= BYTES_MAX, f"the built dashboard has more than {BYTES_MAX} bytes"
            name = one.relative_to(self._folder).as_posix()
            read[f"/ui/{name}"] = _made(body, one.suffix, keep=name.startswith("assets/"))
        read["/"] = read["/ui/index.html"]
        self._built, self._files = built, read


def _made(body: bytes, suffix: str, *, keep: bool) -> StaticFile:
    kind = KINDS.get(suffix) or mimetypes.types_map.get(suffix) or "application/octet-stream"
    if kind.startswith("text/"):
        kind += "; charset=utf-8"
    zipped = gzip.compress(body, mtime=0) if len(body) >= SMALL else body
    tag = b'"%b"' % blake2b(body, digest_size=12).hexdigest().encode()
    return StaticFile(body, zipped if len(zipped) < len(body) else None, kind.encode(), tag, keep)


def _takes_gzip(accepted: bytes) -> bool:
    for one in accepted.decode("latin-1").lower().split(","):
        name, _, quality = one.partition(";")
        if name.strip() in ("gzip", "*") and quality.replace(" ", "") not in (
            "q=0",
            "q=0.0",
            "q=0.00",
            "q=0.000",
        ):
            return True
    return False


async def _send(send: Any, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
