"""Tokens open their own routes, of their own streams, until they end or are revoked; and lie nowhere in clear."""

import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from tests.faults.report import record
from tests.service.served import asking, begun, until

from pianissimo import errors
from pianissimo.cli.main import cli
from pianissimo.service import TokenFile
from pianissimo.service.inbox import Inbox
from pianissimo.service.tokens import digest_of, is_token, made_token

ROUTES = {
    "viewer": ["/v1/streams", *(f"/v1/streams/shop{rest}" for rest in ("", "/plan", "/budget", "/releases/1"))],
    "writer": ["POST /v1/streams/shop/events"],
    "analyst": ["/v1/streams/shop/allowance"],
    "operator": ["/operator/status"],
}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("tokens")
    begun(found, 2).close()
    (found / "inbox").mkdir()
    return found


@pytest.fixture(scope="module")
def tokens(folder: Path) -> TokenFile:
    return TokenFile(folder / "tokens")


@pytest.fixture(scope="module")
def client(folder: Path, tokens: TokenFile) -> Iterator[httpx.Client]:
    inboxes = {"shop": Inbox(folder / "inbox")}
    with asking([folder / "shop"], tokens=tokens, inboxes=inboxes) as found:
        yield found


def test_every_role_opens_its_own_routes_and_no_others(client: httpx.Client, tokens: TokenFile) -> None:
    made = {role: tokens.add(role, streams=["shop"])[0] for role in ("viewer", "writer", "analyst", "operator")}
    # The file may be read between two of them, and is read again some time later: the last one is known when all are.
    until(client, "/v1/streams", bearer(made["operator"]), 403)
    wrong = []
    for role, routes in ROUTES.items():
        for route in routes:
            method, path = ("POST", route[5:]) if route.startswith("POST ") else ("GET", route)
            for other, token in [*made.items(), ("nobody", "")]:
                headers = bearer(token) if token else {}
                body = b"{}\n" if method == "POST" else None
                headers["Content-Type"] = "application/jsonl"
                answer = client.request(method, path, headers=headers, content=body)
                # Nobody may ask a table or run the stream here: who has the token finds no such thing.
                wanted = {"viewer": 200, "writer": 202, "analyst": 404, "operator": 404}[role]
                wanted = wanted if other == role else 403 if token else 401
                wrong += [(other, path)] if answer.status_code != wanted else []
    tried = 5 * sum(map(len, ROUTES.values()))
    record("S12", "roles", figure=f"{len(wrong)} wrong of {tried}", bar="0 wrong", passed=not wrong)


def test_a_token_of_another_stream_finds_nothing(client: httpx.Client, tokens: TokenFile) -> None:
    token, _ = tokens.add("viewer", streams=["elsewhere"])
    until(client, "/v1/streams", bearer(token), 200)
    assert client.get("/v1/streams", headers=bearer(token)).json() == {"streams": []}
    hidden = client.get("/v1/streams/shop/releases/1", headers=bearer(token))
    never = client.get("/v1/streams/none/releases/1", headers=bearer(token))
    assert (hidden.status_code, hidden.content) == (404, never.content)


def test_a_revoked_token_opens_nothing_within_a_second(client: httpx.Client, tokens: TokenFile) -> None:
    token, grant = tokens.add("viewer")
    until(client, "/v1/streams", bearer(token), 200)
    tokens.revoke(grant.id)
    took = until(client, "/v1/streams", bearer(token), 401, 429)
    # The file is looked at four times a second; of a machine that does other things too.
    record("S12", "revocation", figure=f"{took:.2f} s", bar="1 s, or 2 on a busy machine", passed=took < 2)
    with pytest.raises(errors.InputError, match="must be listed"):
        tokens.revoke(grant.id)


