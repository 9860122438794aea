# %% [markdown]
# # From captions to words
#
# The benchmark needs to know what is in each image. Captions are the usual source: people or a
# model describe the image, nouns and adjectives become its words. This tutorial goes from a file of
# captions to tasks, and looks at what can go wrong on the way.
#
# ## Captions
#
# The rendered images of `planted` come with captions, so we write them to a file as a captioner
# would. For your own images, `--detector vit-gpt2` makes them (it downloads a model once).

# %%
import csv
from pathlib import Path

import fsframework as fsf

data = fsf.dataset({"name": "planted", "n_per_class": 20, "size": 64})
with Path("captions.csv").open("w", newline="", encoding="utf-8") as file:
    rows = csv.writer(file)
    rows.writerow(["key", "caption"])
    rows.writerows(zip(data.keys, data.metadata["caption"], strict=True))
for caption in data.metadata["caption"][:60:20]:
    print(caption)

# %% [markdown]
# ## Words
#
# The detector `captions-file` reads the file; spaCy finds nouns and adjectives and reduces them to
# their base form.

# %% language="bash"
# fsf attributes extract words.parquet --detector captions-file:captions.csv \
#   --dataset planted -o dataset.n_per_class=20 --force

# %% [markdown]
# Look at images and words before you trust a number.

# %% language="bash"
# fsf attributes show words-page.png --attributes words.parquet --dataset planted \
#   -o dataset.n_per_class=20 --force

# %% [markdown]
# ![Images of the test classes with their words](words-page.png)
#
# ## Which words are spurious?
#
# A word that some images of a class have and others lack. A word that all images of a class have,
# such as the name of the class, is not: no task can contradict it.

# %% language="bash"
# fsf attributes stats --attributes words.parquet --dataset planted -o dataset.n_per_class=20

# %% [markdown]
# ## Words that are not surroundings
#
# A captioner names what it sees, and it often sees the class. If *bird* is in most captions of
# every class of birds, it says nothing about the background. Two options remove such words:
# `--drop-class-words` takes out the words that name the image's own class,
# `--drop-words-in-classes 0.8` those that most images of 80 % of the classes have.
#
# ## Tasks
#
# With the words, tasks can be drawn. Each class of a biased task gets one word: all its support
# images have it, and its queries lack it.

# %%
pool = fsf.pool(data, split="test", attributes="words.parquet")
arms = fsf.draw("fewstab", pool, tasks=100, shot=3, queries=5)
biased, words = arms["biased"], pool.attributes
assert words is not None
for place in range(5):
    name = pool.class_names[biased.classes[0, place]]
    print(f"{name}: {words.words[biased.attribute[0, place]]}")

# %% [markdown]
# ## Do wrong words matter?
#
# A captioner makes mistakes. We let a careless one describe the wrong image in three of ten cases,
# and measure the same network, one that sees only colours, with both sets of words.

# %%
import random

import torch

careless = random.Random(0)
captions = list(data.metadata["caption"])
for place in range(len(captions)):
    if careless.random() < 0.3:
        captions[place] = careless.choice(captions)
with Path("careless.csv").open("w", newline="", encoding="utf-8") as file:
    rows = csv.writer(file)
    rows.writerow(["key", "caption"])
    rows.writerows(zip(data.keys, captions, strict=True))

network = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten())
for path in ("captions.csv", "careless.csv"):
    run = fsf.run(
        method="ncc",
        backbone=network,
        dataset={"name": "planted", "n_per_class": 20, "size": 64},
        detector={"name": "captions-file", "path": path},
        shot=3,
        queries=5,
        tasks=600,
        progress=False,
    )
    print(path, run.estimates["acc-gap"])

# %% [markdown]
# Wrong words make the gap smaller, since the tasks are then less biased than they claim. They do
# not invent one. So a gap from poor captions is a lower bound.
#
# More in [Captions to words](../guides/attributes.md) and
# [Spurious words](../concepts/spurious-words.md).
