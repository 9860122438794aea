"""Faults that begin at some size, or in the last part of a batch, are found."""

import numpy as np
import pytest
import torch

from fsframework.values import task_rng
from tests.misdeclared import changed
from tests.testing.test_backbone import Small
from tests.testing.test_detector import Brightest
from tests.testing.test_method import Nearest
from tests.testing.test_sampler import Uniform
from tests.testing.test_statistic import Spread


def scored(support, query):
    return Nearest.scores(Nearest(), support, query)


def with_last_task_lost(support, query):
    return torch.cat([support[:63], support[:1].expand(len(support) - 63, *support.shape[1:])])


FAULTS = {
    "queries beyond 60 are centred": (
        "method",
        "check_queries_independent",
        changed(
            Nearest,
            scores=lambda self, s, q: scored(s, q - (q.shape[1] > 60) * q.mean(1, keepdim=True)),
        ),
    ),
    "the 64th task gets the support of the first": (
        "method",
        "check_tasks_independent",
        changed(
            Nearest,
            scores=lambda self, s, q: scored(with_last_task_lost(s, q) if len(s) > 63 else s, q),
        ),
    ),
    "the fifth shot is forgotten": (
        "method",
        "check_shot_order",
        changed(Nearest, scores=lambda self, s, q: scored(s[:, :, :4], q)),
    ),
    "the seed is forgotten from task 900 on": (
        "sampler",
        "check_prefix",
        changed(
            Uniform, rng=lambda self, seed, task, n: task_rng(seed, task, str(n)[task // 900 :])
        ),
    ),
    "seeds have eight bits": (
        "sampler",
        "check_seed_matters",
        changed(Uniform, rng=lambda self, seed, task, n: task_rng(seed % 256, task)),
    ),
    "task 64 is centred by the others": (
        "statistic",
        "check_tasks_independent",
        changed(
            Spread,
            per_task=lambda self, outcomes: (
                Spread().per_task(outcomes) / (1 + (len(outcomes) >= 64) * np.arange(len(outcomes)))
            ),
        ),
    ),
    "batches of 33 images are normalised": (
        "backbone",
        "check_images_independent",
        changed(
            Small,
            forward=lambda self, x: Small.forward(
                self, x - (len(x) > 32) * x.mean(0, keepdim=True)
            ),
        ),
    ),
    "the 33rd image has the words of the 32nd": (
        "detector",
        "check_images_independent",
        changed(
            Brightest,
            detect=lambda self, images: [
                self.words(images[place - (place >= 32)]) for place in range(len(images))
            ],
        ),
    ),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_a_size_is_found(fault, failing):
    kind, check, broken = FAULTS[fault]
    assert check in failing(broken, kind)
