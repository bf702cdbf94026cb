"""`trine key`: the API keys of a server, in its keys file. A running server notices changes within a second or so."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from trine.cli.session import Session
from trine.cli.verb import verb
from trine.model.errors import InvalidConfig

app = typer.Typer(help="Create, list and delete API keys.", no_args_is_help=True)

KeysFile = Annotated[
    str | None,
    typer.Option("--keys-file", metavar="FILE", help="The keys file (or TRINE_KEYS_FILE, or --config's)."),
]
Config = Annotated[
    str | None,
    typer.Option("--config", "-c", metavar="FILE", help="The server's configuration (or TRINE_CONFIG)."),
]


@verb(app, "create", talks=False)
def create(
    session: Session,
    role: Annotated[str, typer.Option("--role", help="admin, producer, consumer or read-only.")],
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topics", metavar="PATTERN", help="orders, orders*; several, or with commas; else all."
        ),
    ] = None,
    id: Annotated[str | None, typer.Option("--id", help="A name, shown in logs; else a random one.")] = None,
    keys_file: KeysFile = None,
    config: Config = None,
) -> None:
    """Make a key and print it: this once, only its hash is kept."""
    from trine.server.keys import create_key

    globs = [part.strip() for given in topics or ["*"] for part in given.split(",") if part.strip()]
    path = file_of(keys_file, config)
    key = create_key(path, role=role, topics=globs, id=id)
    session.done(key, key=key, id=key.split("_")[1], role=role, topics=globs, keys_file=path)
    session.note(f"Keep it: it is not shown again. It was added to {path}.")


@verb(app, "list", talks=False)
def list_keys(session: Session, keys_file: KeysFile = None, config: Config = None) -> None:
    """Show the keys of the file; their secrets are not in it."""
    from trine.server.keys import read_keys

    records = [
        {"id": key.id, "role": key.role, "topics": list(key.topics), "created": key.created}
        for key in read_keys(file_of(keys_file, config)).values()
    ]
    columns = {
        "ID": lambda record: record["id"],
        "ROLE": lambda record: record["role"],
        "TOPICS": lambda record: ", ".join(record["topics"]),
        "CREATED": lambda record: record["created"],
    }
    session.listing(records, columns, none="there are no keys; trine key create makes one")


@verb(app, "delete", talks=False)
def delete(
    session: Session,
    id: Annotated[str, typer.Argument(metavar="ID", help="The id of the key.")],
    keys_file: KeysFile = None,
    config: Config = None,
) -> None:
    """Delete a key. Connections that use it are refused from their next command on."""
    from trine.server.keys import delete_key

    delete_key(file_of(keys_file, config), id)
    session.done(f"deleted {id}", deleted=id)


def file_of(keys_file: str | None, config: str | None) -> str:
    """The file that is meant: the flag, the variable, or what the configuration says, whether it is there or not."""
    from trine.server.settings import from_environment, from_file

    if keys_file is not None:
        return keys_file
    place = ("security", "keys_file")
    found = from_environment(os.environ, [])
    path = config or os.environ.get("TRINE_CONFIG")
    if place not in found and path:
        found = from_file(path, [])
    if place not in found or found[place].value is None:
        raise InvalidConfig(
            "say which keys file: --keys-file FILE, TRINE_KEYS_FILE, or security.keys_file in --config"
        )
    return str(found[place].value)
