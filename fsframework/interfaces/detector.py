"""The contract of attribute detectors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from fsframework.interfaces.component import Configurable
from fsframework.interfaces.selector import WordSelector
from fsframework.values import FloatArray

__all__ = ["AttributeDetector", "Captioner", "ImageTextModel"]


class AttributeDetector(Configurable, ABC):
    """Images in, words out; a detector knows nothing of classes or tasks.

    Source: psi of Definition 1 in FewSTAB (Zheng et al. 2024), section 4.2.
    """

    consumes: ClassVar[Literal["pixels", "records"]] = "pixels"
    """What ``detect`` is given for an image: its pixels, uint8 RGB ``(H, W, 3)``, each image of
    its own size; or its ``ImageRecord``, key and metadata, for words that are known without
    looking, in which case no image is opened."""

    def prepare(self, *, device: str = "cpu", offline: bool = False) -> None:
        """Load what is heavy, once, before the first ``detect``; by default nothing.

        A detector whose ``detect`` is called without it prepares itself with the defaults.

        Args:
            device: a PyTorch device, resolved: ``cpu``, ``cuda:0``, ...
            offline: make no network call at all.

        Raises:
            DataError: what is to be loaded is missing, or is not of the right kind.
        """

    @abstractmethod
    def detect(self, images: Sequence[Any]) -> list[frozenset[str]]:
        """Return the words seen in each image.

        Args:
            images: uint8 arrays or ``ImageRecord``, as ``consumes`` says.

        Returns:
            One set of non-empty words an image, in the order of ``images``. The words of an
            image must not depend on the images it is shown with.
        """

    def provenance(self) -> Mapping[str, str]:
        """Return what must be known to detect the same words again; asked after ``prepare``.

        Model, revision, generation settings, number format. It is kept in the header of every
        table made by the detector.
        """
        return {}

    def notes(self, keys: Sequence[str], others: Sequence[str] = ()) -> list[str]:
        """Return what a user should know before these images are looked at, a sentence each.

        Asked after ``prepare``; by default nothing. A detector that reads a file says here what
        in it is broken or belongs to no image.

        Args:
            keys: of the images that will be looked at.
            others: keys of the other images of the data set.

        Raises:
            DataError: nothing can be said of any of the images.
        """
        del keys, others
        return []


class Captioner(AttributeDetector):
    """A detector that describes an image in words and selects some of them.

    The captions are the costly part: they are kept with the table, and another selector works on
    the same captions. A subclass sets ``selector``, by convention an option of that name.
    """

    selector: WordSelector
    """What selects words from the captions."""

    @abstractmethod
    def describe(self, images: Sequence[Any]) -> list[str]:
        """Return a caption for each image; it must not depend on the images it is shown with."""

    def detect(self, images: Sequence[Any]) -> list[frozenset[str]]:
        """Return the words that ``selector`` selects from the captions."""
        return self.selector.select(self.describe(images))


class ImageTextModel(ABC):
    """What a detector also is that puts images and texts into one space, as CLIP does.

    A class derives from this beside ``AttributeDetector``, whose ``prepare`` loads the model;
    ``fsf data similarity`` then compares images with the names of their classes and contexts.
    """

    @abstractmethod
    def image_features(self, images: Sequence[Any]) -> FloatArray:
        """Return a unit vector for each uint8 RGB image ``(H, W, 3)``, float32 ``(n, d)``.

        The vector of an image must not depend on the images it is shown with.
        """

    @abstractmethod
    def text_features(self, texts: Sequence[str]) -> FloatArray:
        """Return a unit vector for each text, float32 ``(n, d)``."""
