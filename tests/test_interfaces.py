"""The contracts are enforced, and cost nobody what they do not use."""

import ast
import importlib
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import fsframework.interfaces as interfaces
from fsframework.interfaces import (
    Backbone,
    Batch,
    DataError,
    Dataset,
    FewShotMethod,
    OptionError,
)


def test_every_public_name_can_be_loaded():
    assert sorted(interfaces.__all__) == interfaces.__all__
    assert dir(interfaces) == interfaces.__all__
    told = ast.parse(Path(interfaces.__file__).with_suffix(".pyi").read_text()).body
    assert sorted(alias.name for line in told for alias in line.names) == interfaces.__all__
    for line in told:
        for alias in line.names:
            loaded = getattr(interfaces, alias.name)
            assert loaded is getattr(importlib.import_module(line.module), alias.name)
    with pytest.raises(AttributeError, match="has no attribute 'TaskSamplr'"):
        interfaces.TaskSamplr  # noqa: B018


def test_only_methods_and_backbones_pay_for_torch():
    names = "TaskSampler, Statistic, AttributeDetector, Dataset"
    code = f"import sys; from fsframework.interfaces import {names}; print('torch' in sys.modules)"
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"


class Dot(FewShotMethod):
    """Scores are dot products with the class means."""

    def scores(self, support, query):
        return query @ support.mean(dim=2).mT


class Flattened(Dot):
    """Items are flattened first."""

    def embed(self, items):
        return items.flatten(1)


def test_the_default_loss_by_hand():
    support = torch.tensor([[[[1.0, 0.0]], [[0.0, 1.0]]]])  # one task of two ways of one shot
    query = torch.tensor([[[2.0, 0.0], [0.0, 0.0]]])
    batch = Batch(support=support, query=query, query_labels=torch.tensor([[0, 1]]))
    # logits (2, 0) of label 0 and (0, 0) of label 1
    expected = (math.log(1 + math.exp(-2)) + math.log(2)) / 2
    assert Dot().loss(batch).item() == pytest.approx(expected)


def test_an_episode_is_embedded_in_one_call():
    calls = []

    class Recording(Flattened):
        """Remembers what it embeds."""

        def embed(self, items):
            calls.append(items.shape)
            return super().embed(items)

    support = torch.arange(2 * 3 * 2 * 4.0).reshape(2, 3, 2, 1, 2, 2)
    query = -torch.arange(2 * 5 * 4.0).reshape(2, 5, 1, 2, 2)
    embedded = Recording().embed_episode(Batch(support=support, query=query))
    assert calls == [(2 * 3 * 2 + 2 * 5, 1, 2, 2)]
    assert torch.equal(embedded[0], support.reshape(2, 3, 2, 4))
    assert torch.equal(embedded[1], query.reshape(2, 5, 4))


def test_an_episode_is_needed_to_embed_one():
    with pytest.raises(OptionError, match="Dot learns from episodes"):
        Dot().embed_episode(Batch(items=torch.zeros(2, 3)))


class Stripes(Dataset):
    """Six images, one of them larger than the others."""

    keys = tuple("abcdef")
    labels = np.array([0, 1, 2, 0, 1, 2])
    class_names = ("cat", "dog", "eel", "fox")
    splits = {"train": ("eel", "cat"), "test": ("dog",), "val": ("fox",)}  # noqa: RUF012
    metadata = {"context": tuple("uvwxyz")}  # noqa: RUF012
    fingerprint = "stripes"

    def image(self, index):
        side = 6 if index == 5 else 4
        return np.full((side, side, 3), 10 * index, np.uint8)


def test_a_pool_holds_its_split_in_order():
    dataset = Stripes()
    assert dataset.split_indices("train").tolist() == [0, 2, 3, 5]
    pool = dataset.pool("train")
    assert pool.keys == ("a", "c", "d", "f")
    assert pool.class_names == ("cat", "eel")
    assert pool.labels.tolist() == [0, 1, 0, 1]
    assert pool.metadata["context"] == ("u", "w", "x", "z")


def test_an_unknown_or_empty_split_is_an_error():
    with pytest.raises(
        DataError, match="the data set has no split 'dev'; its splits are train, test, val, all"
    ):
        Stripes().pool("dev")
    with pytest.raises(DataError, match="the split 'val' has no image"):
        Stripes().pool("val")


def test_images_are_resized_only_where_they_must_be():
    images = Stripes().images([5, 1], 4)
    assert images.shape == (2, 4, 4, 3)
    assert images[:, 0, 0, 0].tolist() == [50, 10]


def test_vectors_are_the_mean_over_locations():
    class Identity(Backbone):
        """Images are maps."""

        def forward(self, images):
            return images

    maps = torch.arange(2 * 3 * 2 * 2.0).reshape(2, 3, 2, 2)
    assert Identity().vectors(maps).tolist() == [[1.5, 5.5, 9.5], [13.5, 17.5, 21.5]]
