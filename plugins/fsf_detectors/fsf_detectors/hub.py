"""Finding, checking, loading and fingerprinting models from the hub and from local folders.

A model from the hub is first downloaded to the hub's cache; from then on it is a folder and is
loaded only from there.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, get_args

import numpy as np

from fsf_detectors._torchvision import mend_torchvision
from fsframework.interfaces import DataError, OptionError
from fsframework.values import UInt8Array

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image

__all__ = [
    "Batched",
    "DtypeName",
    "ModelFolder",
    "UsesModel",
    "check_dtype",
    "check_model",
    "load_config",
    "load_image_processor",
    "load_model",
    "load_processor",
    "load_tokenizer",
    "mend_torchvision",
    "pictures",
    "resolve_dtype",
    "shut_up",
]

DtypeName = Literal["auto", "float32", "float16", "bfloat16"]
"""Number format of a model: ``auto`` is float32 on a CPU and float16 elsewhere."""

_WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
"""Weight files in the order in which Transformers searches for them."""
_VOCABULARIES = ("tokenizer.json", "vocab.json", "vocab.txt", "*.model")
_PROCESSORS = ("preprocessor_config.json", "processor_config.json")
_SETTINGS = (
    "config.json",
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "merges.txt",
    "chat_template.*",
    *_VOCABULARIES,
    *_PROCESSORS,
)

_SMALL = ("*.json", "*.txt", "*.model", "*.jinja", "README.md")
"""What is downloaded besides weights."""

_Answer = TypeVar("_Answer")
_Loaded = TypeVar("_Loaded")


PINNED = {
    "Salesforce/blip-image-captioning-large": "353689b859fcf0523410b1806dace5fb46ecdf41",
    "nlpconnect/vit-gpt2-image-captioning": "dc68f91c06a1ba6f15268e5b9c13ae7a7c514084",
    "openai/clip-vit-base-patch32": "3d74acf9a28c67741b2f4f2ea7635f0aaf6f0268",
}
"""Default commits of the detectors' own models, so that a table made next year has the same words
as one made today."""


class UsesModel(ABC, Generic[_Loaded]):
    """Base of the detectors that load a model when they are prepared, or first used."""

    _loaded: tuple[str, _Loaded] | None = None
    """The device, and the model that was loaded for it."""

    def prepare(self, *, device: str = "cpu", offline: bool = False) -> None:
        """Load the model; repeated only for another device.

        Args:
            device: a PyTorch device.
            offline: make no network call; the model is in the hub's cache or a folder.

        Raises:
            DataError: the model, or a file that it is used with, is missing, damaged or of the
                wrong kind.
            OptionError: an option does not fit this model.
        """
        if self._loaded is None or self._loaded[0] != device:
            self._loaded = None  # two models may not fit into memory
            self._loaded = device, self._load(device, offline)

    @abstractmethod
    def _load(self, device: str, offline: bool) -> _Loaded: ...

    def _ready(self) -> _Loaded:
        if self._loaded is None:
            self.prepare()
        assert self._loaded is not None
        return self._loaded[1]


@dataclass(frozen=True)
class ModelFolder:
    """The folder of a model.

    Args:
        name: name given by the user, for messages.
        path: path of the folder that contains the files.
        commit: commit of the hub's repository; ``None`` for a local folder.
    """

    name: str
    path: Path
    commit: str | None

    @classmethod
    def find(
        cls, name: str, revision: str | None, *, offline: bool, weights: bool = True
    ) -> ModelFolder:
        """Find a model by folder or by name on the hub, downloading it if needed.

        Args:
            name: path or name; an existing folder takes precedence over a name on the hub.
            revision: branch, tag or commit of the hub's repository; by default the commit in
                ``PINNED``, or the main branch of other models.
            offline: use only the hub's cache and make no network call.
            weights: whether to download the weights, not just configuration and model card.

        Raises:
            DataError: the model does not exist or is not available.
            OptionError: a revision of a local folder was requested.
        """
        path = Path(name).expanduser()
        if path.is_dir():
            if revision is not None:
                raise OptionError(
                    f"revision must not be set for the folder {name}, only for models on the hub, "
                    f"got {revision!r}"
                )
            return cls(name, path, None)
        if path.exists():
            raise DataError(f"model {name}: must be a folder, not a file")
        if path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
            raise DataError(f"model {name}: no such folder")
        snapshot = _snapshot(name, revision or PINNED.get(name), offline, weights)
        return cls(name, snapshot, snapshot.name)

    def weights(self) -> list[Path]:
        """Return the weight files that are loaded.

        Raises:
            DataError: there are no weight files, or one that the index names is missing.
        """
        first = next((self.path / n for n in _WEIGHTS if (self.path / n).is_file()), None)
        if first is None:
            raise DataError(f"{self}: contains no weights (model.safetensors or pytorch_model.bin)")
        if first.suffix != ".json":
            return [first]
        try:
            names = sorted(set(json.loads(first.read_text("utf-8"))["weight_map"].values()))
        except (OSError, ValueError, KeyError, AttributeError, TypeError):
            raise DataError(f"{first}: not an index of weights") from None
        files = [first.parent / str(name) for name in names]
        if missing := [file.name for file in files if not file.is_file()]:
            raise DataError(f"{self}: the file {missing[0]!r}, named in {first.name}, is missing")
        return files

    def provenance(self) -> dict[str, str]:
        """Return name and commit, and digests of the weights and of the other files.

        ``weights`` is the SHA-256 of the weight file, as listed on the hub; for several files, that
        of their digests, one per line. ``files`` covers configuration, vocabulary and processors.
        About 1.5 GB are read per second.
        """
        found = {"model": self.name} | ({"revision": self.commit} if self.commit else {})
        settings = {file for pattern in _SETTINGS for file in self.path.glob(pattern)}
        digests = [_sha256(file) for file in self.weights()]
        found["weights"] = f"sha256:{digests[0] if len(digests) == 1 else _of_lines(digests)}"
        lines = [f"{_sha256(file)}  {file.name}" for file in sorted(settings)]
        found["files"] = f"sha256:{_of_lines(lines)}"
        return found | {"transformers": importlib.metadata.version("transformers")}

    def __str__(self) -> str:
        return f"model {self.name}"


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _of_lines(lines: Sequence[str]) -> str:
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


def _snapshot(name: str, revision: str | None, offline: bool, weights: bool) -> Path:
    """Return the folder of a model in the hub's cache, downloading missing files."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    def fetch(*patterns: str) -> Path:
        found = snapshot_download(
            name,
            revision=revision,
            local_files_only=offline,
            allow_patterns=list(patterns),
            ignore_patterns=["*/*"],
        )
        return Path(found)

    at = f" at revision {revision}" if revision else ""
    option = f" --revision {revision}" if revision else ""
    try:
        with shut_up():
            folder = fetch(*_SMALL, *(["*.safetensors"] if weights else []))
            if weights and not any(folder.glob("*.safetensors")):
                folder = fetch("pytorch_model*")
    except HFValidationError:
        raise DataError(
            f"model {name}: must be a folder or a name on the hub, OWNER/NAME"
        ) from None
    except GatedRepoError:
        raise DataError(
            f"model {name}: the hub requires you to accept its terms; accept them on its page and "
            "log in with: hf auth login"
        ) from None
    except RepositoryNotFoundError:
        raise DataError(f"model {name}: neither a folder nor a model on the hub") from None
    except RevisionNotFoundError:
        raise DataError(f"model {name}: the hub has no revision {revision!r} of it") from None
    except LocalEntryNotFoundError:
        why = "network access is turned off" if offline else "the hub cannot be reached"
        raise DataError(
            f"model {name}{at}: not on this machine, and {why}; on a machine with a network, run "
            f"hf download {name}{option}, or pass the path of a folder that contains the model"
        ) from None
    # The errors of the underlying network library are not part of the hub's interface.
    except Exception as error:
        raise DataError(f"model {name}{at}: cannot be downloaded ({_reason(error)})") from error
    return folder


