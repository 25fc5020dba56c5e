"""Commands for a durable stream: `status`, `verify`, `recover` and `rotate-secret`."""

from pathlib import Path
from typing import Any

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
    from pianissimo.durable.opening import config_of
    from pianissimo.io import inspect

    stream, origin = inspect.stored_stream(state)
    found = inspect.verify(stream.plan(), config_of(stream, origin), state, secret=secret, witness=witness)
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

    The stream then begins a new life: it skips all ticks that were ever released, and its noise is new. Counts, sums
    and histograms go on from the last released values that are known. Other queries begin anew. Earlier releases stay.

    The new life is charged to the budget once more, because events may be shown a second time. One case is free: the
    unit is the event, and the store is older than a witness that is whole.
    """
    from pianissimo.durable import recover as recovery
    from pianissimo.durable.keys import read_secret
    from pianissimo.durable.opening import config_of
    from pianissimo.durable.place import wire
    from pianissimo.durable.shared_ledger import ledger_elsewhere
    from pianissimo.io.inspect import stored_stream
    from pianissimo.stream.spec import load_spec

    if accept_rollback == accept_lost_witness:
        raise click.UsageError("one of --accept-rollback and --accept-lost-witness must be given")
    elsewhere = ledger_elsewhere(state, ledger, ledger_key)
    wiring = wire(state, secret=secret, witness=witness, ledger=elsewhere)
    if file is None:
        stream, origin = stored_stream(state)
    else:
        spec = load_spec(file)
        stream, origin = spec.stream, spec.origin
    plan, config = stream.plan(), config_of(stream, origin)
    if accept_lost_witness:
        done = recovery.accept_lost_witness(plan, config, wiring, folder=out)
    else:
        earlier = None if old_secret is None else read_secret(old_secret, beside=Path(old_secret), create=False)
        done = recovery.accept_rollback(plan, config, wiring, folder=out, old_secret=earlier)
    if as_json:
        told: dict[str, Any] = {
            "incarnation": done.incarnation,
            "last_tick": done.last_tick,
            "lost": done.lost,
            "charged": done.charged,
            "totals_from_tick": dict(done.totals),
            "begun_anew": list(done.anew),
        }
        echo_json(told)
        return
    charge = "it was charged anew" if done.charged else "the charge that was made covers it"
    lines = [
        f"a new life begins after tick {done.last_tick}; {done.lost} released ticks are not in this store; {charge}"
    ]
    if done.same_life:
        lines = [
            f"the stream goes on after tick {done.last_tick} as it was; in its ledger all that was left is booked, "
            "since nobody knows what others were charged and is lost"
        ]
    if accept_lost_witness:
        lines.append(f"a new witness stands at tick {done.last_tick}; events after it may be shown a second time")
    lines += [f"{name}: the total goes on from what was released at tick {tick}" for name, tick in done.totals.items()]
    lines += [f"{name}: begins anew" for name in done.anew]
    click.echo("\n".join(lines))


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
    from pianissimo.durable.keys import read_secret
    from pianissimo.durable.opening import open_stream
    from pianissimo.durable.place import Place
    from pianissimo.io.inspect import stored_stream
    from pianissimo.ledger import check_key_path

    check_key_path("--new", new)
    if new.exists():
        raise click.UsageError(f"--new must be a file that is not there yet, got {new}")
    stream, origin = stored_stream(state)
    with open_stream(stream, state, secret=secret, witness=witness, origin=origin) as live:
        live.rotate_secret(read_secret(new, beside=new, create=True))
        tick = live.tick_number + 1
    default = Place.of(state, witness=witness).secret
    click.echo(f"from tick {tick} on the secret is the one in {new}; start the stream with it, or move it to {default}")
