"""Commands for the service: `serve` shows what streams released, `token` says who may come."""

from pathlib import Path
from typing import Any

import click

from pianissimo.cli import PATH, arguments, echo_json, json_option, named_place

TOKENS = Path("pianissimo.tokens")

tokens_option = click.option(
    "--tokens", type=PATH, default=TOKENS, show_default=True, help="The file of tokens; it holds their digests alone."
)


def _places(context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> list[str]:
    return [str(named_place(context, option, text)) for text in texts]


@click.command()
@click.argument("states", metavar="DIR...", nargs=-1, required=True, callback=_places)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="The port; 0 for any.")
@click.option("--public", is_flag=True, help="Show what was released to everybody, without a token.")
@tokens_option
@click.option(
    "--host-name", multiple=True, help="A name under which the service is reached, such as stats.example.org."
)
@click.option("--embed", multiple=True, metavar="ORIGIN", help="An origin whose pages may hold a card of ours.")
def serve(
    *,
    states: list[str],
    host: str,
    port: int,
    public: bool,
    tokens: Path,
    host_name: tuple[str, ...],
    embed: tuple[str, ...],
) -> None:
    """Show what the durable streams in DIR, or at postgresql:// URLs, released: as a live page and as an API.

    It reads the stores and writes nothing, and needs no secret. Without --public a token of the role viewer is needed;
    `pianissimo token add viewer` makes one.
    """
    from pianissimo.errors import ParameterError

    try:
        from pianissimo.service import TokenFile, viewer_app
        from pianissimo.service.server import address_of, listening_socket, serve_on
    except ImportError:
        raise ParameterError("serve must have fastapi and uvicorn, got none: pip install pianissimo[serve]") from None
    if host in ("0.0.0.0", "::") and not host_name:  # noqa: S104
        raise click.UsageError(f"--host-name must be given where --host is {host}, got none: names that lead here")
    with arguments():
        app = viewer_app(states, tokens=TokenFile(tokens), public=public, hosts=[host, *host_name], embedded_in=embed)
    with listening_socket(host, port) as found:
        click.echo(f"Serving {', '.join(app.library.shelves)} at {address_of(found)}", err=True)
        serve_on(app, found)


@click.group()
def token() -> None:
    """Make, list and revoke tokens of the service."""


@token.command("add")
@click.argument("role", type=click.Choice(("viewer", "analyst", "writer", "operator")))
@click.option("--stream", multiple=True, help="A stream that it is for.  [default: all]")
@click.option("--until", help="When it ends: a length such as 30d, or a date-time.  [default: never]")
@tokens_option
@json_option
def add_token(*, role: Any, stream: tuple[str, ...], until: str | None, tokens: Path, as_json: bool) -> None:
    """Make a token of ROLE. It is shown once: the file keeps its digest alone."""
    from pianissimo.service.tokens import TokenFile

    with arguments():
        made, grant = TokenFile(tokens).add(role, streams=stream or None, until=until)
    if as_json:
        echo_json({"token": made, **grant.to_dict()})
        return
    click.echo(made)
    click.echo(f"{_told(grant.to_dict())}. Keep it: it is not shown again.", err=True)


@token.command("list")
@tokens_option
@json_option
def list_tokens(*, tokens: Path, as_json: bool) -> None:
    """Show what tokens there are; never the tokens themselves."""
    from pianissimo.service.tokens import TokenFile

    found = [grant.to_dict() for grant in TokenFile(tokens).grants()]
    if as_json:
        echo_json(found, indent=2)
        return
    for each in found:
        click.echo(_told(each))
    if not found:
        click.echo("There are no tokens.")


@token.command("revoke")
@click.argument("id")
@tokens_option
def revoke_token(*, id: str, tokens: Path) -> None:  # noqa: A002
    """Let the token of this ID open nothing any more, within a second."""
    from pianissimo.service.tokens import TokenFile

    TokenFile(tokens).revoke(id)
    click.echo(f"{id} opens nothing any more")


def _told(grant: dict[str, Any]) -> str:
    streams = "all streams" if grant["streams"] is None else ", ".join(grant["streams"])
    end = "without an end" if grant["until"] is None else f"until {grant['until']}"
    return f"{grant['id']}: {grant['role']} of {streams}, {end}"
