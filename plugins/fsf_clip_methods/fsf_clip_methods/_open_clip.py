"""The backbone that is any model of open_clip."""

from __future__ import annotations

import contextlib
import difflib
import importlib.metadata
import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from fsf_clip_methods._tower import ImageTextTower, needed, trained_on
from fsframework.errors import naming
from fsframework.interfaces import Backbone, DataError, OptionError, Preprocessing
from fsframework.values import check_file
from fsframework.values.weights import check_values, most_complete, read_weights, strip_prefix

__all__ = ["OpenClip"]

_PUBLISHED, _NONE = "published", "none"
_FOLDER = "local-dir:"
_CONFIG = "open_clip_config.json"
_FILES = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")
_NOT_STATED = "not stated"


class OpenClip(ImageTextTower):
    """An image-text model of open_clip: OpenCLIP, DFN, MetaCLIP, SigLIP, MobileCLIP and others.

    A vector is the image feature that the model compares with text features. Both towers are
    frozen, in float32. Source: Ilharco et al. 2021, "OpenCLIP", and the paper of each model.

    Needs the package ``open_clip_torch``. Tokenizers other than CLIP's own are loaded from the hub
    or its cache when the first text is read.

    Args:
        model: ``MODEL/PRETRAINED`` as ``open_clip.list_pretrained()`` has them, such as
            ``ViT-B-32/laion2b_s34b_b79k``; a folder with ``open_clip_config.json`` and weights; or
            only ``MODEL``, whose ``weights`` are then a file or ``none``.
        weights: ``published``: those of ``PRETRAINED`` or of the folder; ``none``: random ones; or
            a checkpoint (``.safetensors``, ``.pt``, ``.bin``), read without running code.
        pretrained_on: name of the data that the weights were trained on; ``none`` to read it from
            ``PRETRAINED``, where it says so.

    Raises:
        OptionError: open_clip is not installed, or does not have the model or the weights.
    """

    argument: ClassVar[str] = "model"
    catalogue: ClassVar[str] = "open_clip"
    reads: ClassVar[tuple[str, ...]] = ("model", "weights")

    def __init__(
        self, *, model: str, weights: str = _PUBLISHED, pretrained_on: str | None = None
    ) -> None:
        super().__init__()
        library = needed("open_clip", "open_clip_torch")
        self.model = model
        self.weights = weights
        folder = Path(model).expanduser()
        local = (folder / _CONFIG).is_file()
        architecture, _, tag = model.partition("/")
        self._name = f"{_FOLDER}{folder}" if local else architecture
        self._published = {} if local else _published(library, architecture, tag)
        if weights == _PUBLISHED and not local and not tag:
            raise OptionError(
                f"model must name pretrained weights, as {architecture}/PRETRAINED, got {model!r}; "
                f"open_clip has {', '.join(_tags(library, architecture)) or 'none'}; or pass "
                "weights=FILE, or weights=none for random ones"
            )
        if weights == _NONE and pretrained_on is not None:
            raise OptionError(
                f"pretrained_on must not be set with weights=none, got {pretrained_on!r}"
            )
        self.net = _created(library, self._name, self._published).eval().requires_grad_(False)
        self.preprocessing = _preprocessing(library, self.net, self._published)
        self.pretrained_on = pretrained_on or (trained_on(tag) if tag else "unknown")
        self.licence = _NOT_STATED
        if weights == _NONE:
            self.pretrained_on, self.licence = None, Backbone.licence
        self._tokenize: Any = None
        self._provenance: dict[str, str] = {}

    def load_pretrained(self, *, offline: bool = False) -> None:
        """Load the published weights or those of the file.

        Raises:
            DataError: the weights are missing, cannot be read or do not fit.
        """
        if self.weights == _NONE:
            return
        library = needed("open_clip", "open_clip_torch")
        file, source = self._file(offline)
        try:
            with _quiet():
                self._load(library, file)
        # Anything may come of a file that anyone wrote.
        except Exception as error:
            first = next(iter(str(error).splitlines()), type(error).__name__)
            raise DataError(
                f"open-clip:{self.model}: {file} does not fit ({first[:200]})"
            ) from error
        with naming(f"open-clip:{self.model}: {file}"):
            check_values(dict(self.net.named_parameters()))
        self.net.requires_grad_(False)
        self._provenance = {
            "package": f"open_clip_torch {importlib.metadata.version('open_clip_torch')}",
            source: str(file.absolute()) if source == "file" else self._repository,
            "licence": self.licence,
        }

    def _load(self, library: Any, file: Path) -> None:
        """Load a file that open_clip reads itself, or else its entry with the most of the names."""
        try:
            library.load_checkpoint(self.net, str(file), weights_only=True)
        except Exception:
            names = self.net.state_dict()
            entries = read_weights(file)
            best = most_complete({k: strip_prefix(v, names) for k, v in entries.items()}, names)
            with tempfile.TemporaryDirectory() as folder:
                torch.save(best, alone := Path(folder, "weights.pt"))
                library.load_checkpoint(self.net, str(alone), weights_only=True)

    def _file(self, offline: bool) -> tuple[Path, str]:
        """Return the file of the weights, and whether it is a ``file`` or of a ``repository``."""
        if self.weights == _PUBLISHED and not self._name.startswith(_FOLDER):
            return self._from_hub(offline), "repository"
        if self.weights == _PUBLISHED:
            folder = Path(self._name.removeprefix(_FOLDER))
            given = [folder / one for one in _FILES]
        else:
            given = [Path(self.weights).expanduser()]
        for file in given:
            with contextlib.suppress(OSError):
                check_file(file)
                return file, "file"
        raise DataError(
            f"open-clip:{self.model}: cannot read weights from {' or '.join(map(str, given))}"
        )

    @property
    def _repository(self) -> str:
        return str(self._published.get("hf_hub", "")).rpartition("/")[0]

    def _from_hub(self, offline: bool) -> Path:
        """Return the file of the published weights, downloading it if it is not in the cache."""
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

        if not self._repository:
            raise DataError(
                f"open-clip:{self.model}: its weights are not on the hub; download "
                f"{self._published.get('url', 'them')} and pass the file with "
                "-o backbone.weights=FILE"
            )
        named = str(self._published["hf_hub"]).rpartition("/")[2]
        names = (named,) if named else _FILES
        fetch = partial(hf_hub_download, self._repository)
        for name in names:
            with contextlib.suppress(LocalEntryNotFoundError):
                return Path(fetch(name, local_files_only=True))
        why = "network access is turned off"
        if not offline:
            try:
                for name in names:
                    with contextlib.suppress(EntryNotFoundError):
                        return Path(fetch(name))
                why = f"the hub has no file {' or '.join(names)} for it"
            # The errors of the underlying network library are not part of the hub's interface.
            except Exception as error:
                why = f"the hub cannot be reached ({type(error).__name__})"
        raise DataError(
            f"open-clip:{self.model}: its weights are not on this machine, and {why}; on a machine "
            f"with a network, run hf download {self._repository}, or pass a file with "
            "-o backbone.weights=FILE"
        )

    def provenance(self) -> Mapping[str, str]:
        """Return open_clip's version, the hub's repository or the file, and the licence."""
        return self._provenance

    def forward(self, images: Tensor) -> Tensor:
        """Map float images ``(n, 3, H, W)`` to maps ``(n, C, h, w)``.

        Raises:
            OptionError: the images are too small to leave a map, or the model takes only others.
        """
        found = self._run(
            images, "forward_intermediates", indices=1, intermediates_only=True, output_fmt="NCHW"
        )
        maps: Tensor = found["image_intermediates"][-1]
        return maps

    def encode(self, images: Tensor) -> Tensor:
        """Map normalised images ``(n, 3, H, W)`` to image features ``(n, D)``, not normalised."""
        found: Tensor = self._run(images, "forward")
        return found

    def _run(self, images: Tensor, what: str, **options: Any) -> Any:
        tower, size = self.net.visual, images.shape[2:]
        patch = getattr(tower, "patch_size", None) or (1, 1)
        if size[0] < patch[0] or size[1] < patch[1]:
            raise OptionError(
                f"{self.model} needs images of at least {patch[0]} x {patch[1]} pixels to leave a "
                f"map, got {size[0]} x {size[1]}"
            )
        try:
            call = _Call(tower, what)
            return functional_call(
                call, _positions(tower, size), (images.contiguous(),), options, strict=False
            )
        except (AssertionError, RuntimeError, ValueError) as error:
            own = self.preprocessing.size
            if tuple(size) == (own, own) or "memory" in str(error).lower():
                raise
            raise OptionError(
                f"{self.model} takes images of {own} x {own} pixels, but not of {size[0]} x "
                f"{size[1]}; omit --image-size"
            ) from error

    @property
    def logit_scale(self) -> Tensor:
        """The factor of cosines that was learned with the model, a scalar."""
        scale: Tensor = self.net.logit_scale.exp()
        return scale.reshape(())

    def _ids(self, texts: Sequence[str], room: int = 0, length: int | None = None) -> Tensor:
        del length  # most of its text towers read all their positions
        if self._tokenize is None:
            library = needed("open_clip", "open_clip_torch")
            try:
                with _quiet():
                    self._tokenize = library.get_tokenizer(self._name)
            # A tokenizer of the hub may fail in any way.
            except Exception as error:
                first = next(iter(str(error).splitlines()), type(error).__name__)
                raise DataError(
                    f"open-clip:{self.model}: its tokenizer cannot be loaded ({first[:200]})"
                ) from error
        positions = int(self.net.context_length)
        if positions - room < 4:
            raise OptionError(
                f"{self.model} reads {positions} tokens, which leaves too few beside a context of "
                f"{room}"
            )
        found: Tensor = self._tokenize(list(texts), context_length=positions - room)
        return found[:, None]

    def _features(self, tokens: Tensor) -> Tensor:
        found: Tensor = self.net.encode_text(tokens[:, 0])
        return found


