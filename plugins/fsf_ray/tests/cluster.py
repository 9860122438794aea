"""A Ray cluster of three nodes of one processor: the address is printed, each line kills a node."""

import sys


def main():
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": 100 * 1024**2}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    try:
        nodes = [cluster.add_node(**node) for _ in range(2)]
        cluster.wait_for_nodes()
        print(cluster.address, flush=True)
        for _ in sys.stdin:
            cluster.remove_node(nodes.pop(), allow_graceful=False)
            print("killed", flush=True)
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
