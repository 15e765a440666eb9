"""Scenes of one object on a background, with the object's mask, for training and for judging.

They are composed from the banks in batches, so that data never bound the training loop.
Everything follows from the banks and from the generator that is passed in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

if TYPE_CHECKING:
    import numpy as np
    from banks import Banks

IMAGENET_MEAN = torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1)
IMAGENET_STD = torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1)


@dataclass(frozen=True)
class ViewKind:
    """How large and how far from the middle the object may lie in a view.

    ``diameter``: range of the glyph's longer side as a fraction of the view's side.
    ``reach``: how far its centre may leave the middle, as a fraction of what keeps it inside
    (above 1 the object is cut by the border). ``hue``: largest angle, in radians, by which the
    object's colours are turned around the grey axis, beside the small changes that all get.
    ``vivid``: backgrounds as loud as the objects; otherwise their colour and contrast are faded.
    """

    diameter: tuple[float, float]
    reach: float
    hue: float = 0.0
    vivid: bool = False


GLOBAL_VIEW = ViewKind(diameter=(0.35, 0.85), reach=1.0)
LOCAL_VIEW = ViewKind(diameter=(0.7, 1.5), reach=0.5)
JUDGED_VIEW = ViewKind(diameter=(0.3, 0.65), reach=1.0)


def _uniform(count: int, low: float, high: float, generator: torch.Generator) -> torch.Tensor:
    return low + (high - low) * torch.rand(count, generator=generator)


def _object_grid(count: int, kind: ViewKind, side: int, generator: torch.Generator) -> torch.Tensor:
    """Sampling grid that lays the glyph square at a random pose: (B, side, side, 2)."""
    diameter = _uniform(count, *kind.diameter, generator)
    angle = _uniform(count, -0.7, 0.7, generator)
    flip = torch.where(torch.rand(count, generator=generator) < 0.5, -1.0, 1.0)
    stretch = torch.exp(_uniform(count, -0.15, 0.15, generator))
    room = (1 - diameter).abs().clamp(min=0.2) * kind.reach
    cx = _uniform(count, -1, 1, generator) * room
    cy = _uniform(count, -1, 1, generator) * room
    cos, sin = torch.cos(angle) / diameter, torch.sin(angle) / diameter
    a, b = flip * stretch * cos, flip * stretch * sin
    c, d = -sin / stretch, cos / stretch
    theta = torch.stack([a, b, -(a * cx + b * cy), c, d, -(c * cx + d * cy)], dim=1).view(
        count, 2, 3
    )
    return functional.affine_grid(theta, [count, 1, side, side], align_corners=False)


def _background_grid(count: int, side: int, generator: torch.Generator) -> torch.Tensor:
    """Sampling grid of a random turned window of the texture: (B, side, side, 2)."""
    scale = _uniform(count, 0.4, 1.0, generator)
    angle = _uniform(count, -math.pi, math.pi, generator)
    shift = (1 - scale)[:, None] * torch.stack(
        [_uniform(count, -1, 1, generator), _uniform(count, -1, 1, generator)], dim=1
    )
    cos, sin = scale * torch.cos(angle), scale * torch.sin(angle)
    theta = torch.stack([cos, -sin, shift[:, 0], sin, cos, shift[:, 1]], dim=1).view(count, 2, 3)
    return functional.affine_grid(theta, [count, 1, side, side], align_corners=False)


def _recolour(
    rgb: torch.Tensor, weight: torch.Tensor | None, strength: float, generator: torch.Generator
) -> torch.Tensor:
    """Change brightness, contrast and hue (a random mixing of the channels) of each image.

    ``weight`` (B, 1, h, w) is the alpha with which ``rgb`` is premultiplied; None stands for 1.
    """
    count, _, height, width = rgb.shape
    mix = torch.eye(3) + strength * 0.5 * (torch.rand(count, 3, 3, generator=generator) - 0.5)
    mix = mix / mix.sum(dim=2, keepdim=True)
    gain = torch.exp(_uniform(count, -strength, strength, generator) * 0.5).view(-1, 1, 1)
    offset = (_uniform(count, -strength, strength, generator) * 0.25).view(-1, 1, 1)
    shift = offset + 0.5 * (1 - gain)  # contrast turns around middle grey
    if weight is not None:
        shift = shift * weight.flatten(2)
    return (torch.bmm(gain * mix, rgb.flatten(2)) + shift).view(count, 3, height, width)


def _turn_hue(rgb: torch.Tensor, largest: float, generator: torch.Generator) -> torch.Tensor:
    """Turn colours around the grey axis and change how saturated they are, per image."""
    count, _, height, width = rgb.shape
    angle = _uniform(count, -largest, largest, generator).view(-1, 1, 1)
    saturation = _uniform(count, 0.6, 1.3, generator).view(-1, 1, 1)
    grey = torch.full((3, 3), 1 / 3)
    cross = torch.tensor([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]]) / math.sqrt(3)
    turn = (
        torch.cos(angle) * torch.eye(3) + torch.sin(angle) * cross + (1 - torch.cos(angle)) * grey
    )
    mix = saturation * turn + (1 - saturation) * grey  # (B, 3, 3)
    return torch.bmm(mix, rgb.flatten(2)).view(count, 3, height, width)


def _fade(rgb: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Take colour and contrast out of images, more or less, as distance and shade do."""
    count = rgb.shape[0]
    colour = _uniform(count, 0.0, 0.7, generator).view(-1, 1, 1, 1)
    contrast = _uniform(count, 0.3, 0.9, generator).view(-1, 1, 1, 1)
    level = _uniform(count, -0.25, 0.25, generator).view(-1, 1, 1, 1)
    grey = rgb.mean(dim=1, keepdim=True)
    middle = rgb.mean(dim=(1, 2, 3), keepdim=True)
    faded = grey + colour * (rgb - grey)
    return (middle + contrast * (faded - middle) + level).clamp_(0, 1)


