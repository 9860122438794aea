"""A data set: images and labels.

Try it: fsf run --dataset my-dataset --sampler random
"""

import numpy as np
from fsframework.interfaces import Dataset, check_at_least
from fsframework.values import UInt8Array

N_CLASSES = 20


class MyDataset(Dataset):
    """Plain grey squares: each class is a shade, and half its images are bright on the left."""

    argument = "size"  # the option that NAME:VALUE sets
    rendered = True  # a program makes the images; remove this line if they are photographs

    def __init__(self, *, size: int = 32, n_per_class: int = 40) -> None:
        check_at_least(4, size=size)
        check_at_least(1, n_per_class=n_per_class)
        self.size = self.native_size = size
        self.n_per_class = n_per_class
        # Change these first. A key names an image on all machines; no pixel is read here.
        images = [(label, i) for label in range(N_CLASSES) for i in range(n_per_class)]
        names = self.class_names = tuple(f"grey-{label:02}" for label in range(N_CLASSES))
        self.labels = np.array([label for label, _ in images])
        self.keys = tuple(f"{names[label]}/{i:03}" for label, i in images)
        self.splits = {"train": names[::2], "val": names[1::4], "test": names[3::4]}
        self.metadata = {"context": tuple("left" if i % 2 else "none" for _, i in images)}
        # What the images depend on; with it change the number, or old features are used again.
        self.fingerprint = f"my-dataset 1: {size} {n_per_class}"

    def image(self, index: int) -> UInt8Array:
        """Return an image, RGB ``(H, W, 3)``."""
        shade = 10 * self.labels[index]
        pixels = np.full((self.size, self.size, 3), shade, dtype=np.uint8)
        if self.metadata["context"][index] == "left":
            pixels[:, : self.size // 4] = 255
        return pixels
