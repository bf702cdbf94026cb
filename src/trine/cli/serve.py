"""`trine serve`: starts a server and stays until it is told to stop."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from trine.model.duration import duration_ms

if TYPE_CHECKING:
    from trine.server.server import Server

PANEL = "Over the configuration"


def serve(
    config: Annotated[
        str | None,
        typer.Option("--config", "-c", metavar="FILE", help="The configuration, as YAML (or TRINE_CONFIG)."),
    ] = None,
    data_dir: Annotated[
        str | None,
        typer.Option("--data-dir", metavar="DIR", help="Where messages are kept.", rich_help_panel=PANEL),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option("--host", help="The address both listeners listen on.", rich_help_panel=PANEL),
    ] = None,
    binary_port: Annotated[
        int | None,
        typer.Option(
            "--binary-port",
            metavar="N",
            help="For Trine's clients; 0 takes any free one.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    http_port: Annotated[
        int | None,
        typer.Option(
            "--http-port", metavar="N", help="For HTTP; 0 takes any free one.", rich_help_panel=PANEL
        ),
    ] = None,
    keys_file: Annotated[
        str | None,
        typer.Option(
            "--keys-file", metavar="FILE", help="API keys (see `trine key`).", rich_help_panel=PANEL
        ),
    ] = None,
    log_level: Annotated[
        str | None, typer.Option("--log-level", help="debug, info, warning or error.", rich_help_panel=PANEL)
    ] = None,
    log_format: Annotated[
        str | None, typer.Option("--log-format", help="auto, json or console.", rich_help_panel=PANEL)
    ] = None,
    ports_file: Annotated[
        str | None,
        typer.Option(
            "--ports-file", metavar="FILE", help="Written when ready: where it listens, and its pid, as JSON."
        ),
    ] = None,
    idle_exit: Annotated[
        str | None,
        typer.Option(
            "--idle-exit", metavar="TIME", help="Stop when no client has been connected for so long."
        ),
    ] = None,
) -> None:
    """Start a server: one process, a data directory, the binary protocol and HTTP.

    It stops on Ctrl-C or SIGTERM, when what is under way is answered; a second one stops it at once.
    """
    from trine.server.config import configure

    flags = {
        "--data-dir": data_dir,
        "--host": host,
        "--binary-port": binary_port,
        "--http-port": http_port,
        "--keys-file": keys_file,
        "--log-level": log_level,
        "--log-format": log_format,
    }
    chosen = configure(config, flags=flags)
    try:
        from trine.server import logs, process
    except ModuleNotFoundError as error:
        typer.echo(f"trine: {error.name} is missing: pip install 'trine[server]'", err=True)
        raise typer.Exit(1) from None
    logs.set_up(chosen.log)
    idle_s = None if idle_exit is None else duration_ms(idle_exit, what="idle-exit") / 1000
    process.run(chosen, ports_file=ports_file, on_ready=welcome, idle_s=idle_s)


def welcome(server: Server) -> None:
    """On a terminal, where to go from here; a log has it in its `ready` line."""
    if not sys.stderr.isatty():
        return
    from rich.console import Console
    from rich.panel import Panel
    from rich.text import Text

    listeners = server.config.broker.listeners
    binary = url("trines" if listeners.binary.tls else "trine", server.binary_address)
    http = url("https" if listeners.http.tls else "http", server.http_address)
    lines = [
        f"clients   {binary}",
        f"HTTP      {http}/v1",
        f"docs      {http}/docs",
        f"metrics   {http}/metrics",
        f"data      {server.config.broker.data_dir}",
        f"keys      {server.config.security.keys_file or 'none: only this machine may connect'}",
        "",
        "Ctrl-C stops it.",
    ]
    Console(stderr=True).print(Panel(Text("\n".join(lines)), title="Trine is ready", expand=False))


def url(scheme: str, address: tuple[str, int]) -> str:
    host, port = address
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
