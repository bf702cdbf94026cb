"""Named servers, kept in `$XDG_CONFIG_HOME/trine/contexts.yaml`, for the owner alone: keys are in it.

current: local
contexts:
  local: {server: "trine://127.0.0.1:5680"}
  shop: {server: "trines://broker.example:5680", key: trine_…, ca: /etc/ssl/shop.pem}
  notes: {data: /home/ann/notes}
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from trine.model.errors import InvalidConfig, NotFound
from trine.model.ids import check_name

FILE_NAME: Final = "contexts.yaml"


class Place(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where a command talks to: a server, or a data directory."""

    server: str | None = None
    key: str | None = None
    ca: str | None = None
    data: str | None = None


class Contexts(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    current: str | None = None
    contexts: dict[str, Place] = {}

    def place(self, name: str) -> Place:
        try:
            return self.contexts[name]
        except KeyError:
            known = ", ".join(self.contexts) or "none yet"
            raise NotFound(f"there is no context {name!r}; there are: {known}") from None

    def add(self, name: str, place: Place) -> None:
        self.contexts[check_name(name, "context")] = place

    def use(self, name: str) -> None:
        self.place(name)
        self.current = name

    def remove(self, name: str) -> None:
        self.place(name)
        del self.contexts[name]
        if self.current == name:
            self.current = None


def contexts_file(environ: Mapping[str, str]) -> Path:
    home = environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(home).expanduser() / "trine" / FILE_NAME


def load_contexts(path: Path) -> Contexts:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise InvalidConfig(f"{path} cannot be read: {error.strerror}") from error
    import yaml

    try:
        return msgspec.convert(yaml.safe_load(text) or {}, Contexts)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise InvalidConfig(f"{path}: {error}; mend it, or delete it and add the contexts anew") from error


def save_contexts(path: Path, contexts: Contexts) -> None:
    """Written beside and moved over, so that there is always a whole file; 0600 before the first byte is in it."""
    import yaml

    plain: dict[str, Any] = msgspec.to_builtins(contexts)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{FILE_NAME}-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            yaml.safe_dump(plain, file, sort_keys=False)
        os.replace(beside, path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise
