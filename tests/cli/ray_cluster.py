"""A Ray cluster of two nodes with one core each, on loopback; it ends when its input does.

Says its address on the first line of its output.
"""

import sys

from ray.cluster_utils import Cluster

MEMORY = 100_000_000  # bytes of each node's object store

if __name__ == "__main__":
    node = {"num_cpus": 1, "object_store_memory": MEMORY}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    try:
        cluster.add_node(**node)
        print(cluster.address, flush=True)
        sys.stdin.read()
    finally:
        cluster.shutdown()