def _reason(error: BaseException) -> str:
    first = next(iter(str(error).strip().splitlines()), "").rstrip(" .:")
    return f"{type(error).__name__}: {first[:200]}" if first else type(error).__name__


@contextlib.contextmanager
def shut_up() -> Iterator[None]:
    """Suppress log lines and progress bars of the Hugging Face libraries.

    Problems that they would report are checked here and raised as errors.
    """
    mend_torchvision()
    from huggingface_hub import utils as hub
    from transformers.utils import logging

    levels = logging.get_verbosity(), hub.logging.get_verbosity()
    bars = logging.is_progress_bar_enabled(), not hub.are_progress_bars_disabled()
    logging.set_verbosity_error()
    hub.logging.set_verbosity_error()
    if any(bars):
        logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(levels[0])
        hub.logging.set_verbosity(levels[1])
        if any(bars):
            logging.enable_progress_bar()


def load_config(folder: ModelFolder) -> Any:
    """Return the configuration of a model.

    Raises:
        DataError: the folder contains no model, or one that Transformers does not know.
    """
    if not (folder.path / "config.json").is_file():
        empty = "the folder is empty" if not any(folder.path.iterdir()) else "it has no config.json"
        raise DataError(f"{folder}: not a model of Transformers; {empty}")
    with shut_up():
        from transformers import AutoConfig

        try:
            return AutoConfig.from_pretrained(folder.path, **_LOCAL)
        # Anything may come of a file that anyone wrote.
        except Exception as error:
            raise DataError(
                f"{folder}: its config.json names no model that Transformers knows "
                f"({_reason(error)}); code supplied with a model is never run"
            ) from error


_LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}


def load_model(
    folder: ModelFolder, auto_class: Any, config: Any, dtype: torch.dtype, device: str
) -> Any:
    """Load a model in evaluation mode without running any code in its files.

    Args:
        folder: the folder of the model.
        auto_class: the class of Transformers whose ``from_pretrained`` chooses the model's class.
        config: result of ``load_config``.
        dtype: number format of the weights.
        device: PyTorch device of the weights.

    Raises:
        DataError: the weights are damaged or incomplete.
    """
    folder.weights()
    with shut_up():
        try:
            model, report = auto_class.from_pretrained(
                folder.path, config=config, dtype=dtype, output_loading_info=True, **_LOCAL
            )
        # Anything may come of files that anyone wrote.
        except Exception as error:
            raise DataError(
                f"{folder}: its weights cannot be loaded; they are damaged or belong to another "
                f"model ({_reason(error)})"
            ) from error
    parameters = {name for name, _ in model.named_parameters()}
    # ViT-GPT2 and TrOCR are published without a pooler and do not use one.
    missing = sorted(
        key
        for key in report["missing_keys"]
        if key in parameters and "pooler" not in key.split(".")
    )
    if missing:
        raise DataError(
            f"{folder}: {len(missing)} of the {len(parameters)} parameters of a "
            f"{type(model).__name__} have no weights, such as {missing[0]!r}; they would be random"
        )
    return model.eval().requires_grad_(False).to(device)


def load_image_processor(folder: ModelFolder) -> Any:
    """Load the image processor of a model; it always resizes with Pillow.

    Raises:
        DataError: the folder contains no image processor, or it cannot be loaded.
    """
    _demand(folder, _PROCESSORS, "image processor")
    with shut_up():
        from transformers import AutoImageProcessor

        try:
            return AutoImageProcessor.from_pretrained(folder.path, backend="pil", **_LOCAL)
        # Anything may come of a file that anyone wrote.
        except Exception as error:
            raise DataError(
                f"{folder}: its image processor cannot be loaded ({_reason(error)})"
            ) from error


