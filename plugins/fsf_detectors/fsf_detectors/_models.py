"""Models of the hub and of local folders: found, checked, loaded and fingerprinted.

Whatever comes from the hub is first put into its cache; from then on a model is a folder, and is
loaded from there alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
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
    "check_dtype",
    "load_config",
    "load_image_processor",
    "load_model",
    "load_processor",
    "load_tokenizer",
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
"""Where Transformers looks for weights, in its order."""
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

_Answer = TypeVar("_Answer")


PINNED = {
    "Salesforce/blip-image-captioning-large": "353689b859fcf0523410b1806dace5fb46ecdf41",
    "nlpconnect/vit-gpt2-image-captioning": "dc68f91c06a1ba6f15268e5b9c13ae7a7c514084",
    "openai/clip-vit-base-patch32": "3d74acf9a28c67741b2f4f2ea7635f0aaf6f0268",
}
"""Commits on the hub that the detectors' own models are taken at, where no other is asked for: a
table made next year shall hold the words of one made today."""


@dataclass(frozen=True)
class ModelFolder:
    """Where a model lies.

    Args:
        name: as the user gave it, for messages.
        path: of the folder that holds its files.
        commit: of the hub's repository the files belong to; ``None`` for a folder of the user's.
    """

    name: str
    path: Path
    commit: str | None

    @classmethod
    def find(cls, name: str, revision: str | None, *, offline: bool) -> ModelFolder:
        """Find a model by the path of a folder or by its name on the hub, downloading if needed.

        Args:
            name: a folder that exists counts before a name of the hub.
            revision: branch, tag or commit of the hub's repository; by default the commit in
                ``PINNED``, else its main branch.
            offline: take what is in the hub's cache and make no network call.

        Raises:
            DataError: there is no such model, or it is not here and cannot be had.
            OptionError: a revision of a local folder was asked for.
        """
        path = Path(name).expanduser()
        if path.is_dir():
            if revision is not None:
                raise OptionError(
                    f"revision {revision!r}: only models of the hub have one, not the folder {name}"
                )
            return cls(name, path, None)
        if path.exists():
            raise DataError(f"model {name}: must be a folder, not a file")
        if path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
            raise DataError(f"model {name}: no such folder")
        snapshot = _snapshot(name, revision or PINNED.get(name), offline)
        return cls(name, snapshot, snapshot.name)

    def weights(self) -> list[Path]:
        """Return the files of weights that are loaded.

        Raises:
            DataError: there are none, or one that the index names is missing.
        """
        first = next((self.path / n for n in _WEIGHTS if (self.path / n).is_file()), None)
        if first is None:
            raise DataError(f"{self}: no weights in it (model.safetensors or pytorch_model.bin)")
        if first.suffix != ".json":
            return [first]
        try:
            names = sorted(set(json.loads(first.read_text("utf-8"))["weight_map"].values()))
        except (OSError, ValueError, KeyError, AttributeError, TypeError):
            raise DataError(f"{first}: not an index of weights") from None
        files = [first.parent / str(name) for name in names]
        if missing := [file.name for file in files if not file.is_file()]:
            raise DataError(
                f"{self}: the file {missing[0]!r}, which {first.name} names, is missing"
            )
        return files

    def provenance(self) -> dict[str, str]:
        """Return name and commit, and digests of the weights and of all that goes with them.

        ``weights`` is the SHA-256 of the file of weights, the same number that the hub lists; of
        several files, that of their digests, one a line. ``files`` covers configuration,
        vocabulary and processors. Some 1.5 GB are read a second.
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


def _snapshot(name: str, revision: str | None, offline: bool) -> Path:
    """Return the folder of the hub's cache that holds a model, downloading what is not there."""
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
            folder = fetch("*.safetensors", "*.json", "*.txt", "*.model", "*.jinja")
            if not any(folder.glob("*.safetensors")):
                folder = fetch("pytorch_model*")
    except HFValidationError:
        raise DataError(
            f"model {name}: neither a folder nor a name of the hub, which is OWNER/NAME"
        ) from None
    except GatedRepoError:
        raise DataError(
            f"model {name}: the hub gives it only to those who accepted its terms; accept them on "
            "its page and log in with: hf auth login"
        ) from None
    except RepositoryNotFoundError:
        raise DataError(f"model {name}: no such folder, and no such model on the hub") from None
    except RevisionNotFoundError:
        raise DataError(f"model {name}: the hub knows no revision {revision!r} of it") from None
    except LocalEntryNotFoundError:
        why = "the network is not to be used" if offline else "the hub cannot be reached"
        raise DataError(
            f"model {name}{at}: not on this machine, and {why}; where there is a network, run "
            f"hf download {name}{option}, or give the path of a folder that holds the model"
        ) from None
    # The errors of the library that talks to the network are not part of the hub's interface.
    except Exception as error:
        raise DataError(f"model {name}{at}: cannot be downloaded ({_reason(error)})") from error
    return folder


