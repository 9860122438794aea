"""What a model of timm was trained on, read from the tag of its weights."""

from __future__ import annotations

import re

__all__ = ["sources_of", "trained_on"]

_DATA: tuple[tuple[str, str], ...] = (
    (r"in1k", "imagenet-1k"),
    (r"in12k", "imagenet-12k"),
    (r"inw?21k", "imagenet-21k"),
    (r"in22k", "imagenet-22k"),
    # A tag that contains only the name of these methods means training on ImageNet-1k.
    (r"^(fb_)?dino$", "imagenet-1k"),
    (r"^(mae|fcmae)$", "imagenet-1k"),
    (r"fcmae_ft", "imagenet-1k"),
    (r"lvd142m", "lvd-142m"),
    (r"lvd1689m", "lvd-1689m"),
    (r"sat493m", "sat-493m"),
    (r"openai", "wit-400m"),
    (r"laion2b", "laion-2b"),
    (r"laion400m", "laion-400m"),
    (r"laiona", "laion-aesthetics"),
    (r"datacomp1b|datacompxl", "datacomp-1b"),
    (r"dfn2b", "dfn-2b"),
    (r"dfn5b", "dfn-5b"),
    (r"metaclip_400m", "metaclip-400m"),
    (r"metaclip_2pt5b", "metaclip-2.5b"),
    (r"webli", "webli"),
    (r"merged2b", "merged-2b"),
    (r"m30m", "merged-30m"),
    (r"m38m", "merged-38m"),
    (r"(?<![a-z])jft", "jft-300m"),
    (r"ig1b", "ig-1b"),
    (r"swag", "ig-3.6b"),
    (r"yfcc100m", "yfcc-100m"),
    (r"yfcc15m", "yfcc-15m"),
    (r"cc12m", "cc-12m"),
    (r"sa1b", "sa-1b"),
)
"""Pattern in a tag and the data set that it means. Not every tag names its data."""


_FAMILIES: tuple[tuple[str, str], ...] = (
    (
        r"(tf_)?efficientnet_(b\d|l2|lite\d)",
        'Tan and Le 2019, "EfficientNet: Rethinking Model Scaling for Convolutional Neural '
        'Networks"',
    ),
    (
        r"resnet\d+(\.|$)",
        'He, Zhang, Ren and Sun 2016, "Deep Residual Learning for Image Recognition"',
    ),
    (
        r"vit_(tiny|small|base|large|huge)_patch",
        'Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words: Transformers for Image '
        'Recognition at Scale"',
    ),
    (
        r"convnext_(tiny|small|base|large|xlarge)",
        'Liu, Mao, Wu, Feichtenhofer, Darrell and Xie 2022, "A ConvNet for the 2020s"',
    ),
    (
        r"mobilenetv2_",
        'Sandler, Howard, Zhu, Zhmoginov and Chen 2018, "MobileNetV2: Inverted Residuals and '
        'Linear Bottlenecks"',
    ),
    (r"(tf_)?mobilenetv3_", 'Howard et al. 2019, "Searching for MobileNetV3"'),
)
"""Pattern of the names of a family and its publication; other models have that of timm only."""


def sources_of(model: str) -> str:
    """Return the publication of the family of a model; empty where it is not known.

    >>> sources_of("resnet50.a1_in1k")
    'He, Zhang, Ren and Sun 2016, "Deep Residual Learning for Image Recognition"'
    >>> sources_of("resnetv2_50")
    ''
    """
    name = model.rpartition("/")[2]
    return next((told for pattern, told in _FAMILIES if re.match(pattern, name)), "")


def trained_on(tag: str) -> str:
    """Return the data sets that the tag of some weights names, in its order, joined by ``+``.

    >>> trained_on("lvd142m"), trained_on("augreg_in21k_ft_in1k"), trained_on("a_tag")
    ('lvd-142m', 'imagenet-21k+imagenet-1k', 'unknown')
    """
    found = sorted(
        (match.start(), name)
        for pattern, name in _DATA
        for match in re.finditer(pattern, tag.lower())
    )
    return "+".join(dict.fromkeys(name for _, name in found)) or "unknown"
