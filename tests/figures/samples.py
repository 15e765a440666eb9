"""Synthetic maps over real photographs, for figures and their baselines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.ndimage import label

from attnviz.domain import (
    Baseline,
    Box,
    ComparedMap,
    ComparedRow,
    DiscoverMaps,
    EvolutionMaps,
    FaithfulMaps,
    FeaturesMaps,
    FigureImage,
    FitGeometry,
    HeadsMaps,
    LayersMaps,
    MapKind,
    MatchMaps,
    MatrixMaps,
    ModelInfo,
    Part,
    PatchMaps,
    Positions,
    QkvMaps,
    Query,
    RelevanceMaps,
    RolloutMaps,
    RolloutOptions,
    Rows,
    ScoreMaps,
    Size,
)
from attnviz.domain.geometry import box_around
from attnviz.domain.kinds.faithful import Curves
from attnviz.domain.register_neurons import Neuron, RegisterNeurons
from attnviz.domain.registers import BeforeAfter, RegistersMaps, ShownImage

PHOTOGRAPHS = Path(__file__).parents[2] / "sample_images"


def registers_maps(images, depth=12, count=10) -> RegistersMaps:
    """Outliers in a corner and on an edge, which a register takes over."""
    rng = np.random.default_rng(2)
    rise = np.linspace(3, 14, depth).astype(np.float32)
    spike = rise + np.where(np.arange(depth) > 4, 110, 0).astype(np.float32)
    mass = np.where(np.arange(depth) > 4, 0.5, 0.02).astype(np.float32)
    shown = []
    for image in images:
        grid = image.geometry.grid
        norm = rng.normal(14, 2, grid).clip(5).astype(np.float32)
        outliers = np.zeros(grid, bool)
        outliers[0, 0] = outliers[1, -2:] = True
        attention = rows(1, grid, seed=3)[0][0]
        spots = attention + 6 * attention.max() * outliers
        before = np.where(outliers, 120, norm).astype(np.float32)
        spots = (spots / spots.sum()).astype(np.float32)
        shown.append(
            ShownImage(image, BeforeAfter(spots, attention), BeforeAfter(before, norm), outliers)
        )
    norms = BeforeAfter(*(np.concatenate([getattr(each.norm, when).ravel() for each in shown])
                          for when in ("before", "after")))  # fmt: skip
    found = tuple(Neuron(5 - n % 3, 37 * n + 11, 8.0 / (n + 1)) for n in range(count))
    total = sum(int(each.outliers.sum()) for each in shown)
    neurons = RegisterNeurons(
        "sample", "0" * 64, None, depth - 1, 60.0, 5, len(shown), total, found
    )
    return RegistersMaps(
        neurons=neurons,
        count=1,
        images=len(shown),
        median_norm=BeforeAfter(rise, 0.95 * rise),
        largest_norm=BeforeAfter(spike, 1.4 * rise),
        cls_norm=BeforeAfter(1.1 * rise, 1.15 * rise),
        register_norm=0.9 * spike,
        patch_norm=norms,
        outlier_mass=BeforeAfter(mass, 0.02 * np.ones_like(mass)),
        register_mass=0.95 * mass,
        shown=tuple(shown),
    )


def model_info(**changes) -> ModelInfo:
    known = {
        "name": "dino_vits8",
        "timm_name": "vit_small_patch8_224.dino",
        "patch": 8,
        "width": 384,
        "depth": 12,
        "heads": 6,
        "prefix": 1,
        "registers": 0,
        "has_cls": True,
        "native_size": Size(224, 224),
        "mean": (0.485, 0.456, 0.406),
        "std": (0.229, 0.224, 0.225),
        "interpolation": "bicubic",
        "positions": Positions.ORIGINAL,
        "weights": "hub",
    }
    return ModelInfo(**(known | changes))


def photograph(name="cat.jpg", crop=None) -> np.ndarray:
    """Pixels of a sample photograph. crop: (top, left, height, width)."""
    pixels = np.asarray(Image.open(PHOTOGRAPHS / name).convert("RGB"))
    if crop:
        top, left, height, width = crop
        pixels = pixels[top : top + height, left : left + width]
    return np.ascontiguousarray(pixels)


def image_of(pixels, grid, patch=8, name="cat.jpg", region=None) -> FigureImage:
    height, width = pixels.shape[:2]
    geometry = FitGeometry(
        Size(height, width),
        Size(grid[0] * patch, grid[1] * patch),
        patch,
        region or Box(0.0, 0.0, float(height), float(width)),
    )
    return FigureImage(pixels, geometry, name)


def rows(count, grid, prefix=1, seed=0, sharp=1.0):
    """Attention-like rows: blobs over a faint ground. Returns (n, gh, gw), (n, P), entropy (n,)."""
    rng = np.random.default_rng(seed)
    high, wide = grid
    y, x = np.mgrid[0:high, 0:wide]
    y, x = (y + 0.5) / high, (x + 0.5) / wide
    maps = np.empty((count, high, wide))
    for index in range(count):
        ground = 0.03 * rng.random((high, wide)) ** 3 + 0.01
        for _ in range(3):
            cy, cx, size = rng.random(), rng.random(), 0.06 + 0.14 * rng.random()
            power = rng.random() * np.exp(-((y - cy) ** 2 + (x - cx) ** 2) / (2 * size**2))
            ground += power * (0.6 + 0.8 * rng.random((high, wide)))
        maps[index] = ground**sharp
    rest = 0.02 + 0.2 * rng.random((count, prefix)) / max(prefix, 1)
    maps *= ((1 - rest.sum(axis=1)) / maps.sum(axis=(1, 2)))[:, None, None]
    both = np.concatenate([rest, maps.reshape(count, -1)], axis=1)
    entropy = -(both * np.log(both)).sum(axis=1)
    return maps.astype(np.float32), rest.astype(np.float32), entropy.astype(np.float32)


def heads_maps(grid, heads=6, prefix=1, seed=0, chosen=None) -> HeadsMaps:
    attention, rest, entropy = rows(heads, grid, prefix, seed)
    chosen = tuple(range(heads)) if chosen is None else chosen
    return HeadsMaps(attention, rest, entropy, None, 11, chosen)


def pooled_maps(grid, heads=4, latents=2, prefix=0) -> HeadsMaps:
    """Maps of a pooling head with several latent queries."""
    attention, rest, entropy = rows(heads * latents, grid, prefix)
    of = tuple(latent for latent in range(latents) for _ in range(heads))
    chosen = tuple(range(heads)) * latents
    return HeadsMaps(
        attention, rest, entropy, None, 12, chosen, query=Query.POOL,
        latents=of if latents > 1 else None,
    )  # fmt: skip


def layers_maps(grid, layers=12, heads=6, prefix=1, seed=0, *, distance=True) -> LayersMaps:
    attention, rest, entropy = rows(layers * heads, grid, prefix, seed)
    rng = np.random.default_rng(seed)
    depth = np.linspace(0, 1, layers)[:, None]
    reach = 30 + 70 * np.sqrt(depth) + 12 * rng.random((layers, heads))
    both = (layers, heads)
    return LayersMaps(
        attention.reshape(*both, *grid),
        rest.reshape(*both, prefix),
        entropy.reshape(both),
        reach.astype(np.float32) if distance else None,
        tuple(range(layers)),
        tuple(range(heads)),
    )


def with_sinks(maps: LayersMaps) -> LayersMaps:
    """The maps of some layers with one token that receives more and more, at a short value."""
    layers, heads, _, _ = maps.attention.shape
    rng = np.random.default_rng(1)
    received = 0.5 + rng.random((layers, heads, maps.tokens))
    depth = np.arange(layers)[:, None] * (1 + np.arange(heads) / heads)
    received[:, :, maps.tokens // 3] += 0.4 * depth**2
    received *= maps.tokens / received.sum(axis=-1, keepdims=True)
    norms = 2 + rng.random((layers, heads, maps.tokens))
    norms[:, :, maps.tokens // 3] /= 1 + depth / 3
    return replace(maps, received=received.astype(np.float32), value_norms=norms.astype(np.float32))


def columns_of(maps: PatchMaps) -> PatchMaps:
    """The same maps as what looks at the patches."""
    received = 5 * maps.attention.sum(axis=(2, 3)) + 5 * maps.prefix.sum(axis=2)
    return replace(
        maps, attention=5 * maps.attention, prefix=5 * maps.prefix, entropy=None, received=received
    )


def rollout_maps(grid, depths=(11,), prefix=1, seed=0, options=None) -> RolloutMaps:
    maps, rest, _ = rows(len(depths) + 1, grid, prefix, seed)
    return RolloutMaps(
        maps[-2],
        rest[-2],
        maps[-1],
        options or RolloutOptions(),
        11,
        tuple(depths),
        maps[:-1].copy(),
        rest[:-1].copy(),
        tuple(range(6)),
    )


def patch_maps(grid, cells, heads=6, prefix=1, seed=0) -> PatchMaps:
    count = len(cells)
    attention, rest, entropy = rows(count * heads, grid, prefix, seed)
    both = (count, heads)
    return PatchMaps(
        attention.reshape(*both, *grid),
        rest.reshape(*both, prefix),
        entropy.reshape(both),
        np.array(cells, np.int64),
        11,
        tuple(range(heads)),
    )


def discover_maps(image, method="tokencut", seed=0) -> DiscoverMaps:
    """A blob of an object off the centre, with a rim of rough cells."""
    grid = image.geometry.grid
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[: grid.height, : grid.width]
    down, across = (y + 0.5) / grid.height - 0.55, (x + 0.5) / grid.width - 0.4
    field = 0.09 - 2.2 * down**2 - down * across - 1.4 * across**2
    field = (field + 0.02 * rng.standard_normal(grid)).astype(np.float32)
    labels = label(field > 0)[0]
    found = labels == np.bincount(labels[labels > 0]).argmax()
    place = divmod(int(np.where(found, field, -9).argmax()), grid.width)
    rows_, columns = np.nonzero(found)
    corners = (rows_.min(), columns.min()), (rows_.max(), columns.max())
    known = {"mask": found, "seed": place, "box": box_around(image.geometry, *corners)}
    if method == "lost":
        degree = np.rint((0.5 - field) * found.size).astype(np.int64).clip(0, found.size - 1)
        return DiscoverMaps(
            **known, method=method, layer=11, degree=degree, similarity=3000 * field
        )
    count = 5 if method == "spectral" else 1
    others = [np.cos(0.7 * n * x + 0.4 * y).astype(np.float32) * 0.02 for n in range(1, count)]
    vectors = np.stack([field * 0.1, *others]).astype(np.float32)
    values = np.linspace(0.31, 0.94, count, dtype=np.float32)
    return DiscoverMaps(**known, method=method, layer=11, eigenvectors=vectors, eigenvalues=values)


def match_maps(image, like, pairs=10, asked=False, seed=0) -> MatchMaps:
    rng = np.random.default_rng(seed)
    grid, other = image.geometry.grid, like.geometry.grid
    places = np.sort(rng.uniform(0.1, 0.9, (pairs, 2)), axis=0)
    cells = (places * grid).astype(np.int64)
    there = ((places + rng.normal(0, 0.07, places.shape)).clip(0, 0.99) * other).astype(np.int64)
    cosines = (1 - 0.08 * rng.gamma(3, 1, 40 + pairs)).astype(np.float32)
    mutual = np.ones(pairs, bool)
    mutual[1::2] = not asked
    xy = np.zeros((pairs, 2), np.float32)
    return MatchMaps(
        cells, there, xy, xy, cosines[:pairs], mutual, np.linspace(0.02, 0.001, pairs),
        cosines, np.ones(grid, np.float32), np.ones(other, np.float32), 9, like,
        threshold=0.6 if asked else None, asked=asked,
    )  # fmt: skip


def score_maps(grid, ratio=0.5, seed=0, prefix=1) -> ScoreMaps:
    maps, _, _ = rows(2, grid, 1, seed)
    first, second = maps[0] * 0.12, maps[1] * 0.3
    score = first + second
    rest = np.linspace(0.02, 0.01, prefix, dtype=np.float32)
    count = round(ratio * score.size)
    kept = np.zeros(score.size, bool)
    kept[np.argsort(-score.ravel(), kind="stable")[:count]] = True
    return ScoreMaps(score, first, second, kept.reshape(grid), ratio, 11, tuple(range(6)), rest)


def pruned_maps(grid, ratios=(0.9, 0.7, 0.5), *, lfe=True) -> ScoreMaps:
    """The steps of a pruning run of as many layers as there are ratios."""
    present, steps = np.ones(grid, bool), []
    for layer, ratio in enumerate(ratios):
        plain = score_maps(grid, ratio, seed=layer)
        energy = 1 + 0.4 * np.sin(np.arange(plain.score.size, dtype=np.float32) / 50).reshape(grid)
        terms = [np.where(present, term, np.nan) for term in (plain.cls_term, plain.patch_term)]
        energy = np.where(present, energy, np.nan) if lfe else None
        score = sum(terms) * (energy if lfe else np.float32(1))
        kept = np.zeros(score.size, bool)
        kept[np.argsort(-score.ravel(), kind="stable")[: round(ratio * score.size)]] = True
        steps.append(
            replace(plain, score=score, cls_term=terms[0], patch_term=terms[1],
                    kept=kept.reshape(grid), layer=layer, lfe=energy, present=present)
        )  # fmt: skip
        present = kept.reshape(grid)
    return replace(steps[-1], steps=tuple(steps))


def relevance_maps(grid, prefix=1, seed=0, **target) -> RelevanceMaps:
    maps, rest, _ = rows(1, grid, prefix, seed, sharp=2.0)
    return RelevanceMaps(
        0.03 * maps[0], 0.03 * rest[0], target.pop("value", 0.62), tuple(range(6)), **target
    )


def features_maps(grid, cells, prefix=1, seed=0, *, foreground=False, threshold=None):
    """Tokens that follow a blob in the middle, and a few of great length."""
    rng = np.random.default_rng(seed)
    high, wide = grid
    y, x = np.mgrid[0:high, 0:wide]
    away = np.hypot((y + 0.5) / high - 0.5, (x + 0.5) / wide - 0.5)
    first = (0.3 - away + 0.05 * rng.standard_normal(grid)).astype(np.float32)
    parts = np.stack([first, x / wide - 0.5, np.sin(6 * y / high) / 2], axis=-1)
    parts = (parts + 0.05 * rng.standard_normal(parts.shape)).astype(np.float32)
    mask = first > 0
    norm = (40 + 6 * rng.standard_normal(grid)).astype(np.float32)
    norm.ravel()[rng.choice(norm.size, 6, replace=False)] = 180 + 40 * rng.random(6)
    tokens = rng.standard_normal((prefix + high * wide, 8)).astype(np.float32)
    flat = parts.reshape(-1, 3) / np.linalg.norm(parts.reshape(-1, 3), axis=1, keepdims=True)
    places = [row * wide + column for row, column in cells]
    return FeaturesMaps(
        tokens=tokens,
        norm=norm,
        prefix_norm=np.linspace(52, 90, prefix).astype(np.float32),
        components=np.where(mask[..., None], parts, 0) if foreground else parts,
        explained=np.array([0.31, 0.12, 0.07], np.float32),
        similarity=(flat[places] @ flat.T).reshape(-1, *grid).astype(np.float32),
        cells=np.array(cells, np.int64).reshape(-1, 2),
        layer=None,
        foreground=mask if foreground else None,
        first=first if foreground else None,
        outlier_threshold=threshold,
    )


def compared_row(title, image, model, seed=0) -> ComparedRow:
    grid = image.geometry.grid
    maps, _, _ = rows(model.heads + 1, grid, 1, seed)
    features = features_maps(grid, [(1, 2)], seed=seed, foreground=True)
    whole = features_maps(grid, [(1, 2)], seed=seed)
    last = model.depth - 1
    vectors = qkv_maps(grid, model.heads, parts=(Part.KEY,), seed=seed)
    entropy = (4.9 - maps[:1] / maps.max()).astype(np.float32)
    return ComparedRow(
        title,
        f"{model.name} (random)" if model.random_weights else model.name,
        model,
        image,
        {
            "mean": ComparedMap(MapKind.MEAN, maps[:-1].mean(axis=0, keepdims=True), layer=last),
            "heads": ComparedMap(MapKind.HEADS, maps[:-1], layer=last),
            "head:2": ComparedMap(MapKind.HEAD, maps[2:3], layer=last),
            "rollout": ComparedMap(MapKind.ROLLOUT, maps[-1:], rollout=RolloutOptions()),
            "pca": ComparedMap(MapKind.PCA, whole.components),
            "foreground": ComparedMap(MapKind.FOREGROUND, features.components, features.foreground),
            "cosine@1,2": ComparedMap(MapKind.COSINE, whole.similarity, cell=(1, 2)),
            "entropy": ComparedMap(MapKind.ENTROPY, entropy, layer=last),
            "k-pca": ComparedMap(MapKind.KEY_PCA, vectors.joint_components[0], layer=last),
            "k-norm": ComparedMap(MapKind.KEY_NORM, vectors.joint_norms, layer=last),
        },
    )


def only(row, *names) -> ComparedRow:
    """The row with some of its maps."""
    return replace(row, maps={name: row.maps[name] for name in names})


def matrix_maps(grid, heads=6, prefix=1, seed=0, drawn=None, run=1) -> MatrixMaps:
    """Matrices that look near and at a few tokens. run: patches of a row in one drawn block."""
    rng = np.random.default_rng(seed)
    high, wide = grid
    tokens = prefix + high * wide
    place = np.stack(np.divmod(np.arange(high * wide), wide), axis=1).astype(float)
    apart = np.linalg.norm(place[:, None] - place[None], axis=2)
    logits = np.empty((heads, tokens, tokens))
    for head in range(heads):
        liked = 1.2 * rng.standard_normal(tokens)
        logits[head] = liked + 0.4 * rng.standard_normal((tokens, tokens)) - 1 + 0.4 * head
        logits[head, prefix:, prefix:] += 4 * np.exp(-apart / (1 + head))
    weights = np.exp(logits - logits.max(axis=2, keepdims=True))
    weights /= weights.sum(axis=2, keepdims=True)
    starts = prefix + np.arange(high)[:, None] * wide + np.arange(0, wide, run)
    edges = np.concatenate([np.arange(prefix), starts.ravel(), [tokens]])
    sizes = np.diff(edges)
    cells = [
        np.add.reduceat(np.add.reduceat(each, edges[:-1], axis=1), edges[:-1], axis=2)
        / np.outer(sizes, sizes)
        for each in (logits, weights)
    ]
    drawn = tuple(range(min(heads, 4))) if drawn is None else drawn
    ends = np.stack([logits.min(axis=(1, 2)), logits.max(axis=(1, 2))], axis=1)
    return MatrixMaps(
        *(each[list(drawn)].astype(np.float32) for each in cells),
        *(each.mean(axis=0).astype(np.float32) for each in cells),
        edges.astype(np.int64),
        -(weights * np.log(weights)).sum(axis=2).astype(np.float32),
        weights[:, prefix:, 0].reshape(heads, *grid).astype(np.float32) if prefix else None,
        ends.astype(np.float32),
        Size(*grid),
        11,
        tuple(range(heads)),
        drawn,
    )


def qkv_maps(grid, heads=6, prefix=1, width=64, parts=tuple(Part), seed=0) -> QkvMaps:
    """Smooth components over the image, and vectors with a few strong columns."""
    rng = np.random.default_rng(seed)
    high, wide = grid
    both, tokens = (len(parts), heads), prefix + high * wide
    y, x = np.mgrid[0:high, 0:wide] / np.array([high, wide])[:, None, None]
    waves = 6 * rng.random((*both, 3, 3)) - 3
    shares = np.sort(rng.dirichlet([2, 1, 1, 3], both)[..., :3], axis=-1)[..., ::-1]
    components = np.sin(
        waves[..., None, None, :, 0]
        + waves[..., None, None, :, 1] * y[..., None]
        + waves[..., None, None, :, 2] * x[..., None]
    ) + 0.2 * rng.standard_normal((*both, high, wide, 3))
    vectors = rng.standard_normal((*both, tokens, width)) * 0.5
    vectors += 2 * rng.standard_normal((*both, 1, width)) ** 3 * 0.2
    vectors[:, :, :prefix] *= 3
    vectors = vectors.astype(np.float32)
    return QkvMaps(
        vectors,
        np.linalg.norm(vectors, axis=3),
        components.astype(np.float32),
        shares.astype(np.float32),
        components.mean(axis=1).astype(np.float32),
        shares.mean(axis=1).astype(np.float32),
        11,
        parts,
        tuple(range(heads)),
    )


def faithful_maps(
    grid, names=("mean", "head:3", "rollout", "relevance"), *, chefer=False, class_index=None
) -> FaithfulMaps:
    """Curves that fall the faster, the earlier a map is named; random orders in between."""
    rng = np.random.default_rng(7)
    count, steps = len(names), np.arange(1, 10) / 10 if chefer else np.arange(21) / 20
    power = np.linspace(5, 2, count)[:, None]

    def curves(rising: bool) -> Curves:
        x = steps if rising else 1 - steps
        random = x ** (0.9 + 0.25 * rng.random((10, 1)))
        parts = (
            (1 - (1 - x) ** power, x**power, random)
            if rising
            else (x**power, 1 - (1 - x) ** power, random)
        )
        return Curves(*((0.1 + 0.9 * each).astype(np.float32) for each in parts))

    return FaithfulMaps(
        names=names,
        maps=rows(count, grid)[0],
        shares=steps.astype(np.float32),
        deletion=curves(False),
        insertion=None if chefer else curves(True),
        influence=rng.random((count, 10)).astype(np.float32),
        saco=np.linspace(0.8, 0.1, count).astype(np.float32),
        value=1.0 if class_index is None else 0.83,
        layer=11,
        baselines=(Baseline.BLACK, Baseline.BLACK) if chefer else (Baseline.MEAN, Baseline.BLUR),
        class_index=class_index,
        chefer=chefer,
    )


def evolution_maps(grid, checkpoints=7, count=4, kind=Rows.HEADS, *, jaccard=True) -> EvolutionMaps:
    """The same blobs, sharper with every step."""
    stages = np.linspace(0.1, 1.4, checkpoints)
    parts = [rows(count, grid, sharp=float(stage)) for stage in stages]
    attention, rest, entropy = (np.stack(each) for each in zip(*parts, strict=True))
    reached = np.linspace(0.1, 0.7, checkpoints)[:, None] * np.linspace(0.6, 1, count)
    steps = tuple(500 * number for number in range(1, checkpoints + 1))
    return EvolutionMaps(
        attention=attention,
        prefix=rest,
        entropy=entropy,
        jaccard=reached.astype(np.float32) if jaccard else None,
        rows=kind,
        indices=tuple(range(count)),
        heads=tuple(range(6)),
        layer=11 if kind is Rows.HEADS else None,
        names=tuple(f"step {step}" for step in steps),
        steps=steps,
    )
