# %% [markdown]
# # What is my model's gap?
#
# You have a network in PyTorch. Does it look at the objects or at the surroundings? We compare two
# small networks whose habits we know, so that we can see whether the measurement finds them.
#
# ## The images
#
# `planted` renders contours on backgrounds. The contour is the class. Background, texture, colour
# and light go with a class more often than chance, as grass goes with cows.

# %%
import torch
from PIL import Image

import fsframework as fsf

planted = {"name": "planted", "n_per_class": 30, "size": 64, "strength": 0.6}
data = fsf.dataset(planted)
picture = Image.new("RGB", (8 * 128, 2 * 128))
for row in range(2):
    for column in range(8):
        image = Image.fromarray(data.image(row * 30 + column))
        picture.paste(image.resize((128, 128)), (column * 128, row * 128))
picture.save("gap-images.png")

# %% [markdown]
# ![Two classes of rendered images, one in each row](gap-images.png)
#
# ## Two networks
#
# `Colour` sees sixteen colours, averaged over patches, and no shape. `Edges` sees only where the
# picture changes, and no colour. Yours goes here: any `torch.nn.Module` that maps images
# `(n, 3, height, width)` to vectors or maps.


# %%
class Colour(torch.nn.Module):
    """Mean colours of 16 patches."""

    def forward(self, images):
        return torch.nn.functional.adaptive_avg_pool2d(images, 4).flatten(1)


class Edges(torch.nn.Module):
    """How strongly the picture changes, and in which direction, in 64 patches."""

    def forward(self, images):
        grey = images.mean(dim=1, keepdim=True)
        across = (grey[..., 1:, 1:] - grey[..., 1:, :-1]).abs()
        down = (grey[..., 1:, 1:] - grey[..., :-1, 1:]).abs()
        changes = torch.cat([across, down], dim=1)
        return torch.nn.functional.adaptive_max_pool2d(changes, 8).flatten(1)


# %% [markdown]
# ## Run both
#
# `ncc`, the nearest class mean, classifies what a network returns. FewSTAB draws two kinds of
# tasks: random ones, and biased ones whose support contains a hint that the queries contradict.
# Each image is embedded once.

# %%
runs = {
    name: fsf.run(
        method="ncc",
        backbone=network,
        dataset=planted,
        queries=10,
        tasks=600,
        progress=False,
    )
    for name, network in {"colour": Colour(), "edges": Edges()}.items()
}
runs["colour"]

# %%
runs["edges"]

# %% [markdown]
# ## A figure
#
# Two bars for each network: the worst class on random tasks, and on biased ones. The letters of the
# comparison say that the two gaps differ.

# %%
import fsf_reports

bars = fsf_reports.figure("by-arm", runs)
fsf_reports.save_figure(bars, "gap-arms.svg", columns=2)
fsf.compare(runs)

# %% [markdown]
# ![Worst-class accuracy of both networks in both arms](gap-arms.svg)
#
# ## Is it the words?
#
# A gap may have another cause, such as harder classes in biased tasks. The *placebo* keeps the
# tasks but exchanges the images within each class, so that the words no longer describe them. What
# remains of the gap is not due to the words.

# %%
placebo = fsf.run(
    method="ncc",
    backbone=Colour(),
    dataset=planted,
    queries=10,
    tasks=600,
    placebo=True,
    progress=False,
)
print("gap:    ", runs["colour"].estimates["wacc-gap"])
print("placebo:", placebo.estimates["wacc-gap"])

# %% [markdown]
# ## What to keep
#
# - A network is a backbone: `fsf.run(method="ncc", backbone=network)`.
# - Judge a gap next to the accuracy: a network that knows nothing has nothing to lose
#   ([Effective robustness](../concepts/robustness.md)).
# - Run the placebo before you explain a gap ([Placebo](../concepts/placebo.md)).
