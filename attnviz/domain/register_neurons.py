"""Register neurons: the MLP neurons whose activation test-time registers take over.

``attnviz registers`` finds them and writes them as a JSON file, which ``--test-registers`` reads.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from attnviz.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = "register neurons"
VERSION = 1

_MADE_BY = "give a file that attnviz registers wrote"


class Neuron(NamedTuple):
    """One MLP neuron: its layer, its index there, both from 0, and its score."""

    layer: int
    neuron: int
    score: float


@dataclass(frozen=True)
class RegisterNeurons:
    """The register neurons of one model, strongest first (Jiang et al. 2025, algorithm 1).

    model, weights_sha256, checkpoint_key: the weights that they were found in, and are valid for.
    layer: d, whose tokens' norms make a patch an outlier, above ``threshold`` (tau). max_layer:
    l_max, the highest layer that neurons are taken from. images, outliers: how many images with
    outliers, and how many outliers in them, the scores are means over.
    """

    model: str
    weights_sha256: str | None
    checkpoint_key: str | None
    layer: int
    threshold: float
    max_layer: int
    images: int
    outliers: int
    neurons: tuple[Neuron, ...]

    @property
    def digest(self) -> str:
        """Hex SHA-256 of the layers and indices: of what test-time registers depend on."""
        places = sorted(each[:2] for each in self.neurons)
        return hashlib.sha256(json.dumps(places).encode()).hexdigest()

    @property
    def by_layer(self) -> dict[int, tuple[int, ...]]:
        """The indices of the neurons of each layer that has any, rising."""
        layers: dict[int, list[int]] = {}
        for layer, index, _ in sorted(self.neurons):
            layers.setdefault(layer, []).append(index)
        return {layer: tuple(indices) for layer, indices in layers.items()}

    def to_json(self) -> str:
        """The file's text: one neuron a line, the same bytes for the same values."""
        values = asdict(self)
        neurons = values.pop("neurons")
        lines = ",\n".join(
            f'    {{"layer": {layer}, "neuron": {index}, "score": {score!r}}}'
            for layer, index, score in neurons
        )
        head = json.dumps({"attnviz": FORMAT, "version": VERSION, **values}, indent=2)
        body = f"[\n{lines}\n  ]" if lines else "[]"
        return f'{head.removesuffix(chr(10) + "}")},\n  "neurons": {body}\n}}\n'


def parse_neurons(text: str, name: str) -> RegisterNeurons:
    """The list in a file's text. ``name``: of the file, for messages.

    Raises:
        UsageError: It is not such a list, is of a later version, or names a neuron twice.
    """
    try:
        found: Any = json.loads(text)
        if found["attnviz"] != FORMAT:
            raise UsageError(f"{name} is not a list of register neurons", _MADE_BY)
        if int(found["version"]) > VERSION:
            raise UsageError(
                f"{name} has version {found['version']} of the format, and {VERSION} is the "
                "highest that is known here",
                "a newer attnviz reads it",
            )
        neurons = tuple(
            Neuron(_index(each["layer"]), _index(each["neuron"]), float(each["score"]))
            for each in found["neurons"]
        )
        sha256, key = found["weights_sha256"], found["checkpoint_key"]
        result = RegisterNeurons(
            model=str(found["model"]),
            weights_sha256=None if sha256 is None else str(sha256),
            checkpoint_key=None if key is None else str(key),
            layer=_index(found["layer"]),
            threshold=float(found["threshold"]),
            max_layer=_index(found["max_layer"]),
            images=_index(found["images"]),
            outliers=_index(found["outliers"]),
            neurons=neurons,
        )
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{name} is not a list of register neurons", _MADE_BY) from error
    if len({neuron[:2] for neuron in neurons}) < len(neurons):
        raise UsageError(f"{name} names a neuron twice", _MADE_BY)
    return result


def _index(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(value)
    return value


def read_neurons(path: Path) -> RegisterNeurons:
    """The list in a file.

    Raises:
        UsageError: The file cannot be read, or is not such a list.
    """
    try:
        return parse_neurons(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--test-registers: {path} cannot be read", _MADE_BY) from error


def check_neurons(path: Path) -> Path:
    """The path of a list of register neurons, which must be one; as ``read_neurons``."""
    read_neurons(path)
    return path
