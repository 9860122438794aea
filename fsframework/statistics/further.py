"""What the package ``fsf_statistics`` brings: every interval but Student's."""

from __future__ import annotations

from fsframework._lazy import lazily

__all__ = ["further"]

_, further = lazily(
    "fsframework.statistics",
    {
        "fsf_statistics.image_intervals": ("over_images",),
        "fsf_statistics.resampling": ("bootstrap",),
    },
)
