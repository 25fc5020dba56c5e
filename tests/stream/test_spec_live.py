"""Live sources and sinks in a stream file."""

from datetime import timedelta
from pathlib import Path

import pytest

from pianissimo.errors import SpecError
from pianissimo.io.sinks import make_sink
from pianissimo.stream.source_spec import KafkaTopic, LiveSource
from pianissimo.stream.spec import SinkSpec, StreamSpec, load_spec

HEAD = """
[stream]
name = "s"
epsilon = 1
delta = 1e-9
tick = "1m"
horizon = "1h"
origin = 2026-01-01
[queries.n]
kind = "count"
"""


def load(folder: Path, text: str, head: str = HEAD) -> StreamSpec:
    path = folder / "s.toml"
    path.write_text(head + text)
    return load_spec(path)


def fault(folder: Path, text: str, head: str = HEAD) -> str:
    with pytest.raises(SpecError) as refusal:
        load(folder, text, head)
    return str(refusal.value).removeprefix(f"{folder / 's.toml'}: ")


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("stdin = true", LiveSource(stdin=True)),
        ("stdin = true\nuntil_end = true\nuntil = 7", LiveSource(stdin=True, until_end=True, until=7)),
        (
            'kafka = { brokers = "b:9092", topic = "t" }',
            LiveSource(kafka=KafkaTopic(brokers="b:9092", topic="t")),
        ),
        (
            '[source.kafka]\nbrokers = "b"\ntopic = "t"\nsettings = { "sasl.password" = "env:P", "check.crcs" = '
            "true, n = 5 }",
            LiveSource(
                kafka=KafkaTopic(
                    brokers="b", topic="t", settings={"sasl.password": "env:P", "check.crcs": "true", "n": "5"}
                )
            ),
        ),
    ],
)
def test_a_live_source_is_what_the_file_says(tmp_path: Path, text: str, source: LiveSource) -> None:
    assert load(tmp_path, f"[source]\n{text}").source == source


def test_followed_files_are_found_from_the_stream_file(tmp_path: Path) -> None:
    spec = load(tmp_path, '[source]\nfollow = "logs/*.csv"\nformat = "csv"\ntime = "at"\nlate = "drop"')
    assert spec.source == LiveSource(follow=tmp_path / "logs/*.csv", format="csv", time="at", late="drop")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "",
            "source.path must be given, got nothing; it is a file or a folder that is complete; or, for events "
            "as they come, one of source.follow, source.stdin, source.http and source.kafka",
        ),
        (
            'stdin = true\nfollow = "x"',
            "source must have one of path, follow, stdin, http, kafka and spark, or path and follow, got 'follow', "
            "'stdin'",
        ),
        ('follow = ""', "source.follow must be a text, got ''"),
        ('follow = "-"', "source.follow must be a file or a folder, got '-'; for standard input write stdin = true"),
        ('stdin = "yes"', "source.stdin must be true or false, got 'yes'"),
        ('stdin = true\nlate = "never"', "source.late must be 'count' or 'drop', got 'never'"),
        (
            'stdin = true\nlate = "drop"',
            "source.time must be given where late events are dropped, got nothing; it is the column of their times",
        ),
        (
            'path = "x"\ntime = "t"\nlate = "drop"',
            "source.late must be 'count' where source.time cuts the ticks, got 'drop'; leave it out",
        ),
        ('stdin = true\nformat = "csv"', "source.format must be 'jsonl' for source.stdin, got 'csv'"),
        (
            'follow = "x"\nformat = "parquet"',
            "source.format must be 'csv' or 'jsonl' for files that grow, got 'parquet'; use source.path instead",
        ),
        ('follow = "x"\nuntil_end = true', "source.until_end must be false unless source.stdin is true, got true"),
        ("kafka = 3", "source.kafka must be a table, got something else"),
        (
            'kafka = { topic = "t" }',
            "source.kafka.brokers must be given, got nothing; it is where the brokers are, such as 'host:9092'",
        ),
        (
            'kafka = { brokers = "b", topic = "t", topik = 1 }',
            "source.kafka.topik must be one of the fields 'brokers', 'topic', 'settings', got 'topik'; did you "
            "mean 'topic'?",
        ),
        (
            'kafka = { brokers = "b", topic = "t", settings = ["canary"] }',
            'source.kafka.settings must be a table of texts such as { "sasl.username" = "me" }, got something else',
        ),
    ],
)
def test_a_live_source_that_cannot_be_is_refused(tmp_path: Path, text: str, message: str) -> None:
    assert fault(tmp_path, f"[source]\n{text}") == message


