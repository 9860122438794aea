"""Each check of backbones rejects the one broken component made for it, and nothing else does."""

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional

from fsframework.interfaces import Backbone, OptionError, Preprocessing
from fsframework.testing import checks_for, parametrize_with_checks
from fsframework.testing.method import ToyBackbone
from tests.misdeclared import hashed, misdeclared

COUNT = itertools.count()


class Small(Backbone):
    """One convolution and batch normalisation; maps a quarter of the image's size."""

    preprocessing = Preprocessing(size=12)

    def __init__(self, *, channels: int = 6):
        super().__init__()
        self.channels = channels
        self.convolution = nn.Conv2d(3, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, images):
        if min(images.shape[2:]) < 4:
            raise OptionError("images must have at least 4 x 4 pixels")
        return functional.avg_pool2d(self.norm(self.convolution(images)).relu(), 4)


class NoBackbone(nn.Module):
    """It has the methods but not the interface."""


class Untyped(Small):
    """An option without a type."""

    def __init__(self, *, channels=6):
        super().__init__(channels=channels)


class Unstored(Small):
    """An option that is not stored."""

    def __init__(self, *, width: int = 6):
        super().__init__(channels=width)


class Silent(Small):
    pass


class Bytes(Small):
    """Mean and deviation of values in 0..255."""

    preprocessing = Preprocessing(size=12, mean=(124.0, 116.0, 104.0), std=(58.0, 57.0, 57.0))


class Unnamed(Small):
    """A library's model whose name no option sets."""

    catalogue = "zoo"


class Unlicensed(Small):
    """Weights from somewhere."""

    pretrained_on = "imagenet-1k"


class Vectors(Small):
    """Vectors instead of maps."""

    def forward(self, images):
        return super().forward(images).mean(dim=(2, 3))


class Unpooled(Small):
    """Maps instead of vectors."""

    def vectors(self, maps):
        return maps


class Centred(Small):
    """Encoded images minus the mean of the batch."""

    def encode(self, images):
        vectors = super().encode(images)
        return vectors - vectors.mean(dim=0)


class Fixed(Small):
    """Only one size works."""

    def forward(self, images):
        assert images.shape[2:] in ((12, 12), (1, 1))
        return super().forward(images)


class Tiny(Small):
    """Small images raise an error of the pooling."""

    def forward(self, images):
        return functional.avg_pool2d(self.norm(self.convolution(images)).relu(), 4)


class Contrast(Small):
    """The contrast of an image depends on the batch."""

    def forward(self, images):
        return super().forward(images / images.std())


class Restless(Small):
    """The second call differs from the first."""

    def __init__(self, *, channels: int = 6):
        super().__init__(channels=channels)
        self.calls = 0

    def forward(self, images):
        self.calls += 1
        return self.calls * super().forward(images)


class Counting(Small):
    """Counts its calls in a buffer."""

    def __init__(self, *, channels: int = 6):
        super().__init__(channels=channels)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, images):
        self.calls += 1
        return super().forward(images)


class InPlace(Small):
    """Normalises its input images in place."""

    def forward(self, images):
        return super().forward(images.mul_(0.5))


class Strided(Small):
    """Reads memory in the order of one layout."""

    def forward(self, images):
        _, channels, height, width = images.shape
        strides = channels * height * width, height * width, width, 1
        return super().forward(images.as_strided(images.shape, strides))


class Unused(Small):
    """An unused layer."""

    def __init__(self, *, channels: int = 6):
        super().__init__(channels=channels)
        self.head = nn.Linear(channels, 10)


class Unsaved(Small):
    """A random projection that is not in the state dict."""

    def __init__(self, *, channels: int = 6):
        super().__init__(channels=channels)
        self.register_buffer("scale", torch.rand(channels, 1, 1) + 0.5, persistent=False)

    def forward(self, images):
        return super().forward(images) * self.scale


class Waiting(Small):
    """It skips what is black."""

    def forward(self, images):
        maps = super().forward(images)
        return maps if maps.abs().max() > 0 else maps * 0


