"""Words for what is in an image: the likeliest labels of an ImageNet classifier."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from PIL import Image

from fsf_timm._library import load_timm, pretrained_config
from fsf_timm._published import PUBLISHED, published_tensors
from fsf_timm._weights import file_of, fill
from fsf_timm._wordnet import hypernyms, load_wordnet
from fsframework.errors import install_hint
from fsframework.interfaces import AttributeDetector, DataError, OptionError
from fsframework.values import UInt8Array
from fsframework.values.weights import read_weights

__all__ = ["ClassifierWords"]


class ClassifierWords(AttributeDetector):
    """The likeliest labels of an ImageNet classifier of timm, with what is more general.

    A label gives its name in lower case, such as *golden retriever*; with WordNet 3.0 of NLTK also
    its synonyms, if asked for, and its hypernyms, such as *dog* and *animal*: the first lemma of
    each that occurs in WordNet's tagged texts and is not more general than *animal*. Without the
    package ``nltk`` or its data ``wordnet`` there are only the names, which a note says.

    Labels name objects, among them those of the image's own class: remove these with
    ``--drop-class-words``, and their hypernyms with ``--drop-words-in-classes``.

    Args:
        model: a classifier that timm lists, with or without the tag of its weights; its labels are
            those of ImageNet-1k, 12k, 21k or 22k.
        weights: ``published``: from an installed package (for ``tf_efficientnet_lite0``, ``lite1``
            and ``lite2``; the extra ``imagenet`` of fsf-timm), otherwise from the hub; ``hub``:
            the same without the package; ``none``: random weights; or a file or a folder that
            contains ``model.safetensors``.
        top: number of labels per image, at least 1.
        threshold: least probability of a label, 0 to 1, after a softmax over all labels.
        synonyms: whether all names of a label are words, not only the first.
        hypernyms: whether to use WordNet.

    Raises:
        OptionError: timm does not have the model, its labels are not those of ImageNet, or an
            option is outside its range.
    """

    argument: ClassVar[str] = "model"
    reads: ClassVar[tuple[str, ...]] = ("weights",)

    def __init__(
        self,
        *,
        model: str = "tf_efficientnet_lite0",
        weights: str = "published",
        top: int = 5,
        threshold: float = 0.0,
        synonyms: bool = False,
        hypernyms: bool = True,
    ) -> None:
        if top < 1:
            raise OptionError(f"top must be at least 1, not {top}")
        if not 0 <= threshold <= 1:
            raise OptionError(f"threshold must be a probability between 0 and 1, not {threshold}")
        self._config = pretrained_config(model)
        self._labels = load_timm().data.infer_imagenet_subset(self._config)
        if self._labels is None:
            raise OptionError(
                f"model must be a classifier with the labels of ImageNet, which {model} is not; "
                f"it has {self._config.get('num_classes') or 'no'} classes"
            )
        self.model = model
        self.weights = weights
        self.top = top
        self.threshold = threshold
        self.synonyms = synonyms
        self.hypernyms = hypernyms
        self._loaded: _Loaded | None = None

    def prepare(self, *, device: str = "cpu", offline: bool = False) -> None:
        """Load the model and the words of its labels; repeated only for another device.

        Args:
            device: a PyTorch device.
            offline: make no network call; the weights are in a package, the hub's cache or a file.

        Raises:
            DataError: the weights are missing, cannot be read or do not fit.
        """
        if self._loaded is None or self._loaded.device != device:
            self._loaded = None  # two models may not fit into memory
            self._loaded = _Loaded(self, device, offline)

    def detect(self, images: Sequence[UInt8Array]) -> list[frozenset[str]]:
        """Return the words of each uint8 RGB image ``(H, W, 3)``, of any size."""
        loaded = self._ready()
        return [
            frozenset().union(
                *(
                    loaded.words_of(label)
                    for label, probability in loaded.likeliest(image, self.top)
                    if probability >= self.threshold
                )
            )
            for image in images
        ]

    def notes(self, keys: Sequence[str], others: Sequence[str] = ()) -> list[str]:
        """Say so if hypernyms are wanted and WordNet is not installed."""
        del keys, others
        if not self.hypernyms or self._ready().wordnet:
            return []
        return [
            "classifier-words: words are only the names of labels, without hypernyms, because "
            f"NLTK's WordNet is not installed: {install_hint('fsf-timm[wordnet]')} and python -m "
            "nltk.downloader wordnet; -o detector.hypernyms=false leaves out this note"
        ]

    def provenance(self) -> Mapping[str, str]:
        """Return model, source of the weights, versions and options."""
        loaded = self._ready()
        return {
            "model": self.model,
            **loaded.source,
            "timm": str(load_timm().__version__),
            "labels": self._labels,
            "top": str(self.top),
            "threshold": repr(self.threshold),
            "synonyms": str(self.synonyms).lower(),
            "wordnet": loaded.wordnet or "none",
        }

    def _ready(self) -> _Loaded:
        if self._loaded is None:
            self.prepare()
        assert self._loaded is not None
        return self._loaded


class _Loaded:
    """A classifier on a device, with the words of its labels."""

    def __init__(self, options: ClassifierWords, device: str, offline: bool) -> None:
        timm = load_timm()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # weights=none
            net = timm.create_model(options.model, pretrained=False)
        self.source = _filled(net, options, offline=offline)
        self.device = device
        self.net = net.eval().requires_grad_(False).to(device)
        config = timm.data.resolve_model_data_config(net)
        self.transform = timm.data.create_transform(**config, is_training=False)
        self.info = timm.data.ImageNetInfo(options._labels)
        self.synonyms = options.synonyms
        self.reader = load_wordnet() if options.hypernyms else None
        self.wordnet = None if self.reader is None else str(self.reader.get_version())
        self.words_of = functools.cache(self._words_of)

    def _words_of(self, label: int) -> frozenset[str]:
        name = self.info.index_to_label_name(label)
        # timm separates the names of a label by commas.
        names = self.info.label_name_to_description(name).lower().split(", ")
        broader = () if self.reader is None else hypernyms(self.reader, name)
        return frozenset([*(names if self.synonyms else names[:1]), *broader])

    def likeliest(self, image: UInt8Array, count: int) -> Iterator[tuple[int, float]]:
        """Return the likeliest labels of an image and their probabilities.

        One image per call: a batch can change the order of nearly equal ones.
        """
        if image.ndim != 3 or image.shape[2] != 3 or not image.size:
            raise DataError(f"an image must be uint8 (height, width, 3), not {image.shape}")
        pixels = self.transform(Image.fromarray(image)).to(self.device)
        with torch.inference_mode():
            found = self.net(pixels[None])[0].float().softmax(dim=0)
        values, labels = found.topk(min(count, len(found)))
        return zip(labels.tolist(), values.tolist(), strict=True)


def _filled(net: Any, options: ClassifierWords, *, offline: bool) -> dict[str, str]:
    """Load the weights into the model and return where they come from."""
    weights = options.weights
    if weights == "none":
        return {"weights": "random"}
    try:
        if weights in PUBLISHED:
            entries, where, source = published_tensors(
                options._config,
                packages=weights == "published",
                offline=offline,
                option="detector.weights",
            )
        else:
            path = file_of(Path(weights).expanduser())
            entries, where, source = read_weights(path), f"weights {path}", {"file": str(path)}
        fill(net, entries, where)
    except DataError as error:
        raise DataError(f"classifier-words:{options.model}: {error}") from error.__cause__
    return source
