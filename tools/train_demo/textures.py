"""Procedural backgrounds: six families of textures drawn from a random generator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw

if TYPE_CHECKING:
    from collections.abc import Callable

    FloatImage = np.ndarray


def _palette(rng: np.random.Generator, count: int) -> FloatImage:
    """Random colours (count, 3) in 0..1, some sets close to one hue, some of all hues."""
    base = rng.uniform(0, 1, 3)
    spread = rng.choice([0.15, 0.4, 1.0])
    return np.clip(base + spread * (rng.uniform(0, 1, (count, 3)) - 0.5), 0, 1)


def _noise(side: int, cells: int, rng: np.random.Generator) -> FloatImage:
    """Smooth random field (side, side) in about 0..1, with ``cells`` bumps along a side."""
    coarse = Image.fromarray(rng.uniform(0, 1, (cells + 3, cells + 3)).astype(np.float32))
    return np.asarray(coarse.resize((side, side), Image.Resampling.BICUBIC))


def _colourise(field: FloatImage, rng: np.random.Generator) -> FloatImage:
    """Map a field in 0..1 through a random colour ramp: (side, side, 3)."""
    colours = _palette(rng, 4)
    stops = np.linspace(0, 1, 4)
    return np.stack([np.interp(field, stops, colours[:, c]) for c in range(3)], axis=-1)


def _clouds(side: int, rng: np.random.Generator) -> FloatImage:
    first = int(rng.integers(2, 8))
    octaves = [_noise(side, first * 2**k, rng) * 0.6**k for k in range(int(rng.integers(1, 5)))]
    field = np.sum(octaves, axis=0)
    return _colourise((field - field.min()) / np.ptp(field), rng)


def _coordinates(side: int, rng: np.random.Generator) -> tuple[FloatImage, FloatImage]:
    """Turned and slightly bent coordinates, 0..1 along a side."""
    y, x = np.mgrid[0:side, 0:side] / side
    angle, bend = rng.uniform(0, np.pi), rng.uniform(0, 0.15)
    x = x + bend * (_noise(side, 4, rng) - 0.5)
    y = y + bend * (_noise(side, 4, rng) - 0.5)
    return x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)


def _stripes(side: int, rng: np.random.Generator) -> FloatImage:
    u, _ = _coordinates(side, rng)
    wave = 0.5 + 0.5 * np.sin(2 * np.pi * rng.uniform(2, 20) * u)
    return _colourise(np.clip(0.5 + rng.uniform(1, 6) * (wave - 0.5), 0, 1), rng)


def _tiles(side: int, rng: np.random.Generator) -> FloatImage:
    u, v = _coordinates(side, rng)
    rows, columns = rng.uniform(3, 14, 2)
    row = np.floor(u * rows + 40).astype(int)
    shifted = v * columns + 40 + (row % 2) * rng.choice([0.0, 0.5])
    column = np.floor(shifted).astype(int)
    colours = _palette(rng, int(rng.integers(2, 9)))
    tiles = colours[(row * 7 + column * 3) % len(colours)]
    joint = np.minimum((u * rows) % 1, shifted % 1) < rng.uniform(0, 0.15)
    return np.where(joint[..., None], _palette(rng, 1)[0], tiles)


def _cells(side: int, rng: np.random.Generator) -> FloatImage:
    count = int(rng.integers(10, 90))
    seeds = rng.uniform(0, side, (count, 2))
    y, x = np.mgrid[0:side, 0:side]
    distance = np.hypot(y[..., None] - seeds[:, 0], x[..., None] - seeds[:, 1])
    flat = _palette(rng, count)[distance.argmin(axis=-1)]
    shade = np.clip(distance.min(axis=-1) / side * rng.uniform(0, 8), 0, 1)[..., None]
    return np.clip(flat * (1 - 0.6 * shade), 0, 1)


def _clutter(side: int, rng: np.random.Generator) -> FloatImage:
    """Many overlapping shapes: edges and blobs everywhere, so that an edge alone says nothing."""
    colours = (_palette(rng, 60) * 255).astype(int)
    canvas = Image.new("RGB", (side, side), tuple(colours[0].tolist()))
    draw = ImageDraw.Draw(canvas)
    largest = rng.uniform(0.08, 0.35) * side
    for colour in colours[1 : int(rng.integers(20, 60))]:
        cx, cy = rng.uniform(0, side, 2)
        w, h = rng.uniform(0.2, 1.0, 2) * largest
        box = (cx - w, cy - h, cx + w, cy + h)
        fill = tuple(colour.tolist())
        match rng.integers(3):
            case 0:
                draw.ellipse(box, fill=fill)
            case 1:
                draw.rectangle(box, fill=fill)
            case _:
                corners = rng.uniform(-largest, largest, (4, 2)) + np.array([cx, cy])
                draw.polygon([tuple(c) for c in corners.tolist()], fill=fill)
    return np.asarray(canvas) / 255


def _ramp(side: int, rng: np.random.Generator) -> FloatImage:
    u, v = _coordinates(side, rng)
    field = u if rng.random() < 0.5 else np.hypot(u - rng.uniform(0, 1), v - rng.uniform(0, 1))
    return _colourise((field - field.min()) / np.ptp(field), rng)


FAMILIES: tuple[Callable[[int, np.random.Generator], FloatImage], ...] = (
    _clouds,
    _stripes,
    _tiles,
    _cells,
    _clutter,
    _ramp,
)


def procedural_texture(side: int, rng: np.random.Generator) -> np.ndarray:
    """Draw one texture of a random family: (side, side, 3) uint8, a third of them with grain."""
    texture = FAMILIES[int(rng.integers(len(FAMILIES)))](side, rng)
    if rng.random() < 1 / 3:
        texture = texture + rng.normal(0, rng.uniform(0.02, 0.12), texture.shape)
    return (np.clip(texture, 0, 1) * 255).round().astype(np.uint8)