def compose(
    banks: Banks,
    objects: torch.Tensor,
    kind: ViewKind,
    side: int,
    generator: torch.Generator,
    *,
    supersample: int = 1,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compose one scene for each entry of ``objects`` (B,), indices into the glyph bank.

    Returns images (B, 3, side, side) float32 in 0..1 and masks (B, side, side) bool: where the
    object covers more than half of a pixel. Composed at ``supersample`` times the side and
    averaged down.
    """
    count, fine = objects.shape[0], side * supersample
    textures = torch.randint(banks.textures.shape[0], (count,), generator=generator)
    back = functional.grid_sample(
        banks.textures[textures].float().div_(255),
        _background_grid(count, fine, generator),
        padding_mode="reflection",
        align_corners=False,
    )
    front = functional.grid_sample(
        banks.glyphs[objects].float().div_(255),
        _object_grid(count, kind, fine, generator),
        align_corners=False,
    )
    colour, alpha = front[:, :3], front[:, 3:]
    if kind.hue:
        colour = _turn_hue(colour, kind.hue, generator)
    if kind.vivid:
        back = _recolour(back, None, 0.8, generator).clamp_(0, 1)
    else:
        back = _fade(back, generator)
    scene = _recolour(colour, alpha, 0.5, generator) + (1 - alpha) * back
    if supersample > 1:
        scene, alpha = (
            functional.avg_pool2d(scene, supersample),
            functional.avg_pool2d(alpha, supersample),
        )
    noise = _uniform(count, 0.0, 0.04, generator).view(-1, 1, 1, 1)
    scene = scene + noise * torch.randn(scene.shape, generator=generator)
    return scene.clamp_(0, 1), alpha[:, 0] > 0.5


def normalise(images: torch.Tensor) -> torch.Tensor:
    """Images in 0..1 to what the model expects (ImageNet mean and standard deviation)."""
    return (images - IMAGENET_MEAN) / IMAGENET_STD


def judged_scenes(
    banks: Banks, count: int, side: int, seed: int, *, vivid: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """The scenes that models are judged on: (B, side, side, 3) uint8, (B, side, side) bool.

    Scene i shows glyph i of the bank (starting over at its end); quantised to 8 bits, so that
    a scene on disk and one in memory are the same.
    """
    generator = torch.Generator().manual_seed(seed)
    objects = torch.arange(count) % banks.glyphs.shape[0]
    kind = replace(JUDGED_VIEW, vivid=vivid)
    images, masks = compose(banks, objects, kind, side, generator, supersample=2)
    pixels = (images * 255).round().to(torch.uint8).permute(0, 2, 3, 1)
    return pixels.numpy(), masks.numpy()
