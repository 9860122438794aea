# %% [markdown]
# # Photos, paintings, sketches
#
# How much of what a network recognises is the class, and how much the style of the picture? PACS
# (Li et al. 2017) answers with real images: dogs, elephants, giraffes, guitars, horses, houses and
# persons, each as photos, art paintings, cartoons and sketches.
#
# ## The images
#
# Get PACS from its authors, as a folder or a `.zip` with `DOMAIN/CLASS/…`; it is not part of this
# software. The outputs below are those of a sample, 60 images of each class and domain in 112
# pixels, and the check says so.

# %% language="bash"
# fsf data check --dataset pacs:pacs.zip

# %% [markdown]
# ## One example of each class
#
# Domains are the metadata column `context`. In a task of the arm `iid` the queries of a class are
# in the domain of its only example; in the arm `ood` they are in another one. Which domain, is
# drawn for each class. The network was trained on ImageNet, nothing is trained here.

# %% language="bash"
# fsf run --dataset pacs:pacs.zip --sampler context --shot 1 \
#   --method ncc --backbone timm:tf_efficientnet_lite0

# %% [markdown]
# Look at **Acc-IID**, then at the gap: in another domain the accuracy is little more than the 20 %
# of guessing, and in the worst class of a task nearly nothing is right. The example of
# another class shares the query's domain, and the domain is what the network sees first.
#
# ## Examples in two domains
#
# With two examples of each class, in two domains, the queries of `ood` are in the other two. Images
# are not embedded again.

# %% language="bash"
# fsf run --dataset pacs:pacs.zip --sampler context --shot 2 -o sampler.n_contexts=2 \
#   --method ncc --backbone timm:tf_efficientnet_lite0

# %% [markdown]
# In other domains the accuracy rises from 25 to 30 %; within them it falls, because the mean of a
# class is now between two styles. Any method can be put in the place of `ncc`;
# [Contexts](../concepts/contexts.md) compares several.