def _reason(error: BaseException) -> str:
    first = next(iter(str(error).strip().splitlines()), "").rstrip(" .:")
    return f"{type(error).__name__}: {first[:200]}" if first else type(error).__name__


@contextlib.contextmanager
def shut_up() -> Iterator[None]:
    """Keep log lines and progress bars of the Hugging Face libraries off the terminal.

    What matters in them is checked and raised as an error instead.
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
    """Read what kind of model it is.

    Raises:
        DataError: no model is in the folder, or one that Transformers does not know.
    """
    if not (folder.path / "config.json").is_file():
        empty = "the folder is empty" if not any(folder.path.iterdir()) else "no config.json in it"
        raise DataError(f"{folder}: no model of Transformers, {empty}")
    with shut_up():
        from transformers import AutoConfig

        try:
            return AutoConfig.from_pretrained(folder.path, **_LOCAL)
        # Anything may come of a file that anyone wrote.
        except Exception as error:
            raise DataError(
                f"{folder}: its config.json names no model that Transformers knows "
                f"({_reason(error)}); code that a model brings along is never run"
            ) from error


_LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}


def load_model(
    folder: ModelFolder, auto_class: Any, config: Any, dtype: torch.dtype, device: str
) -> Any:
    """Load weights, without running any code they may hold, and make the model ready to be used.

    Args:
        auto_class: the class of Transformers whose ``from_pretrained`` chooses the model's.
        config: of ``load_config``.
        dtype: of the weights; ``device`` where they go.

    Raises:
        DataError: the weights are damaged, or do not fill the model.
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
                f"{folder}: its weights cannot be loaded, they are damaged or of another model "
                f"({_reason(error)})"
            ) from error
    parameters = {name for name, _ in model.named_parameters()}
    # Of ViT-GPT2 and TrOCR no pooler is published, and none is used.
    missing = sorted(
        key
        for key in report["missing_keys"]
        if key in parameters and "pooler" not in key.split(".")
    )
    if missing:
        raise DataError(
            f"{folder}: {len(missing)} of the {len(parameters)} parameters of a "
            f"{type(model).__name__} have no weights in it, such as {missing[0]!r}; "
            "they would be random"
        )
    return model.eval().requires_grad_(False).to(device)


def load_image_processor(folder: ModelFolder) -> Any:
    """Load what makes pixel values of pictures; Pillow resizes, whatever else is installed.

    Raises:
        DataError: the folder holds none.
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
    """Load what makes tokens of text.

    Raises:
        DataError: the folder holds none.
    """
    # Without its files some classes make a tokenizer that knows no word, and say nothing.
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
    """Load image processor and tokenizer as one; Pillow resizes, whatever else is installed.

    Raises:
        DataError: the folder holds no such pair.
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
        raise DataError(f"{folder}: no {what} in it ({' or '.join(patterns)})")


def check_dtype(name: str) -> None:
    """Refuse a number format that is not among ``DtypeName``.

    Raises:
        OptionError: there is no such format.
    """
    if name not in (known := get_args(DtypeName)):
        raise OptionError(f"dtype must be one of {', '.join(known)}, not {name!r}")


def resolve_dtype(name: DtypeName, device: str) -> torch.dtype:
    """Return the number format of an option on a device."""
    import torch

    if name == "auto":
        name = "float32" if torch.device(device).type == "cpu" else "float16"
    found: torch.dtype = getattr(torch, name)
    return found


def pictures(images: Sequence[UInt8Array]) -> list[Image]:
    """Return Pillow images of uint8 RGB arrays ``(H, W, 3)``.

    A processor that is given an array guesses which of its axes holds the channels.

    Raises:
        DataError: an array is of another type or shape.
    """
    from PIL import Image

    for image in images:
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or not image.size:
            raise DataError(
                f"an image must be uint8 (height, width, 3), not {image.dtype} {image.shape}"
            )
    return [Image.fromarray(np.ascontiguousarray(image)) for image in images]


class Batched(Generic[_Answer]):
    """A function of images, asked about as many at once as the memory of the GPU allows.

    Args:
        answer: returns one answer an image; the answer must not depend on the images beside it.
    """

    def __init__(self, answer: Callable[[Sequence[UInt8Array]], list[_Answer]]) -> None:
        self._answer = answer
        self._most: int | None = None

    def __call__(self, images: Sequence[UInt8Array]) -> list[_Answer]:
        """Return the answers; where memory runs out, this and later batches are halved.

        Raises:
            DataError: memory does not suffice for one image.
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
                        "the memory of the GPU does not suffice for one image; use a smaller "
                        "model, fewer beams or --device cpu"
                    ) from None
            # Out of the handler, or its traceback would keep the tensors of the failed batch.
            self._most = size // 2
            torch.cuda.empty_cache()
        return answers
