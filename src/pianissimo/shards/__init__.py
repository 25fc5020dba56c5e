"""Shards that have the state and the noise of a stream, wherever they run; the driver seals and speaks for them.

Labels, or users, are cut into so many shards by a public hash when the stream is created. Any number of tasks take any
of them at any tick, and no data move: what a shard is at a tick is a function of what is sealed (`shard_task`), made
again wherever it is asked for (`shard_owner`). The driver (`sharded_core`) has a stream's runs as ever, but the states
of those that shards can keep.
"""

from pianissimo.shards.shard_task import ShardPlan
from pianissimo.shards.sharded_core import Holding, ShardedCore

__all__ = ["Holding", "ShardPlan", "ShardedCore"]
