"""What a file of torch.save says about its tensors, without reading them. No torch.

Its first part is a pickle of names and shapes. Nothing that it names is imported or built.
"""

from __future__ import annotations

import math
import pickle
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnviz.models.weights.text import StoredTensor

NEEDED = "give a checkpoint (.pth, .pt, .bin, .safetensors) or a Hugging Face folder"
SAFE_HINT = (
    "nothing in a checkpoint is executed; where you trust the file, save its weights alone: "
    "torch.save(model.state_dict(), FILE)"
)


class _Inert:
    """Stands for whatever a pickle names: it takes anything and does nothing."""

    name = ""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __call__(self, *_: Any, **__: Any) -> _Inert:
        return self

    def __setstate__(self, state: Any) -> None:
        pass

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def append(self, value: Any) -> None:
        """What a pickled list calls."""

    extend = append


# Not the unpickler in C, which allocates whatever size a pickle names.
class _Sizes(pickle._Unpickler):  # noqa: SLF001
    """Adds up the bytes of the tensors that a pickle refers to; nothing is imported or built."""

    def __init__(self, file: Any) -> None:
        super().__init__(file, encoding="latin1")
        self.storages: dict[Any, int] = {}

    def find_class(self, _module: str, name: str) -> Any:
        return type("Inert", (_Inert,), {"name": name})

    def persistent_load(self, pid: Any) -> Any:
        _, kind, key, _, count = pid[:5]
        self.storages[key] = int(count) * _ITEM_BYTES.get(getattr(kind, "name", ""), 1)
        return _Inert()


_ITEM_BYTES = {
    **dict.fromkeys(("DoubleStorage", "LongStorage", "ComplexFloatStorage"), 8),
    **dict.fromkeys(("FloatStorage", "IntStorage"), 4),
    **dict.fromkeys(("HalfStorage", "BFloat16Storage", "ShortStorage"), 2),
    "ComplexDoubleStorage": 16,
}

_LOCAL_HEADER = struct.Struct("<4s22xHH")
_BEFORE_TENSORS = 3
"""Small pickles (magic number, version, system) at the start of files from before torch 1.6."""


def cut_off(path: Path) -> str:
    """How much of a file of torch.save is missing, in words; empty where it cannot be told.

    The first part of the file lists the tensors, so their total size is known from it alone.
    """
    try:
        have = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(_LOCAL_HEADER.size)
            if head.startswith(b"PK"):
                _, name, extra = _LOCAL_HEADER.unpack(head)
                start = file.seek(_LOCAL_HEADER.size + name + extra)
                sizes = _Sizes(file)
                sizes.load()
                end = max(start, file.tell())
            else:
                file.seek(0)
                for _ in range(_BEFORE_TENSORS):
                    _Sizes(file).load()
                sizes = _Sizes(file)
                sizes.load()
                end = file.tell()
    except Exception:  # noqa: BLE001 - damaged bytes raise anything; then nothing is known
        return ""
    need = end + math.fsum(sizes.storages.values())
    if not sizes.storages or have >= need:
        return ""
    return f"{path} is cut off: {have:,} of at least {int(need):,} bytes are there"


class _Dict(dict[str, Any]):
    """An ordered dict, whose attributes (torch's ``_metadata``) are left out."""

    def __setstate__(self, state: Any) -> None:
        pass


class _Names(_Sizes):
    """Keeps dicts with their names; what is rebuilt as a tensor becomes a ``StoredTensor``."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return _Dict
        if name.startswith("_rebuild_") or name == "_reconstruct":
            return lambda *_: StoredTensor()
        if module.split(".", maxsplit=1)[0] not in _PLAIN_DATA:
            raise _UnknownError(name)
        return super().find_class(module, name)


_PLAIN_DATA = {"torch", "numpy", "argparse", "pathlib", "_codecs"}


class _UnknownError(Exception):
    """A pickle names something else than data, which reading it in earnest refuses."""


def stored_names(path: Path) -> Mapping[str, Any] | None:
    """The dict of a file of torch.save, with ``StoredTensor`` for tensors.

    None where it cannot be told from the first part: files from before torch 1.6, and whatever the
    reading in earnest has more to say about.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            (name,) = (each for each in archive.namelist() if each.endswith("data.pkl"))
            with archive.open(name) as file:
                content = _Names(file).load()
    except Exception:  # noqa: BLE001 - damaged bytes raise anything; then nothing is known
        return None
    return content if isinstance(content, dict) else None
