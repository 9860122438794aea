"""The backbone that is any model of timm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args

from torch import Tensor

from fsf_timm._library import create, load_timm, pretrained_config
from fsf_timm._packages import installed_models
from fsf_timm._provenance import sources_of, trained_on
from fsf_timm._published import PUBLISHED, published_tensors
from fsf_timm._weights import file_of, fill, read_config
from fsframework.interfaces import Backbone, DataError, OptionError, Preprocessing
from fsframework.values.weights import read_weights

__all__ = ["Timm"]

Colour = tuple[float, float, float]
Pooling = Literal["default", "class-token", "mean", "flatten"]


class Timm(Backbone):
    """Any image model of timm, pretrained or random: ResNets, DINO, DINOv2, CLIP's image towers.

    Maps are the model's features before pooling: the last feature map of a convolutional network,
    or the patch tokens of a transformer, each at the position of its patch, without class and
    register tokens. Vectors are the output of the model's own pooling, before any classifier.
    Source: Wightman 2019, "PyTorch Image Models", and the paper of each model.

    Args:
        model: a name that timm lists, with or without the tag of its weights: ``resnet18``,
            ``vit_small_patch14_dinov2.lvd142m``. Without a tag, timm's default weights are used.
        weights: ``published``: from an installed package (for ``tf_efficientnet_lite0``, ``lite1``
            and ``lite2``; the extra ``imagenet`` of fsf-timm), otherwise from the hub's cache,
            otherwise from the network; ``hub``: the same without the package; ``none``: random
            weights; or a file (``.safetensors``, ``.pth``, ``.bin``) or a folder that contains
            ``model.safetensors``. Files are read without running code; a prefix of all names
            (``module.``, ``backbone.``) is removed and a classifier is left out.
        pooling: what a vector is: ``default``, the model's own pooling and what follows it up to
            the classifier (class token of DINO, mean of a ResNet, attention pooling of CLIP's
            ResNets; CLIP's projection into the space shared with text is not applied);
            ``class-token``; ``mean`` of the map over locations; or ``flatten``, the map as
            ``C * h * w`` numbers, channel first.
        image_size: height and width in pixels; ``none`` for the model's own. Position embeddings
            are resampled. Images are cropped at the edges to a multiple of the patch size.
        mean: red, green and blue, in 0..1; subtracted from the pixel values; ``none`` for the
            model's own.
        std: red, green and blue, above 0; divides the difference; ``none`` for the model's own.
        pretrained_on: name of the data set on which the weights of a file were trained; ``none``
            to read it from the tag in ``model``.
        frozen: whether training leaves the weights unchanged; ``none`` freezes pretrained weights
            and trains random ones. With frozen weights, a method without parameters needs no
            training.

    Raises:
        OptionError: timm does not have the model or the weights, or an option is outside its
            range.

    >>> import torch
    >>> backbone = Timm(model="resnet10t", weights="none").eval()
    >>> maps = backbone(torch.zeros(2, 3, 64, 64))
    >>> maps.shape, backbone.encode(torch.zeros(2, 3, 64, 64)).shape
    (torch.Size([2, 512, 2, 2]), torch.Size([2, 512]))
    """

    argument: ClassVar[str] = "model"
    catalogue: ClassVar[str] = "timm"
    reads: ClassVar[tuple[str, ...]] = ("weights",)

    @classmethod
    def installed(cls) -> Sequence[str]:
        """Return the models whose weights come as a package, the smallest first."""
        return installed_models()

    @classmethod
    def sources(cls, options: Mapping[str, Any]) -> str:
        """Return the publication of a model's family, which `fsf cite` prints too."""
        return sources_of(str(options["model"]))

    def __init__(  # noqa: PLR0913 - its parameters are the options
        self,
        *,
        model: str,
        weights: str = "published",
        pooling: Pooling = "default",
        image_size: int | None = None,
        mean: Colour | None = None,
        std: Colour | None = None,
        pretrained_on: str | None = None,
        frozen: bool | None = None,
    ) -> None:
        super().__init__()
        if pooling not in get_args(Pooling):
            raise OptionError(
                f"pooling must be one of {', '.join(get_args(Pooling))}, got {pooling!r}"
            )
        if image_size is not None and image_size < 1:
            raise OptionError(f"image_size must be at least 1 pixel, got {image_size}")
        if weights == "none" and pretrained_on is not None:
            raise OptionError(
                "pretrained_on must not be set with weights=none, which are random, got "
                f"{pretrained_on!r}"
            )
        self.model = model
        self.weights = weights
        self.pooling = pooling
        self.image_size = image_size
        self.mean = mean
        self.std = std
        self.frozen = frozen
        self.keeps_weights = weights != "none" if frozen is None else frozen
        self._provenance: dict[str, str] = {}
        self._published = pretrained_config(model)
        if weights in PUBLISHED and not (
            self._published.get("hf_hub_id") or self._published.get("url")
        ):
            raise OptionError(
                f"timm has no weights for {model}; pass a file with weights=FILE, or use random "
                f"weights with weights=none{_with_weights(model)}"
            )
        # Not self.model: that is the option.
        self.net = create(model, image_size).requires_grad_(not self.keeps_weights)
        self._patch = _patch_of(self.net)
        self._prefix = getattr(self.net, "num_prefix_tokens", None)
        if pooling == "class-token" and not _has_class_token(self.net):
            raise OptionError(
                f"pooling=class-token: {model} has no class token; use default, mean or flatten"
            )
        if image_size is not None and image_size % self._patch:
            below = image_size // self._patch * self._patch
            raise OptionError(
                f"image_size must be a multiple of {self._patch}, the patch size of {model}, such "
                f"as {max(below, self._patch)} or {below + self._patch}, got {image_size}"
            )
        self.preprocessing = self._preprocessing()
        self.pretrained_on = pretrained_on or self._trained_on()
        self.licence = self._licence()

    def train(self, mode: bool = True) -> Self:
        """Set training or evaluation mode; frozen weights stay in evaluation mode."""
        super().train(mode)
        if self.keeps_weights:
            self.net.eval()
        return self

    def _preprocessing(self) -> Preprocessing:
        config = load_timm().data.resolve_model_data_config(self.net)
        channels, *size = config["input_size"]
        if channels != 3:
            raise OptionError(f"{self.model} takes images with {channels} channels, not 3")
        mean, std = self.mean or config["mean"], self.std or config["std"]
        for name, values in (("mean", mean), ("std", std)):
            if not all(0 <= v <= 1 for v in values) or (name == "std" and min(values) == 0):
                raise OptionError(f"{name} must be three numbers in 0..1, got {values}")
        return Preprocessing(
            size=self.image_size or max(size),
            mean=tuple(mean),
            std=tuple(std),
            interpolation="bilinear" if config["interpolation"] == "bilinear" else "bicubic",
            # Random convolutions work equally well at the size of the data.
            binding=self.image_size is not None or self.weights != "none" or self._patch > 1,
        )

    def _trained_on(self) -> str | None:
        if self.weights == "none":
            return None
        return trained_on(self._published.get("tag") or "") if self._known() else "unknown"

    def _licence(self) -> str:
        if self.weights == "none":
            return Backbone.licence
        return str((self._published.get("license") if self._known() else None) or "unknown")

    def _known(self) -> bool:
        """Whether the weights are published, or are a file whose tag is in the model's name."""
        return self.weights in PUBLISHED or "." in self.model

    def load_pretrained(self, *, offline: bool = False) -> None:
        """Load the published weights or those of the file.

        Published weights come from an installed package if one contains them, otherwise from the
        hub.

        Raises:
            DataError: the weights are missing, cannot be read or do not fit.
        """
        if self.weights == "none":
            return
        try:
            if self.weights in PUBLISHED:
                entries, where, source = published_tensors(
                    self._published, packages=self.weights == "published", offline=offline
                )
            else:
                given = Path(self.weights).expanduser()
                path, where = file_of(given), f"weights {given}"
                self._check_config(given, read_config(given))
                entries, source = read_weights(path), {"file": str(path.absolute())}
            fill(self.net, entries, where)
        except DataError as error:
            raise DataError(f"timm:{self.model}: {error}") from error.__cause__
        self._provenance = {**source, "licence": self.licence}

    def provenance(self) -> Mapping[str, str]:
        """Return the ``package``, the hub's ``repository`` or the ``file``, and the ``licence``."""
        return self._provenance

    def _check_config(self, folder: Path, config: Mapping[str, Any]) -> None:
        """Refuse weights of another model or for images with another normalisation."""
        architecture = self.model.partition(".")[0]
        if config.get("architecture", architecture) != architecture:
            raise DataError(
                f"weights {folder}: its config.json is for {config['architecture']}, not "
                f"{architecture}"
            )
        written = config.get("pretrained_cfg")
        for name in ("mean", "std"):
            values = written.get(name) if isinstance(written, Mapping) else None
            own = getattr(self.preprocessing, name)
            if getattr(self, name) is None and isinstance(values, list) and tuple(values) != own:
                raise DataError(
                    f"weights {folder}: its config.json has the {name} {values}, but {self.model} "
                    f"has {list(own)}; choose one with -o backbone.{name}={_commas(values)}"
                )

    def forward(self, images: Tensor) -> Tensor:
        """Map float images ``(n, 3, H, W)`` to maps ``(n, C, h, w)``, channels last in memory.

        Raises:
            OptionError: the images are too small to leave a map, or the model accepts only another
                size.
        """
        images = self._fitted(images)
        return self._maps(self._features(images), images)

    def vectors(self, maps: Tensor) -> Tensor:
        """Pool maps ``(n, C, h, w)`` into vectors ``(n, C)`` or ``(n, C * h * w)``.

        If a vector is not a pooled map, such as a class token, this is the mean over locations.
        """
        return maps.flatten(1) if self.pooling == "flatten" else super().vectors(maps)

    def encode(self, images: Tensor) -> Tensor:
        """Map normalised images ``(n, 3, H, W)`` to vectors ``(n, D)`` by the chosen pooling."""
        images = self._fitted(images)
        features = self._features(images)
        if self.pooling == "default":
            pooled: Tensor = self.net.forward_head(features, pre_logits=True)
            return pooled.flatten(1)
        if self.pooling == "class-token":
            return features[:, 0]
        return self.vectors(self._maps(features, images))

    def _fitted(self, images: Tensor) -> Tensor:
        """Return the centre of the images covered by whole patches, channels last in memory."""
        patch, (height, width) = self._patch, images.shape[-2:]
        if min(height, width) < patch:
            raise OptionError(
                f"{self.model} needs images of at least {patch} x {patch} pixels to leave a map, "
                f"got {height} x {width}"
            )
        top, left = height % patch // 2, width % patch // 2
        inner = images[
            ..., top : top + height // patch * patch, left : left + width // patch * patch
        ]
        # Tensor.contiguous(memory_format=...) does not work under torch.func.vmap.
        return inner.movedim(1, -1).contiguous().movedim(-1, 1)

    def _features(self, images: Tensor) -> Tensor:
        try:
            features = self.net.forward_features(images)
        except (AssertionError, RuntimeError, ValueError) as error:
            height, width = images.shape[-2:]
            own = self.preprocessing.size
            if (height, width) == (own, own) or "memory" in str(error).lower():
                raise
            raise OptionError(
                f"{self.model} takes images of {own} x {own} pixels, but not of {height} x "
                f"{width}; omit --image-size or choose another"
            ) from error
        if not isinstance(features, Tensor) or features.ndim not in (3, 4):
            found = (
                f"a tensor of shape {tuple(features.shape)}"
                if isinstance(features, Tensor)
                else f"a value of type {type(features).__name__}"
            )
            raise OptionError(f"{self.model} must return one feature map per image, got {found}")
        return features

    def _maps(self, features: Tensor, images: Tensor) -> Tensor:
        """Return features as maps ``(n, C, h, w)``, each token at the position of its patch."""
        if features.ndim == 3:
            grid, prefix = self._grid(features.shape[1], images)
            rows = features[:, prefix:].contiguous()
            return rows.reshape(len(rows), *grid, -1).movedim(-1, 1)
        if self._channels_innermost(features):
            return features.movedim(-1, 1)
        return features

    def _channels_innermost(self, features: Tensor) -> bool:
        stated = getattr(self.net, "output_fmt", None)
        if stated is not None:
            return str(getattr(stated, "value", stated)).upper() == "NHWC"
        width = self.net.num_features
        return features.shape[1] != width and features.shape[-1] == width

    def _grid(self, n_tokens: int, images: Tensor) -> tuple[tuple[int, int], int]:
        """Return rows and columns of the patch tokens, and the number of tokens before them."""
        height, width = images.shape[-2:]
        for prefix in (0, 1, 2) if self._prefix is None else (self._prefix,):
            n_rows = round(((n_tokens - prefix) * height / width) ** 0.5)
            if n_rows < 1 or (n_tokens - prefix) % n_rows:
                continue
            n_columns = (n_tokens - prefix) // n_rows
            if abs(n_columns - n_rows * width / height) < 1:
                return (n_rows, n_columns), prefix
        raise OptionError(
            f"{self.model} returns {n_tokens} tokens for an image of {height} x {width} pixels, "
            "which do not form a grid"
        )


def _patch_of(net: Any) -> int:
    """Return the side of a model's patches in pixels; 1 for a model without patches."""
    size = getattr(getattr(net, "patch_embed", None), "patch_size", 1)
    return int(max(size) if isinstance(size, (tuple, list)) else size)


def _has_class_token(net: Any) -> bool:
    stated = getattr(net, "has_class_token", None)
    return getattr(net, "cls_token", None) is not None if stated is None else bool(stated)


def _with_weights(model: str) -> str:
    known = load_timm().list_pretrained(f"{model.partition('.')[0][:6]}*")
    return f" (models with weights include {', '.join(known[:3])})" if known else ""


def _commas(values: list[Any]) -> str:
    return ",".join(map(str, values))
