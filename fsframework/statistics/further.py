"""What ``fsf_statistics`` brings: estimates over seeds, and every interval but Student's.

It is imported when it is asked for, as the names of ``fsframework`` that other packages define.
"""

from __future__ import annotations

from fsframework._lazy import lazily

__all__ = ["further"]

_, further = lazily(
    "fsframework.statistics",
    {
        "fsf_statistics.crossed": ("differences_over_seeds",),
        "fsf_statistics.image_intervals": ("over_images",),
        "fsf_statistics.over_seeds": ("joined",),
        "fsf_statistics.resampling": ("bootstrap",),
    },
)