class Unseeded(Small):
    """Weights from a generator that no seed reaches."""

    def __init__(self, *, channels: int = 6):
        super().__init__(channels=channels)
        self.norm.weight.data += next(COUNT)


class Hashed(Small):
    """Its scale depends on the hashes of the process."""

    def forward(self, images):
        return super().forward(images) * (1 + hashed())


class Untold(Small):
    """Weights with a provenance but without data."""

    def provenance(self):
        return {"file": "weights.pth"}


class Moved(Small):
    """It declares that it keeps its weights, but they can be trained."""

    keeps_weights = True


class Frozen(Small):
    """Nothing to learn."""

    keeps_weights = True

    def __init__(self, *, channels: int = 6):
        super().__init__(channels=channels)
        self.requires_grad_(False)

    def train(self, mode=True):
        return super().train(False)


class Moving(Frozen):
    """The statistics of its normalisation move in training."""

    def train(self, mode=True):
        return nn.Module.train(self, mode)


class HalfLoaded(Small):
    """Pretrained weights of its convolution only."""

    pretrained_on, licence = "toys", "mit"

    def load_pretrained(self, *, offline=False):
        nn.init.zeros_(self.convolution.weight)


class CentredTexts(ToyBackbone):
    """Features of texts minus their mean."""

    def forward(self, images):
        if min(images.shape[2:]) < 4:
            raise OptionError("images must have at least 4 x 4 pixels")
        return super().forward(images)

    def text_features(self, texts):
        found = super().text_features(texts)
        return found - found.mean(dim=0)


BROKEN = {
    "check_construction": NoBackbone,
    "check_options_typed": Untyped,
    "check_options_stored": Unstored,
    "check_summary": Silent,
    **misdeclared(Small),
    "check_preprocessing": Bytes,
    "check_catalogue": Unnamed,
    "check_licence": Unlicensed,
    "check_provenance": Untold,
    "check_keeps_weights": Moved,
    "check_pretrained": HalfLoaded,
    "check_same_weights": Unseeded,
    "check_maps": Vectors,
    "check_vectors": Unpooled,
    "check_other_sizes": Fixed,
    "check_too_small": Tiny,
    "check_images_independent": Contrast,
    "check_encode": Centred,
    "check_text_features": CentredTexts,
    "check_no_memory": Restless,
    "check_state_unchanged": Counting,
    "check_images_unchanged": InPlace,
    "check_memory_format": Strided,
    "check_gradients": Unused,
    "check_device": Waiting,
    "check_state_dict": Unsaved,
    "check_fresh_process": Hashed,
}


class SmallToy(ToyBackbone):
    """The suite's own backbone, with an error for images that are too small."""

    def forward(self, images):
        if min(images.shape[2:]) < 4:
            raise OptionError("images must have at least 4 x 4 pixels")
        return super().forward(images)


@parametrize_with_checks([Small, Frozen, SmallToy])
def test_a_sound_backbone_passes(make, check):
    check(make)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", BROKEN)
def test_only_its_check_rejects(name, failing):
    assert failing(BROKEN[name], "backbone") == {name}


class Undeclared(Frozen):
    """Nothing to learn, which it does not declare."""

    keeps_weights = False


def test_a_backbone_that_keeps_its_weights_must_say_so(failing):
    assert failing(Undeclared, "backbone") == {"check_keeps_weights"}
    assert failing(Moving, "backbone") == {"check_keeps_weights"}


class WaitingAsDeclared(Waiting):
    """It skips what is black, and says so."""

    reads_values = "it skips what is black"


class WaitingForNothing(Small):
    """It reads no values but says that it does."""

    reads_values = "why not"


def test_a_backbone_that_must_read_values_says_so(failing):
    assert failing(WaitingAsDeclared, "backbone") == set()
    assert failing(WaitingForNothing, "backbone") == {"check_device"}


def test_every_check_has_its_broken_backbone():
    assert list(BROKEN) == [check.__name__ for check in checks_for("backbone")]
