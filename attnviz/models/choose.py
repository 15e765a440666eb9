"""What a request means: which weights, and which model to build for them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnviz.domain import DEFAULT_MODEL, Size
from attnviz.domain.requests import ModelRequest
from attnviz.errors import CheckpointError, UsageError
from attnviz.models import build
from attnviz.models.architecture import (
    Architecture,
    check_args,
    from_inferred,
    size_of,
    stored_size,
    timm_arguments,
)
from attnviz.models.catalogue import ModelSpec, find_spec, packaged_weights, unknown_model
from attnviz.models.identify import identify, shape_name
from attnviz.models.weights.checkpoint import Checkpoint, open_checkpoint
from attnviz.models.weights.hub import (
    Repository,
    fetch_config,
    fetch_folder,
    fetch_weights,
    repository_of,
)
from attnviz.models.weights.inferred import Source


@dataclass(frozen=True, eq=False)
class Weights:
    """The opened weights of a request, and what named them.

    ``spec``: the catalogue row of the requested name. ``repository``: that of the hub which it
    names. ``checkpoint`` None: random weights. ``origin``: where they come from, for the record.
    """

    spec: ModelSpec | None = None
    repository: Repository | None = None
    checkpoint: Checkpoint | None = None
    origin: str = ""


@dataclass(frozen=True)
class Choice:
    """What to load: the name that figures show, the catalogue row if any, and what to build.

    ``shape``: the size in words ("ViT-B/16") of a model that only its shapes chose. ``unnamed``:
    what figures call it is where its weights lie, so that no name tells how its pixels are to be
    prepared. ``guessed``: it is built from shapes alone.
    """

    name: str
    spec: ModelSpec | None
    architecture: Architecture
    shape: str = ""
    unnamed: bool = False
    guessed: bool = False


def find_weights(request: ModelRequest) -> Weights:
    """Look up the requested name and open its weights, or those of the checkpoint.

    Raises:
        UsageError: A name, argument or path that does not exist.
        UnsupportedModelError: A model whose attention cannot be shown.
        CheckpointError: The weights cannot be had or read.
    """
    check_args(request.args)
    spec = find_spec(request.name or DEFAULT_MODEL)
    if request.name is None:
        return _of_checkpoint(request, None) if request.checkpoint else _of_spec(request, spec)
    if spec is not None:
        return _of_spec(request, spec)
    repository = repository_of(request.name)
    if repository is not None:
        return _of_repository(request, repository)
    if build.find_family(request.name) is None:
        raise unknown_model(request.name, build.known_names())
    build.check_family(request.name, request.name)
    return _of_timm(request, request.name)


def _open(
    request: ModelRequest, path: Path, *sizes: Size | None, config_path: Path | None = None
) -> Checkpoint:
    return open_checkpoint(
        path,
        request.checkpoint_key,
        config_path=config_path,
        size=size_of(request.args),
        sizes=[size for size in sizes if size is not None],
    )


def _of_checkpoint(
    request: ModelRequest, spec: ModelSpec | None, size: Size | None = None
) -> Weights:
    assert request.checkpoint is not None
    checkpoint = _open(request, request.checkpoint, size)
    return Weights(spec, None, checkpoint, checkpoint.path.name)


def _of_spec(request: ModelRequest, spec: ModelSpec | None) -> Weights:
    assert spec is not None
    if request.random_weights:
        return Weights(spec)
    if request.checkpoint is not None:
        return _of_checkpoint(request, spec, spec.native)
    if spec.packaged:
        path = packaged_weights(spec)
        return Weights(spec, None, open_checkpoint(path, sizes=[spec.native]), path.name)
    path = fetch_weights(spec.name, spec.repository)
    return Weights(spec, None, _open(request, path, spec.native), spec.repository)


def _of_timm(request: ModelRequest, name: str) -> Weights:
    if request.random_weights:
        return Weights()
    size = build.native_size_of(name)
    if request.checkpoint is not None:
        return _of_checkpoint(request, None, size)
    repository = build.hub_repository(name)
    if repository is None:
        raise CheckpointError(
            f"{name} has no pretrained weights",
            "give a file with --checkpoint FILE, or --random-weights",
        )
    path = fetch_weights(name, *repository)
    return Weights(None, None, _open(request, path, size), f"timm/{name}")


def _of_repository(request: ModelRequest, repository: Repository) -> Weights:
    assert request.name is not None
    if request.name == repository.name and Path(request.name).exists():
        raise UsageError(
            f"--model {request.name} is a path here as well as a name of the hub",
            f"give --checkpoint {request.name}, or --model hf-hub:{request.name} for the hub",
        )
    if request.random_weights:
        raise UsageError(
            f"--random-weights: {request.name} stands for weights of the hub",
            "name a model of `attnviz models` or of timm instead",
        )
    if request.checkpoint is not None:
        config = fetch_config(repository)
        checkpoint = _open(request, request.checkpoint, config_path=config)
        return Weights(None, repository, checkpoint, checkpoint.path.name)
    checkpoint = _open(request, fetch_folder(repository))
    return Weights(None, repository, checkpoint, str(repository))


def choose_model(request: ModelRequest, weights: Weights) -> Choice:
    """The model to build for a request and its weights.

    Raises:
        UsageError: Sizes that contradict the weights.
        UnsupportedModelError: The architecture of a config cannot be shown.
        CheckpointError: Nothing names the model, and the weights do not tell enough.
    """
    checkpoint, spec = weights.checkpoint, weights.spec
    if spec is not None:
        return Choice(spec.name, spec, _architecture(request, spec.timm_name, spec, checkpoint))
    if request.name is not None and weights.repository is None:
        architecture = _architecture(request, request.name, None, checkpoint)
        config = None if checkpoint is None else checkpoint.timm
        if config is not None and config.architecture == request.name.partition(".")[0]:
            arguments = config.arguments | architecture.arguments
            architecture = Architecture(request.name, arguments)
        return Choice(request.name, None, architecture)
    assert checkpoint is not None
    title = str(weights.repository) if weights.repository else checkpoint.title
    if checkpoint.timm is not None:
        return _of_config(request, title, checkpoint)
    spec = identify(checkpoint)
    if spec is not None and checkpoint.path.name == spec.weights_file:  # the authors' own name
        return Choice(spec.name, spec, _architecture(request, spec.timm_name, spec, checkpoint))
    # A layout of transformers has a config, a repository of the hub a name.
    named = weights.repository is not None or checkpoint.source.is_hf
    shape = "" if named else shape_name(checkpoint.inferred)
    if spec is not None:
        architecture = _architecture(request, spec.timm_name, spec, checkpoint)
        return Choice(title, spec, architecture, shape, unnamed=True)
    _check_activation(checkpoint)
    architecture = from_inferred(checkpoint.inferred, request.args, checkpoint.source)
    architecture.arguments.update(_own_sizes(request, None, checkpoint))
    return Choice(title, None, architecture, shape, unnamed=True, guessed=True)


def _of_config(request: ModelRequest, title: str, checkpoint: Checkpoint) -> Choice:
    """The model that a timm config.json describes; by its name where timm has such weights."""
    config = checkpoint.timm
    assert config is not None
    spec = identify(checkpoint)
    if spec is not None:
        architecture = _architecture(request, spec.timm_name, spec, checkpoint)
        return Choice(spec.name, spec, architecture)
    build.check_family(title, config.architecture)
    known = build.is_known_tag(config.name)
    name = config.name if known else config.architecture
    architecture = _architecture(request, name, None, checkpoint)
    architecture = Architecture(name, config.arguments | architecture.arguments)
    if known and not request.name:
        return Choice(name, None, architecture)
    return Choice(title, None, architecture, unnamed=True)


def _architecture(
    request: ModelRequest, timm_name: str, spec: ModelSpec | None, checkpoint: Checkpoint | None
) -> Architecture:
    """A timm model with the sizes of the packaged one, of the weights, and of the request."""
    arguments: dict[str, Any] = {}
    if spec is not None and spec.packaged:
        sizes = {"width": spec.width, "depth": spec.depth, "heads": spec.heads}
        arguments |= timm_arguments(sizes | {"patch": spec.patch, "size": spec.native_size})
    if checkpoint is not None:
        inferred = checkpoint.inferred
        arguments |= stored_size(inferred)
        if inferred.rotary and inferred.qkv_bias:
            arguments["qkv_bias"] = True  # timm's DINOv3 leaves them out, as Meta's are all zero
        if inferred.activation is not None:
            arguments["act_layer"] = inferred.activation
    return Architecture(timm_name, arguments | _own_sizes(request, spec, checkpoint, timm_name))


def _own_sizes(
    request: ModelRequest,
    spec: ModelSpec | None,
    checkpoint: Checkpoint | None,
    timm_name: str | None = None,
) -> dict[str, Any]:
    """The sizes of ``--model-arg`` in timm's words."""
    size = size_of(request.args)
    if checkpoint is not None and size is not None:
        stored = checkpoint.inferred.stored_size
        if stored is not None and stored != size:  # a config says so, whatever was asked for
            raise UsageError(
                f"--model-arg: {checkpoint.path} has positions for {stored} pixels, not {size}",
                "they are resized for each image; give the input size with --size",
            )
    if timm_name is not None and spec is None:
        return timm_arguments(request.args, eva=build.find_family(timm_name) == "eva")
    rotary = spec.rotary if spec is not None else checkpoint and checkpoint.inferred.rotary
    return timm_arguments(request.args, eva=bool(rotary))


def _check_activation(checkpoint: Checkpoint) -> None:
    """Refuse what shapes do not tell and weights of one layout differ in.

    Raises:
        CheckpointError: open_clip's layout, of which OpenAI's weights have another activation.
    """
    if checkpoint.source is Source.OPEN_CLIP:
        inferred = checkpoint.inferred
        letter = {384: "small", 768: "base", 1024: "large", 1280: "huge"}.get(
            inferred.width, "base"
        )
        name = f"vit_{letter}_patch{inferred.patch}_clip"
        raise CheckpointError(
            f"{checkpoint.path} does not say which activation it was trained with",
            f"name the model: --model {name}_quickgelu_224 for OpenAI's weights and others with "
            f"QuickGELU, --model {name}_224 for those with GELU",
        )
