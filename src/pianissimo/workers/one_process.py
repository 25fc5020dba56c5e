"""One process of `ProcessWorkers`: told rules, a plan and ranges, it tells what each adds, until its pipe ends.

Or it has shards, is told tasks, and tells what its shards answer.
"""

import os
import pickle
import signal
from typing import Any

from pianissimo.errors import PianissimoError
from pianissimo.noise import Secret
from pianissimo.workers.processes import receive, send


def serve(asked: Any, told: Any) -> None:
    """Answer until nobody asks any more."""
    worker: Any = None
    rules: Any = None
    while True:
        try:
            kind, content = pickle.loads(receive(asked))  # noqa: S301  # of the process that started this one
        except EOFError:
            return
        if kind == "rules":
            rules = pickle.loads(content)  # noqa: S301
            continue
        if kind == "plan":
            plan, key = content
            worker = plan.worker(None if key is None else Secret(key))
            continue
        assert worker is not None  # noqa: S101  # a stream comes before its ranges
        answer: tuple[str, Any]
        try:
            answer = ("gathered", worker.of(content, rules))
        except PianissimoError as error:
            answer = ("error", (type(error).__name__, str(error)))
        except BaseException as error:  # noqa: BLE001  # also a panic of a library
            answer = ("error", (type(error).__name__, ""))
        send(told, pickle.dumps(answer, protocol=5))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Whatever prints does not print into the answers.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    serve(os.fdopen(0, "rb", buffering=0), answers)
