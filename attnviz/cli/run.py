"""From a command's options to a run: requests are built, the pipeline runs, the report prints."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from attnviz.cli.parse import (
    check_cmap,
    check_name,
    in_range,
    parse_channels,
    parse_count,
    parse_device,
    parse_limits,
    parse_model_args,
    parse_shard,
    parse_size,
    parse_width,
)
from attnviz.cli.report import Report
from attnviz.domain import DrawStyle, Engine, Scale
from attnviz.domain.requests import (
    ClusterRequest,
    InputRequest,
    ModelRequest,
    OutputRequest,
    RunRequest,
)
from attnviz.errors import UsageError
from attnviz.output.table import check_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnviz.cli.input_options import InputOptions
    from attnviz.cli.options import FigureOptions, RunOptions
    from attnviz.domain.requests import CommandRequest


def run(command: CommandRequest, options: RunOptions) -> int:
    """Run one command over its inputs and report it; the exit code.

    Raises:
        AttnvizError: Nothing could be done at all: wrong use, no such model, no way to write.
    """
    request = run_request(command, options)
    from attnviz.engines.draw_pool import make_ready

    if request.workers is None and request.cluster is None and (os.cpu_count() or 1) > 1:
        make_ready()
    from attnviz.runs import command as pipeline
    from attnviz.runs.collect import collect_outputs

    may_be_empty = request.inputs.shard is not None
    report = Report(as_json=options.json, quiet=options.quiet, may_be_empty=may_be_empty)
    return report.consume(collect_outputs(request, pipeline.run(request)))


def run_request(command: CommandRequest, options: RunOptions) -> RunRequest:
    """Every option read and checked as far as it can be without a model or a picture.

    Raises:
        UsageError: A value that no model could honour.
    """
    output = output_request(options)
    if output.summary and options.shard is not None:
        raise UsageError(
            "--summary is of all pictures, and --shard takes a part of them",
            "give each shard a --table, and join those with attnviz merge",
        )
    return RunRequest(
        command=command,
        model=model_request(options),
        inputs=replace(input_request(options.inputs, options), shard=parse_shard(options.shard)),
        output=output,
        style=draw_style(options),
        batch_size=parse_count("--batch-size", options.batch_size, least=1) or 0,
        workers=parse_count("--workers", options.workers, least=0),
        fail_fast=options.fail_fast,
        cluster=cluster_request(options),
    )


def cluster_request(options: RunOptions) -> ClusterRequest | None:
    """The options of a run on a cluster; None for a run on this machine.

    Raises:
        UsageError: An option of the one for a run of the other kind.
    """
    cpus = parse_count("--cpus-per-model", options.cpus_per_model, least=1)
    if options.engine is Engine.RAY:
        if options.workers != "auto":
            raise UsageError(
                "--workers counts the processes of this machine, and --engine ray has its own",
                "leave it out; see --cpus-per-model",
            )
        if options.device not in ("auto", "cpu", "cuda"):
            raise UsageError(
                f"--device {options.device}: Ray gives every model a device of its own",
                "use --device auto, cpu or cuda",
            )
        return ClusterRequest(address=options.ray_address, cpus_per_model=cpus or 0)
    given = (("--ray-address", options.ray_address), ("--cpus-per-model", cpus))
    for name, value in given:
        if value is not None:
            raise UsageError(f"{name} needs --engine ray")
    return None


def model_request(options: InputOptions) -> ModelRequest:
    """The options of the panel Model."""
    if options.random_weights and options.checkpoint is not None:
        raise UsageError("--random-weights and --checkpoint exclude each other")
    if options.checkpoint_key is not None and options.checkpoint is None:
        raise UsageError("--checkpoint-key needs --checkpoint")
    if options.checkpoint is not None and not options.checkpoint.exists():
        raise UsageError(
            f"--checkpoint: {options.checkpoint} does not exist", "check the path, or leave it out"
        )
    return ModelRequest(
        name=options.model,
        checkpoint=options.checkpoint,
        checkpoint_key=options.checkpoint_key,
        random_weights=options.random_weights,
        device=parse_device(options.device),
        precision=options.precision,
        positions=options.positions,
        args=parse_model_args(options.model_arg),
        verify=options.verify,
    )


def input_request(inputs: Sequence[str], options: InputOptions) -> InputRequest:
    """The inputs and the options of the panel Pictures."""
    return InputRequest(
        inputs=tuple(inputs),
        size=parse_size(options.size),
        fit=options.fit,
        max_pixels=options.max_pixels,
        mean=parse_channels("--mean", options.mean),
        std=parse_channels("--std", options.std, positive=True),
    )


def output_request(options: FigureOptions) -> OutputRequest:
    """The options of the panel Output."""
    return OutputRequest(
        folder=options.out,
        formats=tuple(dict.fromkeys(options.format)),
        save_data=options.save_data,
        skip_existing=options.skip_existing,
        name=check_name(options.name),
        table=options.table if options.table is None else check_table(options.table),
        summary=getattr(options, "summary", False),
    )


def draw_style(options: FigureOptions) -> DrawStyle:
    """The options of the panel Drawing."""
    limits = parse_limits(options.limits)
    if options.scale is Scale.FIXED and limits is None:
        raise UsageError("--scale fixed needs --limits", "for instance --limits 0,0.02")
    if options.scale is not Scale.FIXED and limits is not None:
        raise UsageError("--limits needs --scale fixed")
    return DrawStyle(
        width=parse_width(options.width),
        dpi=options.dpi,
        cmap=check_cmap(options.cmap),
        scale=options.scale,
        fixed_limits=limits,
        interpolation=options.interpolation,
        alpha=in_range("--alpha", options.alpha, least=0, most=1),
    )
