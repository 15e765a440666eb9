"""``attnviz relevance``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from attnviz.cli.options import SharedOptions
from attnviz.cli.parse import optional_indices
from attnviz.cli.run import run
from attnviz.domain import RelevanceMethod
from attnviz.domain.requests import RelevanceRequest
from attnviz.errors import UsageError
from attnviz.storage import path_of


@dataclass(frozen=True, kw_only=True)
class RelevanceOptions(SharedOptions):
    """Options of ``relevance``."""

    like: Annotated[
        Path | None,
        typer.Option(
            metavar="PICTURE",
            parser=path_of,
            help="What makes the picture like this second one: the cosine of their features.",
        ),
    ] = None
    class_: Annotated[
        int | None,
        typer.Option(
            "--class",
            metavar="N",
            help="What speaks for this class, from 0, of the weights' own classifier.",
        ),
    ] = None
    method: Annotated[
        RelevanceMethod, typer.Option(help="How relevance is carried through the layers.")
    ] = RelevanceMethod.CHEFER


def relevance(options: RelevanceOptions) -> int:
    """What in the picture counts for a target: a class, or likeness to a second picture.

    Attention weighted by the gradient of the target, through all layers (Chefer et al. 2021);
    gradient rollout; or, without a gradient, what each patch contributes to CLS along the target.

    Example: attnviz relevance photo.jpg --like second.jpg
    """
    return run(relevance_request(options), options)


def relevance_request(options: RelevanceOptions) -> RelevanceRequest:
    """What the options of ``relevance`` ask for."""
    like = options.like
    if (like is None) == (options.class_ is None):
        raise UsageError(
            "relevance needs a target: --like or --class"
            if like is None
            else "--like and --class exclude each other",
            "--like SECOND.jpg: what makes the pictures alike; --class N: what speaks for a class, "
            "where the weights come with a classifier",
        )
    if options.class_ is not None and options.class_ < 0:
        raise UsageError(f"--class: {options.class_} is no class", "classes count from 0")
    return RelevanceRequest(
        method=options.method,
        class_index=options.class_,
        like=like,
        heads=optional_indices("--heads", options.heads),
    )
