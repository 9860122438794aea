"""The contract of attribute detectors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from fsframework.interfaces.component import Configurable
from fsframework.interfaces.selector import WordSelector
from fsframework.values import FloatArray

__all__ = ["AttributeDetector", "Captioner", "ImageTextModel"]


class AttributeDetector(Configurable, ABC, kind="detector"):
    """Images in, words out; a detector sees neither classes nor tasks.

    Source: psi of Definition 1 in FewSTAB (Zheng et al. 2024), section 4.2.
    """

    consumes: ClassVar[Literal["pixels", "records"]] = "pixels"
    """What ``detect`` receives per image: its pixels, uint8 RGB ``(H, W, 3)``, in the image's own
    size; or its ``ImageRecord`` (key and metadata) for words that do not need pixels, in which case
    no image is opened."""

    def prepare(self, *, device: str = "cpu", offline: bool = False) -> None:
        """Load what takes long, once, before the first ``detect``; by default nothing.

        If ``detect`` is called without it, the detector prepares itself with the defaults.

        Args:
            device: a PyTorch device, resolved: ``cpu``, ``cuda:0``, ...
            offline: make no network call.

        Raises:
            DataError: what must be loaded is missing or of the wrong kind.
        """

    @abstractmethod
    def detect(self, images: Sequence[Any]) -> list[frozenset[str]]:
        """Return the words detected in each image.

        Args:
            images: uint8 arrays or ``ImageRecord``, according to ``consumes``.

        Returns:
            One set of non-empty words per image, in the order of ``images``. The words of an image
            must not depend on the other images.
        """

    def provenance(self) -> Mapping[str, str]:
        """Return what is needed to detect the same words again; called after ``prepare``.

        Model, revision, generation settings, number format. It is stored in the header of every
        table made by the detector.
        """
        return {}

    def notes(self, keys: Sequence[str], others: Sequence[str] = ()) -> list[str]:
        """Return what a user should know before detection starts, one sentence each.

        Called after ``prepare``; empty by default. A detector that reads a file reports here what
        in it is broken or belongs to no image.

        Args:
            keys: keys of the images that will be processed.
            others: keys of the other images of the data set.

        Raises:
            DataError: there is nothing to detect for any of the images.
        """
        del keys, others
        return []


class Captioner(AttributeDetector, kind="detector"):
    """A detector that describes an image in words and selects some of them.

    Captioning is the expensive part: captions are stored with the table, and another selector can
    use them again. A subclass sets ``selector``, by convention an option of that name.
    """

    selector: WordSelector
    """Selects words from the captions."""

    @abstractmethod
    def describe(self, images: Sequence[Any]) -> list[str]:
        """Return a caption for each image, which must not depend on the other images."""

    def detect(self, images: Sequence[Any]) -> list[frozenset[str]]:
        """Return the words that ``selector`` selects from the captions."""
        return self.selector.select(self.describe(images))


class ImageTextModel(ABC):
    """A detector that also embeds images and texts in one space, as CLIP does.

    A class derives from this and from ``AttributeDetector``, whose ``prepare`` loads the model;
    ``fsf data similarity`` then compares images with the names of their classes and contexts.
    """

    @abstractmethod
    def image_features(self, images: Sequence[Any]) -> FloatArray:
        """Return a unit vector for each uint8 RGB image ``(H, W, 3)``, float32 ``(n, d)``.

        The vector of an image must not depend on the other images.
        """

    @abstractmethod
    def text_features(self, texts: Sequence[str]) -> FloatArray:
        """Return a unit vector for each text, float32 ``(n, d)``."""