class _Call(nn.Module):
    """A method of a module as a module, so that parameters can be replaced for a call."""

    def __init__(self, tower: nn.Module, what: str) -> None:
        super().__init__()
        self.tower = tower
        self._what = what

    def forward(self, images: Tensor, **options: Any) -> Any:
        return getattr(self.tower, self._what)(images, **options)


def _positions(tower: Any, size: Sequence[int]) -> dict[str, Tensor]:
    """Return the position embeddings of a transformer for images of another size, if they must be.

    Those of patches are resampled, as open_clip does when it loads weights for another size.
    """
    old = getattr(tower, "positional_embedding", None)
    if not isinstance(old, Tensor):
        return {}
    grid, patch = tuple(tower.grid_size), tuple(tower.patch_size)
    new = size[0] // patch[0], size[1] // patch[1]
    if new == grid:
        return {}
    first = len(old) - grid[0] * grid[1]
    patches = old[first:].unflatten(0, grid).permute(2, 0, 1)[None]
    resampled = functional.interpolate(
        patches, new, mode="bicubic", antialias=True, align_corners=False
    )
    whole = torch.cat([old[:first], resampled[0].flatten(1).T])
    return {"tower.positional_embedding": whole}


def _tags(library: Any, architecture: str) -> list[str]:
    return list(library.pretrained.list_pretrained_tags_by_model(architecture))


