from __future__ import annotations

import torch
from torch import nn

from fsf_self_supervised.methods._clusters import ClusteredMemory
from fsf_self_supervised.methods._memory import MomentumCopy, Queue
from fsframework.testing.method import ToyBackbone


def test_a_queue_writes_over_its_oldest_vectors() -> None:
    queue = Queue(5, 1)
    for first in (0, 3, 6):
        queue.write(torch.arange(first, first + 3.0)[:, None])
    assert queue.entries.flatten().tolist() == [5.0, 6.0, 7.0, 8.0, 4.0]
    # More than fit: the last ones count.
    queue.write(torch.arange(10.0, 17.0)[:, None])
    assert sorted(queue.entries.flatten().tolist()) == [12.0, 13.0, 14.0, 15.0, 16.0]


def test_a_queue_starts_with_vectors_of_length_one() -> None:
    torch.testing.assert_close(Queue(7, 4).entries.norm(dim=1), torch.ones(7))


def test_a_copy_takes_over_the_weights_first_and_then_follows_slowly() -> None:
    backbone, head = ToyBackbone(), nn.Linear(2, 1, bias=False)
    slow = MomentumCopy(backbone, head, 0.75)
    assert not any(p.requires_grad for p in slow.parameters())
    for value, expected in ((4.0, 4.0), (8.0, 5.0), (5.0, 5.0)):
        nn.init.constant_(head.weight, value)
        slow.follow(backbone, head)
        assert slow.slow_head.weight.tolist() == [[expected, expected]]
    own = dict(slow.slow_backbone.named_parameters())
    assert all(torch.equal(own[name], p) for name, p in backbone.named_parameters())


def axes(*numbers: int, noise: float = 0.1) -> torch.Tensor:
    """Return vectors near axes of three dimensions."""
    generator = torch.Generator().manual_seed(0)
    return 3 * torch.eye(3)[list(numbers)] + noise * torch.randn(
        len(numbers), 3, generator=generator
    )


def test_a_full_memory_is_clustered_and_new_vectors_join_the_clusters() -> None:
    memory = ClusteredMemory(6, 3, 3, epsilon=0.05, iterations=10, rounds=2)
    memory.write(axes(0, 1, 2, 0))
    assert not memory.ready
    assert not memory.centres.any()
    memory.write(axes(1, 2))  # full: the first round of k-means
    memory.write(axes(2, 1))  # the second one, with the two oldest vectors written over
    assert memory.ready
    memory.write(axes(0, 1))
    # The places hold axes 2 1 | 0 1 | 1 2.
    labels = memory.labels.tolist()
    assert [labels[i] for i in (1, 3, 4)] == [labels[1]] * 3
    assert labels[0] == labels[5]
    assert len(set(labels)) == 3
    nearest = memory.centres[labels[2]].argmax()
    assert nearest == 0
    torch.testing.assert_close(memory.centres[labels[1]], memory.queue.entries[[1, 3, 4]].mean(0))


def test_neighbours_are_of_the_nearest_cluster_if_it_has_enough() -> None:
    memory = ClusteredMemory(4, 2, 2, epsilon=0.05, iterations=3, rounds=1)
    units = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8], [0.0, 1.0]])
    memory.queue.entries.copy_(units)
    memory.labels.copy_(torch.tensor([0, 0, 0, 1]))
    memory.centres.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    vectors = torch.tensor([[3.0, 0.3], [0.5, 5.0]])
    # The second row's cluster has one vector, too few for two.
    assert torch.equal(memory.neighbours(vectors, 2), units[torch.tensor([[0, 1], [3, 2]])])
    # The second row's cluster has one vector, enough for one.
    assert torch.equal(memory.neighbours(vectors, 1), units[torch.tensor([[0], [3]])])


def test_a_cluster_without_vectors_keeps_its_centre() -> None:
    memory = ClusteredMemory(2, 2, 2, epsilon=0.05, iterations=3, rounds=1)
    memory.write(torch.eye(2))
    for _ in range(2):
        memory.write(torch.tensor([[1.0, 0.0]]))
    assert memory.labels.tolist() == [0, 0]
    assert torch.equal(memory.centres, torch.eye(2))
