"""`assay mcp`: the service as tools of an agent, over standard input and output."""

from __future__ import annotations

from assay.service.cli.arguments import Subcommands, add_remote
from assay.service.cli.commands import OK, Options, connected
from assay.service.contract.extras import require


def add_commands(subcommands: Subcommands) -> None:
    """Adds `mcp`."""
    summary = "serve an agent: tools to submit, wait, read and explain (Model Context Protocol)"
    add_remote(subcommands, "mcp", serve, summary, "", "--url https://assay.example", topic="this machine")


def serve(options: Options) -> int:
    """Answers an agent until it closes standard input."""
    require("`assay mcp`", "mcp")
    from assay.service.mcp.server import make_server

    with connected(options) as client:
        make_server(client).run()
    return OK
