# %% [markdown]
# # How many tasks do I need?
#
# More tasks give shorter intervals. But how many are enough, and how many queries should each
# have? A small pilot run answers both.
#
# ## A pilot
#
# Random tasks, a method that needs no training, and as many queries per class as there are images.

# %%
from functools import partial

import torch

import fsf_statistics
import fsframework as fsf


class Edges(torch.nn.Module):
    """How strongly the picture changes, and in which direction, in 64 patches."""

    def forward(self, images):
        grey = images.mean(dim=1, keepdim=True)
        across = (grey[..., 1:, 1:] - grey[..., 1:, :-1]).abs()
        down = (grey[..., 1:, 1:] - grey[..., :-1, 1:]).abs()
        changes = torch.cat([across, down], dim=1)
        return torch.nn.functional.adaptive_max_pool2d(changes, 8).flatten(1)


network = Edges()
measure = partial(
    fsf.run,
    method="ncc",
    backbone=network,
    dataset={"name": "planted", "n_per_class": 60, "size": 64},
    progress=False,
)
pilot = measure(sampler="random", tasks=200, queries=40)
pilot.estimates["acc-random"]

# %% [markdown]
# ## The plan
#
# Suppose the number should hold for *other images* from the same source, not only for these. Then
# no image may be in two tasks, and the images run out: 20 classes of 60 images. Many queries make
# each task precise but leave few tasks. `plan_queries` finds the best trade.

# %%
plan = fsf_statistics.plan_queries(pilot)
print(plan.n_query, "queries per class")
print(plan.command)

# %% language="bash"
# fsf plan method=ncc,sampler=random --difference 2

# %% [markdown]
# Read a row as follows: with this many queries per class there are so many tasks, the interval is
# this long, and a difference of so many points between two methods is found with a chance of 80 %.
# The curve is flat around its best value, so half or twice the number of queries is no mistake.
#
# ## Does it keep its promise?
#
# We follow the plan, and then do what most papers do, 15 queries.

# %%
for queries in (plan.n_query, 15, 40):
    arguments = {**plan.arguments, "queries": queries}
    run = measure(**arguments)
    n_tasks = run.record.arms["depleting"].n_tasks
    print(f"{queries:3} queries, {n_tasks:3} tasks: {run.estimates['acc-depleting']}")

# %% [markdown]
# ## And if only these images matter?
#
# Then draw as many tasks as you like. Four times the tasks halve the interval: 600 tasks are usual,
# 150 give twice the width, 2,400 half of it. But the number then speaks of this data set only, and
# below the noise of your training seeds more tasks tell you nothing new
# ([Over training seeds](../concepts/intervals.md#over-training-seeds)).
#
# More in [How many tasks](../guides/planning.md).
