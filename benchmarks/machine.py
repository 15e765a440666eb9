"""What a benchmark ran on: CPU model, caches, cores, threads, and the GPU where one is used."""

from __future__ import annotations

import platform
from pathlib import Path

import torch

from attnviz.attention.caches import cpu_caches
from attnviz.domain.process import available_cores

CPUINFO = Path("/proc/cpuinfo")


def cpu_name() -> str:
    """The model name that the system reports, else the architecture."""
    try:
        lines = CPUINFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names and names[0] else platform.processor() or platform.machine()


def describe_cpu() -> str:
    """The CPU, its caches, and how many of its cores compute."""
    return (
        f"{cpu_name()} ({cpu_caches()}), {available_cores()} cores, "
        f"{torch.get_num_threads()} threads"
    )


def describe(device: torch.device) -> str:
    """The device that computes, with the CPU beside it."""
    if device.type != "cuda":
        return describe_cpu()
    gpu = torch.cuda.get_device_properties(device)
    return f"{gpu.name} ({gpu.total_memory / 1e9:.0f} GB), beside {describe_cpu()}"
