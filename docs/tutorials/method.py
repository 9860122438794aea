# %% [markdown]
# # A method in ten lines
#
# A few-shot method gets a support and queries, and scores every query for every class. That is one
# function. We write one, train it, compare it, and test that it keeps its promises.
#
# ## Ten lines
#
# Many tasks come at once: the support is a tensor `(tasks, way, shot, features)`, the queries
# `(tasks, n, features)`, and the scores `(tasks, n, way)`. Higher is likelier.

# %%
import torch

from fsframework.interfaces import FewShotMethod


class Attentive(FewShotMethod):
    """Weight the support images of a class by how much they resemble the query."""

    def __init__(self, *, start: float = 5.0) -> None:
        super().__init__()
        self.start = start
        self.sharpness = torch.nn.Parameter(torch.tensor(start))

    def scores(self, support, query):
        images = torch.nn.functional.normalize(support.flatten(1, 2), dim=-1)
        likeness = torch.nn.functional.normalize(query, dim=-1) @ images.mT
        likeness = likeness.unflatten(-1, support.shape[1:3])
        return (self.sharpness * likeness).logsumexp(dim=-1)


# %% [markdown]
# `start` is an option, stored under its own name; `sharpness` is learned. Nothing has to be
# registered.
#
# ## Train and evaluate it
#
# `fsf.run` trains it on episodes of the training classes, with the cross-entropy of its scores. A
# short training is enough here.

# %%
from functools import partial

import fsframework as fsf

train = partial(
    fsf.run,
    backbone="conv32f",
    dataset={"name": "planted", "n_per_class": 30, "size": 32},
    training={"epochs": 4, "steps": 30},
    tasks=300,
    queries=8,
    progress=False,
)
runs = {"attentive": train(method=Attentive)}
runs["attentive"]

# %% [markdown]
# ## Against a baseline
#
# The same backbone, training and tasks, with ProtoNet.

# %%
runs["protonet"] = train(method="protonet")
fsf.compare(runs)

# %%
import fsf_reports

fsf_reports.save_figure(fsf_reports.figure("training", runs), "method-training.svg")

# %% [markdown]
# ![Validation accuracy of both methods by epoch](method-training.svg)
#
# If the curves still rise, the comparison says who learns *faster*. For a paper, train to the
# plateau (`recipe="plateau"`) with several seeds (`seeds=range(5)`).
#
# ## An option
#
# Options are named in a mapping, or on the command line by `-o method.start=20`.

# %%
sharp = train(method={"name": Attentive, "start": 20.0})
sharp.estimates["acc-random"]

# %% [markdown]
# ## Does it keep its promises?
#
# The checks call a method in many ways: does a score depend on the order of the tasks, on the
# other queries, on the batch? Are gradients finite?

# %%
from collections import Counter

from fsframework.testing import check_component

results = check_component(Attentive, "method")
Counter(result.outcome for result in results)

# %% [markdown]
# ## Share it
#
# Save the class in a file: `fsf run --plugin attentive.py --method attentive`. Methods that adapt
# the backbone, have weights per class or a loss of their own, and packages for others:
# [Methods](../extend/method.md).
