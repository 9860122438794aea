# %% [markdown]
# # Does my method really win?
#
# Your method has two points more than the baseline. Is it better, or were its tasks easier? We take
# one network and four classifiers on top of it, and ask in four steps.
#
# ## Four classifiers on one network
#
# The network has fixed filters, so nothing is trained. `Weighted` is our idea; the
# other classifiers come with `fsf-methods`.

# %%
import torch

import fsf_reports
import fsframework as fsf
from fsframework.interfaces import FewShotMethod


class Edges(torch.nn.Module):
    """How strongly the picture changes, and in which direction, in 64 patches."""

    def forward(self, images):
        grey = images.mean(dim=1, keepdim=True)
        across = (grey[..., 1:, 1:] - grey[..., 1:, :-1]).abs()
        down = (grey[..., 1:, 1:] - grey[..., :-1, 1:]).abs()
        changes = torch.cat([across, down], dim=1)
        return torch.nn.functional.adaptive_max_pool2d(changes, 8).flatten(1)


class Weighted(FewShotMethod):
    """The nearest class mean; features that vary little in a class count more."""

    weightless = True

    def scores(self, support, query):
        means = support.mean(dim=2)
        spread = (support - means.unsqueeze(2)).var(dim=(1, 2)).add(1e-3).sqrt()
        return -torch.cdist(query / spread.unsqueeze(1), means / spread.unsqueeze(1))


network = Edges()
runs = {}
for method in (Weighted, "ncc", "knn", "logistic"):
    name = method if isinstance(method, str) else "weighted"
    runs[name] = fsf.run(
        method=method,
        backbone=network,
        dataset={"name": "planted", "n_per_class": 30, "size": 64},
        tasks=200,
        queries=10,
        progress=False,
    )
for name, run in runs.items():
    print(f"{name:9}", run.estimates["acc-random"])

# %% [markdown]
# ## Step 1: the intervals, one by one
#
# As one reads a table in a paper: two methods differ if their intervals do not overlap. Those of
# `weighted` and `ncc` do. But an interval contains two things: how good the method is, and how hard
# the tasks were. Both had the *same* tasks.

# %%
two = {name: runs[name] for name in ("weighted", "ncc")}
tasks = fsf_reports.figure("task-accuracies", two)
fsf_reports.save_figure(tasks, "winning-tasks.svg", columns=2)

# %% [markdown]
# ![Accuracy of each task by both methods](winning-tasks.svg)
#
# What is hard for one method is hard for the other.
#
# ## Step 2: the difference, task by task
#
# So subtract first, and average then. What makes a task hard for both cancels.

# %%
found = fsf.compare(two, "acc-random")
for pair in found["acc-random"].pairs:
    print(pair.first, "-", pair.second, "=", pair.difference)

# %% [markdown]
# The interval of the difference is shorter than those of the two accuracies, and does not contain
# zero: `weighted` is better.
#
# ## Step 3: all pairs
#
# Four methods make six pairs, ten methods 45. If you look at many differences, one of them looks
# convincing by chance. Holm's correction takes this into account. Methods that share a letter
# cannot be told apart.

# %%
fsf.compare(runs, "acc-random")

# %%
pairs = fsf_reports.figure("pairs", runs, statistic="acc-random")
fsf_reports.save_figure(pairs, "winning-pairs.svg", columns=2)

# %% [markdown]
# ![Differences between all pairs of methods, with intervals](winning-pairs.svg)
#
# ## Step 4: what did it win with?
#
# Accuracy on random tasks does not say *how* a method tells classes apart. The gap does.

# %%
for pair in fsf.compare(runs, "wacc-gap")["wacc-gap"].pairs[:3]:
    print(pair.first, "-", pair.second, "=", pair.difference)

# %% [markdown]
# A positive difference means a larger gap. `weighted` gives weight to whatever varies little within
# the support, and in a biased task that is the hint. It wins where the support is a fair sample,
# and loses more where it is not. Both belong in the paper.
#
# ## What you may write
#
# *On these images*, a method is better if the corrected difference excludes zero. Three things are
# not yet in the interval:
#
# - **Other images.** Tasks share images, so the interval is *closed*. For images from the same
#   source, draw tasks without replacement ([Open and closed intervals](../concepts/intervals.md)).
# - **Other trainings.** A trained method needs several seeds: `fsf.run(..., seeds=range(5))`.
# - **What a gap means.** A smaller gap is no merit of a method that knows less
#   ([Effective robustness](../concepts/robustness.md)).
#
# On the command line, `fsf compare runs` does all of this. [Comparing](../guides/comparing.md) has
# the details.
