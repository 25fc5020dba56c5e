"""The same work by libraries that one can install: error at equal privacy, labels that are found, CPU seconds.

`python -m benchmarks.peers FOLDER` makes an environment for each of them in a folder, runs the work there and here, and
writes results.json and docs/peers.md. Those that do not install are told, with the last line of what pip said.
"""
