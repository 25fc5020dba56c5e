"""Commands for a durable stream: `status`, `verify`, `recover` and `rotate-secret`."""

from dataclasses import asdict
from pathlib import Path

import click

from pianissimo.cli import (
    PATH,
    echo_json,
    json_option,
    ledger_key_option,
    ledger_option,
    secret_option,
    state_argument,
    witness_option,
)


@click.command()
@state_argument
@witness_option
@json_option
def status(*, state: str, witness: Path | None, as_json: bool) -> None:
    """Show where the stream in DIR stands: ticks, sinks, and the process that runs it. No data are shown."""
    from pianissimo.cli.render import console, facts
    from pianissimo.io.inspect import read_status

    found = read_status(state, witness=witness).to_dict()
    if as_json:
        echo_json(found, indent=2)
        return
    sinks = found.pop("sinks")
    found |= {f"sink {name}": f"lacks {each['undelivered']}, has {each['last_tick']}" for name, each in sinks.items()}
    console().print(facts(found))


@click.command()
@state_argument
@secret_option
@witness_option
@click.option("--out", type=PATH, help="A folder of releases that is compared with what is stored.")
@json_option
def verify(*, state: str, secret: str | None, witness: Path | None, out: Path | None, as_json: bool) -> None:
    """Check the stream in DIR: every record, its ledger and its witness. Its last releases are made again.

    Nothing is written. The exit code is 3 if something is not as it was written; the message says what it is.
    """
    from pianissimo.io import inspect

    found = inspect.verify(inspect.stored_request(state), state, secret=secret, witness=witness)
    if out is not None:
        inspect.verify_folder(state, out)
    if as_json:
        echo_json({"verified": True, **found.to_dict()})
    else:
        click.echo(
            f"verified: {found.seals} seals and {found.releases} releases are as they were written, "
            f"and the last {found.derived} releases follow from what is sealed"
        )


@click.command()
@state_argument
@secret_option
@witness_option
@click.option(
    "--accept-rollback",
    is_flag=True,
    help="The store is older than its witness, or it is gone, and no newer one exists. Go on after the last tick that "
    "the witness has seen.",
)
@click.option(
    "--accept-lost-witness",
    is_flag=True,
    help="The witness is gone for good. Go on with a new one; the stream is charged once more.",
)
@click.option(
    "--old-secret",
    metavar="PATH|env:NAME|command:WORDS",
    help="The secret that the restored store had. Give it if the secret was rotated since that store was copied.",
)
@click.option("--file", type=PATH, help="The stream file. Give it if the store itself is gone.")
@click.option(
    "--out", type=PATH, help="A folder that got releases. Give it: it may hold later ticks than the store does."
)
@ledger_option
@ledger_key_option
@json_option
def recover(
    *,
    state: str,
    file: Path | None,
    out: Path | None,
    ledger: str | None,
    ledger_key: str | None,
    secret: str | None,
    old_secret: str | None,
    witness: Path | None,
    accept_rollback: bool,
    accept_lost_witness: bool,
    as_json: bool,
) -> None:
    """Accept that something is lost, if the stream in DIR refuses to start because of it.

    First try to bring back what is missing: the newest store, or the witness. Use this command only if it is gone for
    good.

    The stream then begins a new life after the last tick that anybody may have seen, and its noise is new. Earlier
    releases stay. Totals begin anew: they count the events after the last tick of which it is known where it was read
    to. Every release says which tick that is ("since").

    The new life is charged to the budget once more, because events may be shown a second time. One case is free: the
    unit is the event, and the store is older than a witness that is whole.
    """
    from pianissimo.durable import recover as recovery
    from pianissimo.durable.key_ring import read_secret
    from pianissimo.durable.place import wire
    from pianissimo.durable.start import Request
    from pianissimo.io import last_tick, read_plan
    from pianissimo.io.inspect import stored_request
    from pianissimo.stream.spec import load_spec

    if accept_rollback == accept_lost_witness:
        raise click.UsageError("one of --accept-rollback and --accept-lost-witness must be given")
    if file is None:
        request = stored_request(state)
    else:
        spec = load_spec(file)
        request = Request(spec.stream, spec.origin)
        ledger, ledger_key = ledger or spec.ledger.place, ledger_key or spec.ledger.key
    wiring = wire(state, secret=secret, witness=witness, ledger=ledger, ledger_key=ledger_key)
    if out is not None:
        read_plan(out)  # a folder that holds no releases would say that nothing was shown
    shown = 0 if out is None else last_tick(out)
    if accept_lost_witness:
        done = recovery.accept_lost_witness(request, wiring, shown=shown)
    else:
        earlier = None if old_secret is None else read_secret(old_secret, beside=Path(old_secret), create=False)
        done = recovery.accept_rollback(request, wiring, shown=shown, old_secret=earlier)
    if as_json:
        echo_json(asdict(done))
        return
    charge = "it was charged anew" if done.charged else "the charge that was made covers it"
    click.echo(
        f"a new life begins after tick {done.last_tick}; {done.lost} released ticks are not in this store; {charge}\n"
        f"totals begin anew: they count the events after tick {done.since}"
    )


@click.command("rotate-secret")
@state_argument
@secret_option
@witness_option
@click.option("--new", metavar="PATH", required=True, type=PATH, help="The file that is made for the new secret.")
def rotate_secret(*, state: str, secret: str | None, witness: Path | None, new: Path) -> None:
    """Give the stream in DIR a new secret, which holds from the next tick on.

    The new secret is written to a file of its own. Start the stream with it from then on. What was sealed before needs
    the old secrets: they stay in the store, encrypted under the new one.
    """
    from pianissimo.durable.durable_stream import open_stream
    from pianissimo.durable.key_ring import read_secret
    from pianissimo.durable.place import Place
    from pianissimo.io.inspect import stored_request
    from pianissimo.storage.files import check_key_path

    check_key_path("--new", new)
    if new.exists():
        raise click.UsageError(f"--new must be a file that is not there yet, got {new}")
    asked = stored_request(state)
    with open_stream(asked.stream, state, secret=secret, witness=witness, origin=asked.origin) as live:
        live.rotate_secret(read_secret(new, beside=new, create=True))
        tick = live.tick_number + 1
    default = Place.of(state, witness=witness).secret
    click.echo(f"from tick {tick} on the secret is the one in {new}; start the stream with it, or move it to {default}")