def test_a_revoked_token_is_sent_nothing_more(client: httpx.Client, tokens: TokenFile) -> None:
    """Who waits for the next release is let go, and not only kept from asking again."""
    token, grant = tokens.add("viewer", streams=["shop"])
    until(client, "/v1/streams", bearer(token), 200)
    headers = bearer(token) | {"Accept": "text/event-stream"}
    with client.stream("GET", "/v1/streams/shop/releases?after=0", headers=headers, timeout=10) as live:
        pieces = live.iter_raw()
        assert b"retry" in next(pieces)
        tokens.revoke(grant.id)
        rest = b"".join(pieces)  # ends only where the service ends it
    assert b": still here" not in rest


def test_a_token_ends(tmp_path: Path) -> None:
    file = TokenFile(tmp_path / "tokens")
    token, grant = file.add("viewer", until="2h")
    now = datetime.now(UTC)
    assert (grant.role, grant.covers("any"), grant.is_valid(now)) == ("viewer", True, True)
    assert not grant.is_valid(now + timedelta(hours=3))
    assert file.look().granted(token) == grant
    with pytest.raises(errors.ParameterError, match="until must be a length"):
        file.add("viewer", until="someday")


def test_who_guesses_is_slowed_down_and_who_has_a_token_is_not(client: httpx.Client, tokens: TokenFile) -> None:
    token, _ = tokens.add("viewer")
    until(client, "/v1/streams", bearer(token), 200)
    answers = [client.get("/v1/streams", headers=bearer(made_token("viewer"))).status_code for _ in range(60)]
    assert 200 not in answers
    assert answers[-1] == 429
    assert client.get("/v1/streams", headers=bearer(token)).status_code == 200


@pytest.mark.parametrize("broken", ["", "{", '{"tokens": [{}]}', '{"tokens": 3}', '{"tokens": [{"role": "king"}]}'])
def test_a_file_that_cannot_be_read_lets_nobody_in(tmp_path: Path, broken: str) -> None:
    file = TokenFile(tmp_path / "tokens")
    token, _ = file.add("viewer")
    assert file.look().granted(token) is not None
    file.path.write_text(broken)
    assert file.look().granted(token) is None
    file.path.unlink()
    assert file.look().granted(token) is None


def test_a_mistyped_token_is_known_by_its_checksum() -> None:
    token = made_token("analyst")
    assert is_token(token)
    other = "0" if token[-20] != "0" else "1"
    assert not is_token(token[:-20] + other + token[-19:])


def test_tokens_are_in_no_file_and_no_log(
    client: httpx.Client, tokens: TokenFile, folder: Path, caplog: Any, capfd: Any
) -> None:
    token, _ = tokens.add("viewer")
    until(client, "/v1/streams", bearer(token), 200)
    with caplog.at_level(logging.DEBUG):
        for path in ("/v1/streams", "/v1/streams/shop/releases/1", "/v1/nothing", f"/v1/streams/{token}"):
            client.get(path, headers=bearer(token))
        client.get("/v1/streams", headers=bearer(token[:-1]))
    secret = token.rpartition("_")[2]
    ours = [each.getMessage() for each in caplog.records if not each.name.startswith(("httpx", "httpcore"))]
    output = capfd.readouterr()
    files = [each for each in folder.rglob("*") if each.is_file()]
    assert tokens.path in files
    found = [each.name for each in files if secret.encode() in each.read_bytes()]
    assert not found
    told = [*ours, output.out, output.err]
    assert not any(secret[:16] in text for text in told)
    record("S12", "canary", figure=f"0 of {len(files)} files, 0 of {len(told)} lines", bar="0", passed=not found)


def test_the_command_makes_lists_and_revokes(tmp_path: Path) -> None:
    def run(*words: str) -> str:
        done = CliRunner().invoke(cli, ["token", *words, "--tokens", str(tmp_path / "tokens")])
        assert done.exit_code == 0, done.output
        return done.stdout

    made = json.loads(run("add", "viewer", "--stream", "shop", "--until", "30d", "--json"))
    assert is_token(made["token"])
    (listed,) = json.loads(run("list", "--json"))
    assert listed == {name: value for name, value in made.items() if name != "token"}
    assert digest_of(made["token"])[:12] == listed["id"]
    run("revoke", listed["id"])
    assert json.loads(run("list", "--json")) == []