def load_tokenizer(folder: ModelFolder) -> Any:
    """Load the tokenizer of a model.

    Raises:
        DataError: the folder contains no tokenizer, or it cannot be loaded.
    """
    # Without these files some classes silently create a tokenizer with an empty vocabulary.
    _demand(folder, _VOCABULARIES, "tokenizer")
    with shut_up():
        from transformers import AutoTokenizer

        try:
            return AutoTokenizer.from_pretrained(folder.path, **_LOCAL)
        # Anything may come of a file that anyone wrote.
        except Exception as error:
            raise DataError(
                f"{folder}: its tokenizer cannot be loaded ({_reason(error)})"
            ) from error


def load_processor(folder: ModelFolder) -> Any:
    """Load image processor and tokenizer as one processor; it always resizes with Pillow.

    Raises:
        DataError: the folder does not contain both, or they cannot be loaded.
    """
    image_processor = load_image_processor(folder)
    _demand(folder, _VOCABULARIES, "tokenizer")
    with shut_up():
        from transformers import AutoProcessor

        try:
            processor = AutoProcessor.from_pretrained(folder.path, **_LOCAL)
        # Anything may come of a file that anyone wrote.
        except Exception as error:
            raise DataError(
                f"{folder}: its processor cannot be loaded ({_reason(error)})"
            ) from error
    if not (hasattr(processor, "image_processor") and hasattr(processor, "tokenizer")):
        raise DataError(
            f"{folder}: its {type(processor).__name__} does not process both images and text"
        )
    processor.image_processor = image_processor
    return processor


def _demand(folder: ModelFolder, patterns: Sequence[str], what: str) -> None:
    if not any(True for pattern in patterns for _ in folder.path.glob(pattern)):
        raise DataError(f"{folder}: contains no {what} ({' or '.join(patterns)})")


def check_model(model: str) -> None:
    """Check the option ``model``.

    Raises:
        OptionError: it is empty.
    """
    if not model.strip():
        raise OptionError("model must be the name of a model on the hub or a folder, not empty")


def check_dtype(name: str) -> None:
    """Check that a number format is one of ``DtypeName``.

    Raises:
        OptionError: it is not.
    """
    if name not in (known := get_args(DtypeName)):
        raise OptionError(f"dtype must be one of {', '.join(known)}, not {name!r}")


def resolve_dtype(name: DtypeName, device: str) -> torch.dtype:
    """Return the PyTorch number format for an option on a device."""
    import torch

    if name == "auto":
        name = "float32" if torch.device(device).type == "cpu" else "float16"
    found: torch.dtype = getattr(torch, name)
    return found


def pictures(images: Sequence[UInt8Array]) -> list[Image]:
    """Return Pillow images of uint8 RGB arrays ``(H, W, 3)``.

    Given arrays, a processor would guess which axis contains the channels.

    Raises:
        DataError: an array has another type or shape.
    """
    from PIL import Image

    for image in images:
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or not image.size:
            raise DataError(
                f"an image must be uint8 (height, width, 3), not {image.dtype} {image.shape}"
            )
    return [Image.fromarray(np.ascontiguousarray(image)) for image in images]


class Batched(Generic[_Answer]):
    """A function of images, called with as many images at a time as GPU memory allows.

    Args:
        answer: returns one answer per image, which must not depend on the other images.
    """

    def __init__(self, answer: Callable[[Sequence[UInt8Array]], list[_Answer]]) -> None:
        self._answer = answer
        self._most: int | None = None

    def __call__(self, images: Sequence[UInt8Array]) -> list[_Answer]:
        """Return the answers; if memory runs out, this and all later batches are halved.

        Raises:
            DataError: there is not enough memory for one image.
        """
        import torch

        answers: list[_Answer] = []
        while len(answers) < len(images):
            left = len(images) - len(answers)
            size = min(left, self._most or left)
            try:
                answers += self._answer(images[len(answers) : len(answers) + size])
                continue
            except torch.cuda.OutOfMemoryError:
                if size == 1:
                    raise DataError(
                        "GPU memory is too small for one image; use a smaller model, fewer beams "
                        "or --device cpu"
                    ) from None
            # Outside the handler, whose traceback keeps the tensors of the failed batch alive.
            self._most = size // 2
            torch.cuda.empty_cache()
        return answers