def test_a_live_source_needs_an_origin(tmp_path: Path) -> None:
    assert fault(tmp_path, "[source]\nstdin = true", HEAD.replace("origin = 2026-01-01", "")).startswith(
        "stream.origin must be given when the clock cuts the ticks, got nothing"
    )


def test_sinks_are_what_the_file_says(tmp_path: Path) -> None:
    spec = load(
        tmp_path,
        """
        [sinks.files]
        kind = "folder"
        path = "out"
        format = "csv"
        [sinks.office]
        kind = "webhook"
        url = "https://me:canary@example.org"
        key = "key.txt"
        timeout = "3s"
        [sinks.topic]
        kind = "kafka"
        brokers = "b"
        topic = "t"
        settings = { "sasl.password" = "canary" }
        """,
    )
    assert spec.sinks == (
        SinkSpec(name="files", kind="folder", path=tmp_path / "out", format="csv"),
        SinkSpec(
            name="office",
            kind="webhook",
            url="https://me:canary@example.org",
            key=tmp_path / "key.txt",
            timeout=timedelta(seconds=3),
        ),
        SinkSpec(
            name="topic", kind="kafka", kafka=KafkaTopic(brokers="b", topic="t", settings={"sasl.password": "canary"})
        ),
    )
    assert "canary" not in repr(spec)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[sinks.a]\nkind = "mail"', "sinks.a.kind must be one of 'folder', 'kafka', 'webhook', got something else"),
        ("[sinks.a]", "sinks.a.kind must be one of 'folder', 'kafka', 'webhook', got nothing"),
        (
            '[sinks.a]\nkind = "folder"',
            "sinks.a.path must be given, got nothing; it is a folder, found from where the stream file is",
        ),
        ('[sinks.a]\nkind = "webhook"\nurl = ["canary"]', "sinks.a.url must be a text, got something else"),
        (
            '[sinks.a]\nkind = "webhook"\nurl = "https://x"\nurk = 1',
            "sinks.a.urk must be one of the fields 'kind', 'url', 'key', 'timeout', got 'urk'; did you mean 'url'?",
        ),
        (
            '[sinks.a]\nkind = "folder"\npath = "x"\nformat = "xls"',
            "sinks.a.format must be 'csv', 'jsonl' or 'parquet', got something else",
        ),
    ],
)
def test_a_sink_that_cannot_be_is_refused(tmp_path: Path, text: str, message: str) -> None:
    assert fault(tmp_path, text) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'url = "http://me:canary@example.org/"',
            "sinks.a: url must be encrypted (https) unless it is on this machine, got http://example.org",
        ),
        (
            'url = "env:NO_SUCH_VARIABLE"',
            "sinks.a: the variable NO_SUCH_VARIABLE must hold what env:NO_SUCH_VARIABLE stands for, got nothing",
        ),
        (
            'url = "https://x"\nkey = "none.key"',
            "sinks.a: .* must be a file with a key, got: No such file or directory",
        ),
        ('url = "https://x"\nkey = "open.key"', "sinks.a: .* must be open to its owner alone"),
        ('url = "https://x"\nkey = "empty.key"', "sinks.a: .* must hold a key, got nothing"),
    ],
)
def test_a_webhook_that_cannot_be_used_is_refused_before_anything_is_opened(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "open.key").write_text("k")
    (tmp_path / "empty.key").touch(mode=0o600)
    spec = load(tmp_path, f'[sinks.a]\nkind = "webhook"\n{text}')
    with pytest.raises(SpecError, match=message.replace("(", r"\(").replace(")", r"\)")):
        make_sink(spec.sinks[0], spec.stream.plan())


def test_a_key_may_be_a_file_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "k.key").touch(mode=0o600)
    (tmp_path / "k.key").write_text("secret\n")
    spec = load(tmp_path, '[sinks.a]\nkind = "webhook"\nurl = "https://example.org"\nkey = "k.key"')
    sink = make_sink(spec.sinks[0], spec.stream.plan())
    assert (sink.name, sink._key) == ("webhook a", b"secret")  # type: ignore[attr-defined]
