"""Graph neural networks over the images of a task."""

from __future__ import annotations

import itertools
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from fsf_methods.transductive._norm import RowNorm
from fsframework.interfaces import Backbone, Batch, FewShotMethod, OptionError

__all__ = ["GNN"]

_SLOPE = 0.01
_NUMBERS_AT_ONCE = {"cpu": 1 << 21, "cuda": 1 << 28}
"""Activations of pairs per block in evaluation."""


class GNN(FewShotMethod):
    """Pass messages between support and query in a graph whose edges are learned.

    Source: Garcia and Bruna 2018, "Few-Shot Learning with Graph Neural Networks" (ICLR), sections
    4 and 5. The nodes are the support images and a query; a node is the image's vector with its
    one-hot label, which for the query is uniform. Edges are the softmax over the other nodes of an
    MLP of the absolute difference of two nodes (equation 3, with layers of 2 nf, 2 nf, nf, nf and
    1 outputs, BatchNorm and a leaky ReLU of slope 0.01 between them). A layer (equation 2) maps
    each node and the mean of its neighbours, weighted by the edges, to nf / 2 new features, with
    BatchNorm and a leaky ReLU, and appends them to the node. After two layers, each with edges of
    its own, a third maps the query's node to its scores. The loss is their cross-entropy.

    Two codes differ from the paper. In the authors' own, a query's label is zeros (``unknown``).
    In that of the papers across domains (Tseng et al. 2020) the vectors first pass a linear layer
    of 128 with BatchNorm (``width``), all BatchNorm uses the statistics of the task in evaluation
    too (``statistics``), and one query of every class shares a graph (``graph``). To have the
    last, the i-th queries of all classes must be known, which holds for labelled queries only: in
    training they are grouped by their labels, and in evaluation by their places, so that scores
    then depend on the order of the queries, which no published figure should.

    Args:
        n_way: ways of the tasks, at least 2; the network has weights per way.
        nf: width of the network, even, at least 2; the paper uses 96 for miniImageNet.
        width: outputs of a linear layer with BatchNorm before the graph; 0 for none.
        statistics: ``running`` for running statistics of BatchNorm in evaluation, so that queries
            are independent; ``batch`` for those of the task, which is transductive.
        graph: ``query`` for a graph per query; ``class`` for a graph per query of every class. The
            latter takes the queries in the order of the ways, equally many of each, and needs a
            number of queries that the ways divide.
        unknown: label of a query's node, ``uniform`` as in the paper or ``zeros``.

    Raises:
        OptionError: an option is outside its range.
    """

    def __init__(
        self,
        *,
        n_way: int = 5,
        nf: int = 96,
        width: int = 0,
        statistics: Literal["running", "batch"] = "running",
        graph: Literal["query", "class"] = "query",
        unknown: Literal["uniform", "zeros"] = "uniform",
    ) -> None:
        super().__init__()
        if n_way < 2:
            raise OptionError(f"n_way must be at least 2, got {n_way}")
        if nf < 2 or nf % 2:
            raise OptionError(f"nf must be even and at least 2, got {nf}")
        if width < 0:
            raise OptionError(f"width must be at least 0, got {width}")
        for name, value, known in (
            ("statistics", statistics, ("running", "batch")),
            ("graph", graph, ("query", "class")),
            ("unknown", unknown, ("uniform", "zeros")),
        ):
            if value not in known:
                raise OptionError(f"{name} must be {known[0]!r} or {known[1]!r}, got {value!r}")
        self.n_way = n_way
        self.nf = nf
        self.width = width
        self.statistics = statistics
        self.graph = graph
        self.unknown = unknown
        self.transductive = statistics == "batch" or graph == "class"

    def build(self, item_shape: tuple[int, ...], n_base_classes: int, backbone: Backbone) -> None:
        """Create the network for vectors ``(D,)``."""
        del n_base_classes, backbone
        assert self.n_way is not None
        running = self.statistics == "running"
        size = item_shape[0]
        if self.width:
            self.reduce = nn.Linear(size, self.width)
            self.reduce_norm = RowNorm(self.width, running=running)
            size = self.width
        size += self.n_way
        sizes = [size, size + self.nf // 2, size + 2 * (self.nf // 2)]
        self.edges = nn.ModuleList(_Edges(s, self.nf, running) for s in sizes)
        self.layers = nn.ModuleList(nn.Linear(2 * s, self.nf // 2) for s in sizes[:2])
        self.norms = nn.ModuleList(RowNorm(self.nf // 2, running=running) for _ in sizes[:2])
        self.last = nn.Linear(2 * sizes[2], self.n_way)

    def scores(self, support: Tensor, query: Tensor) -> Tensor:
        """Return the output of the queries' nodes, float ``(tasks, n, way)``.

        Args:
            support: float ``(tasks, way, shot, D)``.
            query: float ``(tasks, n, D)``.

        Raises:
            OptionError: the network is for another number of ways, or there are not equally many
                queries per way in a graph per query of every class.
        """
        n, way = query.shape[1], support.shape[1]
        if way != self.n_way:
            raise OptionError(f"n_way is {self.n_way}, so tasks must have as many ways, not {way}")
        if self.graph == "class" and n % way:
            raise OptionError(
                f"with graph='class' the number of queries must be a multiple of {way}, got {n}"
            )
        support, query = self._reduced(support, query)
        nodes, queries = self._nodes(support, query)
        if self.training:
            found = self._run(nodes, queries)
        else:
            found = self._run_in_blocks(nodes, queries)
        # (tasks, graphs, in a graph, way), and the i-th queries of all ways share a graph
        return found.transpose(1, 2).flatten(1, 2)

    def loss(self, batch: Batch) -> Tensor:
        """Return the cross-entropy of the queries' scores."""
        labels = batch.query_labels
        assert labels is not None
        support, query = self.embed_episode(batch)
        if self.graph == "class":
            order = labels.argsort(dim=1, stable=True)
            labels = labels.gather(1, order)
            query = query.gather(1, order[:, :, None].expand_as(query))
        logits = self.scores(support, query)
        return functional.cross_entropy(logits.flatten(0, 1), labels.flatten())

    def _reduced(self, support: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
        """Apply the linear layer before the graph, if there is one."""
        if not self.width:
            return support, query
        shape = support.shape[1:3]
        together = torch.cat([support.flatten(1, 2), query], dim=1)
        reduced = self.reduce_norm(self.reduce(together))
        n = shape.numel()
        return reduced[:, :n].unflatten(1, shape), reduced[:, n:]

    def _nodes(self, support: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
        """Return nodes ``(tasks, way * shot, F)`` and ``(tasks, graphs, in a graph, F)``."""
        tasks, way, shot = support.shape[:3]
        labels = torch.eye(way, dtype=query.dtype, device=query.device)
        labels = labels.repeat_interleave(shot, dim=0).expand(tasks, -1, -1)
        blank = query.new_full((*query.shape[:2], way), 1 / way if self.unknown == "uniform" else 0)
        nodes = torch.cat([support.flatten(1, 2), labels], dim=2)
        queries = torch.cat([query, blank], dim=2)
        in_a_graph = way if self.graph == "class" else 1
        return nodes, queries.unflatten(1, (in_a_graph, -1)).transpose(1, 2)

    def _run_in_blocks(self, nodes: Tensor, queries: Tensor) -> Tensor:
        """Run as many graphs at a time as fit the caches."""
        graphs, in_a_graph = queries.shape[1:3]
        size = nodes.shape[1] + in_a_graph
        most = _NUMBERS_AT_ONCE["cpu" if queries.device.type == "cpu" else "cuda"]
        at_once = max(1, most // (size * size * self.nf))
        # Statistics of a task need all of its graphs together.
        together = graphs if self.statistics == "batch" else min(graphs, at_once)
        found = [
            torch.cat([self._run(own, some) for some in theirs.split(together, dim=1)], dim=1)
            for own, theirs in _split(nodes, queries, max(1, at_once // graphs))
        ]
        return torch.cat(found)

    def _run(self, nodes: Tensor, queries: Tensor) -> Tensor:
        """Return the output of the queries' nodes, ``(tasks, graphs, in a graph, way)``."""
        graphs, in_a_graph = queries.shape[1:3]
        edges = cast("_Edges", self.edges[0])
        first = edges.shared(nodes, queries)
        x = torch.cat([nodes[:, None].expand(-1, graphs, -1, -1), queries], dim=2)
        for number, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=True)):
            weights = first if number == 0 else self.edges[number](x)
            new = layer(torch.cat([x, weights @ x], dim=3))
            new = functional.leaky_relu(norm(new.flatten(1, 2)), _SLOPE).reshape(new.shape)
            x = torch.cat([x, new], dim=3)
        weights = self.edges[2](x, last=in_a_graph)
        x = torch.cat([x[:, :, -in_a_graph:], weights @ x], dim=3)
        found: Tensor = self.last(x)
        return found


def _split(nodes: Tensor, queries: Tensor, size: int) -> zip[tuple[Tensor, Tensor]]:
    return zip(nodes.split(size), queries.split(size), strict=True)


class _Edges(nn.Module):
    """The weights of the edges of a graph: an MLP of differences, and a softmax.

    The difference of two nodes is the same in both directions, so it passes the MLP once; where
    BatchNorm takes the statistics of the pairs, it counts twice. A node and itself are a pair for
    these statistics but have no edge.

    Args:
        size: features per node.
        nf: width of the network.
        running: whether BatchNorm keeps running statistics.
    """

    def __init__(self, size: int, nf: int, running: bool) -> None:
        super().__init__()
        widths = [size, 2 * nf, 2 * nf, nf, nf]
        pairs = list(itertools.pairwise(widths))
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairs)
        self.norms = nn.ModuleList(RowNorm(b, running=running) for _, b in pairs)
        self.last = nn.Linear(nf, 1)

    @property
    def _measures(self) -> bool:
        """Whether BatchNorm takes statistics of the pairs."""
        norm = self.norms[0]
        assert isinstance(norm, RowNorm)
        return self.training or not norm.running

    def forward(self, x: Tensor, last: int | None = None) -> Tensor:
        """Return the weights of the edges of graphs, ``(tasks, graphs, nodes, nodes)``.

        Args:
            x: ``(tasks, graphs, nodes, F)``.
            last: return only the edges of as many last nodes, ``(tasks, graphs, last, nodes)``.
        """
        size = x.shape[2]
        if last is not None and not self._measures:
            differences = (x[:, :, -last:, None] - x[:, :, None]).abs()
            logits = self._mlp(differences.flatten(1, 3), None).reshape(differences.shape[:4])
            return _softmax(logits, size - last)
        i, j = torch.triu_indices(size, size, device=x.device)
        differences = (x[:, :, i] - x[:, :, j]).abs()
        counts = (2.0 - (i == j).to(x.dtype)).repeat(x.shape[1])
        logits = self._mlp(differences.flatten(1, 2), counts).reshape(differences.shape[:3])
        weights = _softmax(logits[:, :, _places(size, i.device)], 0)
        return weights if last is None else weights[:, :, -last:]

    def shared(self, nodes: Tensor, queries: Tensor) -> Tensor:
        """Return the same for graphs that share all but their last nodes.

        Pairs of shared nodes pass the MLP once for all graphs.

        Args:
            nodes: those shared, ``(tasks, m, F)``.
            queries: the others, ``(tasks, graphs, k, F)``.
        """
        (tasks, graphs, k), m = queries.shape[:3], nodes.shape[1]
        i, j = torch.triu_indices(m, m, device=nodes.device)
        a, b = torch.triu_indices(k, k, device=nodes.device)
        rows = [
            (nodes[:, i] - nodes[:, j]).abs(),
            (queries[:, :, :, None] - nodes[:, None, None]).abs().flatten(1, 3),
            (queries[:, :, a] - queries[:, :, b]).abs().flatten(1, 2),
        ]
        counts = [
            graphs * (2.0 - (i == j).to(nodes.dtype)),
            nodes.new_full((graphs * k * m,), 2.0),
            (2.0 - (a == b).to(nodes.dtype)).repeat(graphs),
        ]
        logits = self._mlp(torch.cat(rows, dim=1), torch.cat(counts))
        own, cross, other = logits.split([row.shape[1] for row in rows], dim=1)
        own = own[:, _places(m, own.device)][:, None].expand(-1, graphs, -1, -1)
        cross = cross.reshape(tasks, graphs, k, m)
        other = other.reshape(tasks, graphs, -1)[:, :, _places(k, own.device)]
        top = torch.cat([own, cross.mT], dim=3)
        return _softmax(torch.cat([top, torch.cat([cross, other], dim=3)], dim=2), 0)

    def _mlp(self, x: Tensor, counts: Tensor | None) -> Tensor:
        """Map differences ``(tasks, pairs, F)`` to logits ``(tasks, pairs)``."""
        for layer, norm in zip(self.layers, self.norms, strict=True):
            assert isinstance(layer, nn.Linear)
            assert isinstance(norm, RowNorm)
            if self._measures:
                x = functional.leaky_relu(norm(layer(x), counts), _SLOPE)
            else:
                scale, offset = norm.affine(None)
                bias = layer.bias * scale[0, 0] + offset[0, 0]
                x = functional.linear(x, layer.weight * scale[0, 0][:, None], bias)
                x = functional.leaky_relu(x, _SLOPE)
        found: Tensor = self.last(x)
        return found[..., 0]


def _places(size: int, device: torch.device) -> Tensor:
    """Return for each two of ``size`` nodes the place of their pair in ``triu_indices``.

    >>> _places(3, torch.device("cpu"))
    tensor([[0, 1, 2],
            [1, 3, 4],
            [2, 4, 5]])
    """
    row = torch.arange(size, device=device)
    low, high = torch.minimum(row[:, None], row), torch.maximum(row[:, None], row)
    return low * size - low * (low - 1) // 2 + high - low


def _softmax(logits: Tensor, first: int) -> Tensor:
    """Return the softmax over all other nodes; row ``i`` is node ``first + i``."""
    rows, size = logits.shape[-2:]
    own = torch.arange(rows, device=logits.device)[:, None] + first
    itself = own == torch.arange(size, device=logits.device)
    return logits.masked_fill(itself, float("-inf")).softmax(dim=-1)
