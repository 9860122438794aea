"""What a model of timm was trained on, read from the tag of its weights."""

from __future__ import annotations

import re

__all__ = ["trained_on"]

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
