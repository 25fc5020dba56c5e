"""Commands for the service: `serve` shows what streams released, `token` says who may come."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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


def check_service() -> None:
    """Refuse to go on without what the service needs."""
    from pianissimo.errors import ParameterError

    try:
        import pianissimo.service  # noqa: F401
    except ImportError:
        raise ParameterError("serve must have fastapi and uvicorn, got none: pip install pianissimo[serve]") from None


@contextmanager
def served_beside(
    state: str, tokens: Path, serve: str | None, operator: str | None, live: Any, stop: Any, metrics: Any
) -> Iterator[None]:
    """While a stream runs, what `run --serve` and `--operator` ask for."""
    check_service()
    from pianissimo.durable.place import Place
    from pianissimo.io.metrics import listening_place
    from pianissimo.service import TokenFile, serving, viewer_app
    from pianissimo.service.app import operator_app
    from pianissimo.service.inbox import Inbox

    with ExitStack() as open_:
        if serve is not None:
            host, port = listening_place(serve)
            folder = Place.of(state, witness="none").inbox
            inboxes = {live.plan.name: Inbox(folder)} if folder.is_dir() else {}
            public = host in ("127.0.0.1", "::1", "localhost")
            app = viewer_app([state], tokens=TokenFile(tokens), public=public, hosts=[host], inboxes=inboxes)
            click.echo(f"Serving {live.plan.name} at {open_.enter_context(serving(app, host, port))}", err=True)
        if operator is not None:
            host, port = listening_place(operator)
            app = operator_app(live, stop, state, tokens=TokenFile(tokens), metrics=metrics)
            click.echo(f"Operators: {open_.enter_context(serving(app, host, port))}/operator/status", err=True)
        yield


@click.command()
@click.argument("states", metavar="DIR...", nargs=-1, required=True, callback=_places)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="The port; 0 for any.")
@click.option("--public", is_flag=True, help="Show what was released to everybody, without a token.")
@tokens_option
@click.option(
    "--ingest", is_flag=True, help="Take events of streams whose source is http = true; needs a token of a writer."
)
@click.option("--tables", type=PATH, help="A file of tables that analysts may ask; needs a token of an analyst.")
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
    **more: Any,
) -> None:
    """Show what the durable streams in DIR, or at postgresql:// URLs, released: as a live page and as an API.

    It reads the stores and writes nothing, and needs no secret. Without --public a token of the role viewer is needed;
    `pianissimo token add viewer` makes one.
    """
    check_service()
    from pianissimo.durable.place import Place
    from pianissimo.service import TokenFile, viewer_app
    from pianissimo.service.analyst import asked_tables
    from pianissimo.service.inbox import Inbox
    from pianissimo.service.server import address_of, listening_socket, serve_on
    from pianissimo.service.shelf import Shelf

    host_name, embed = more["host_name"], more["embed"]
    if host in ("0.0.0.0", "::") and not host_name:  # noqa: S104
        raise click.UsageError(f"--host-name must be given where --host is {host}, got none: names that lead here")
    with arguments():
        inboxes = {}
        for state in states if more["ingest"] else ():
            folder = Place.of(state, witness="none").inbox
            if folder.is_dir():
                inboxes[Shelf(state).name] = Inbox(folder)
        if more["ingest"] and not inboxes:
            raise click.UsageError("--ingest must be given for a stream that is run with http = true, got none")
        app = viewer_app(
            states,
            tokens=TokenFile(tokens),
            public=public,
            hosts=[host, *host_name],
            embedded_in=embed,
            inboxes=inboxes,
            tables=None if more["tables"] is None else asked_tables(more["tables"]),
        )
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