def _published(library: Any, architecture: str, tag: str) -> dict[str, Any]:
    """Return what open_clip knows of published weights; empty without a tag.

    Raises:
        OptionError: it has no such model, or no such weights.
    """
    known = library.list_models()
    if architecture not in known:
        close = difflib.get_close_matches(architecture, known, n=3, cutoff=0.6)
        more = f"; did you mean {', '.join(close)}?" if close else ""
        raise OptionError(
            f"model must be a folder with {_CONFIG} or a model of open_clip, got {architecture!r}"
            f"{more}"
        )
    if not tag:
        return {}
    found: dict[str, Any] = library.pretrained.get_pretrained_cfg(architecture, tag)
    if not found:
        raise OptionError(
            f"open_clip has no weights {tag!r} for {architecture}; it has "
            f"{', '.join(_tags(library, architecture)) or 'none'}"
        )
    return found


def _created(library: Any, name: str, published: Mapping[str, Any]) -> Any:
    """Build a model with random weights."""
    with _quiet():
        try:
            return library.create_model(
                name,
                load_weights=False,
                pretrained_image=False,
                pretrained_text=False,
                force_quick_gelu=bool(published.get("quick_gelu")),
            )
        # Configurations of a folder may be anything.
        except Exception as error:
            first = next(iter(str(error).splitlines()), type(error).__name__)
            raise OptionError(f"open_clip cannot build {name} ({first[:200]})") from error


def _preprocessing(library: Any, net: Any, published: Mapping[str, Any]) -> Preprocessing:
    found = {**library.get_model_preprocess_cfg(net), **published}
    size = library.get_model_preprocess_cfg(net)["size"]
    return Preprocessing(
        size=int(size if isinstance(size, int) else max(size)),
        mean=tuple(found["mean"]),
        std=tuple(found["std"]),
        interpolation="bilinear" if found.get("interpolation") == "bilinear" else "bicubic",
        binding=True,
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep open_clip from logging, for which it also gives the root logger a handler."""
    root = logging.getLogger()
    handlers, disabled = list(root.handlers), root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(disabled)
        root.handlers[:] = handlers
