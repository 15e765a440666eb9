"""The figures that are kept as baselines: every kind, shape, width and scale at least once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attnviz.domain import Box, DrawStyle, Interpolation, Norm, Part, Rows, Scale, Size
from attnviz.figures import draw, draw_comparison, draw_distributions, draw_mean_scores
from attnviz.figures.evolve import draw_evolution, draw_frames
from attnviz.figures.registers import draw_registers
from attnviz.runs.mean_scores import MeanScores
from tests.figures import samples

DPI = 80
COLUMN = 3.35


def _square():
    return samples.image_of(samples.photograph("astronaut.jpg"), (14, 14), name="astronaut.jpg")


def _landscape(name="cat.jpg"):
    return samples.image_of(samples.photograph(), (14, 21), name=name)


def _portrait():
    pixels = samples.photograph("rocket.jpg", (0, 180, 426, 284))
    return samples.image_of(pixels, (21, 14), name="rocket.jpg")


def _night():
    pixels = (samples.photograph() * 0.08).astype("uint8")
    return samples.image_of(pixels, (14, 21), name="night.jpg")


def _cropped():
    region = Box(0.0, 75.5, 300.0, 375.5)
    return samples.image_of(samples.photograph(), (14, 14), region=region)


def _padded():
    region = Box(-75.5, 0.0, 375.5, 451.0)
    return samples.image_of(samples.photograph(), (14, 14), region=region)


def _overlapping():
    """Patches of 16 pixels every 4, so that the edges without a cell are wide."""
    image = samples.image_of(samples.photograph("astronaut.jpg"), (7, 7), patch=16)
    return replace(image, geometry=replace(image.geometry, stride=4))


def _tiny():
    return samples.image_of(samples.photograph(), (2, 2))


def _style(**changes):
    return DrawStyle(**({"dpi": DPI} | changes))


_TWELVE = samples.model_info(
    name="dinov2_vitb14_reg", heads=12, prefix=5, registers=4, native_size=Size(518, 518)
)
_QUARTERS = [(3, 5), (3, 15), (10, 5), (10, 15)]


def _heads(image, style, count=6, model=None, prefix=1, chosen=None, **options):
    grid = image.geometry.grid
    maps = samples.heads_maps(grid, count, prefix, chosen=chosen)
    return draw(maps, image, model or samples.model_info(), style, **options)


def _layers(image, style, layers=12, heads=6, model=None, **options):
    maps = samples.layers_maps(image.geometry.grid, layers, heads)
    return draw(maps, image, model or samples.model_info(), style, **options)


def _sinks(image, style, layers, heads, model=None):
    maps = samples.with_sinks(
        samples.layers_maps(image.geometry.grid, layers, heads, distance=False)
    )
    return draw(maps, image, model or samples.model_info(), style)


def _received(image, style, **made):
    """A matrix with what the tokens receive, as the command makes it."""
    maps = samples.matrix_maps(image.geometry.grid, **made)
    received = 0.4 + np.random.default_rng(0).random((len(maps.heads), maps.tokens))
    received[:, maps.tokens // 2] = 20
    return draw(
        replace(maps, received=received.astype(np.float32)), image, samples.model_info(), style
    )


def _rollout(image, style, depths=(11,)):
    maps = samples.rollout_maps(image.geometry.grid, depths)
    return draw(maps, image, samples.model_info(), style)


def _patch(image, style, cells, heads=6, **options):
    maps = samples.patch_maps(image.geometry.grid, cells, heads)
    return draw(maps, image, samples.model_info(heads=heads), style, **options)


def _score(image, style):
    maps = samples.score_maps(image.geometry.grid)
    return draw(maps, image, samples.model_info(), style)


def _discover(image, style, method="tokencut"):
    return draw(samples.discover_maps(image, method), image, samples.model_info(), style)


def _match(image, like, style, **options):
    return draw(samples.match_maps(image, like, **options), image, samples.model_info(), style)


def _energy(image, style):
    maps = samples.pruned_maps(image.geometry.grid, (0.4,)).steps[0]
    return draw(replace(maps, present=None), image, samples.model_info(), style)


def _pruning(image, style, ratios, **options):
    maps = samples.pruned_maps(image.geometry.grid, ratios, **options)
    return draw(maps, image, samples.model_info(), style)


def _relevance(image, style, model=None, prefix=1, **target):
    maps = samples.relevance_maps(image.geometry.grid, prefix, **target)
    return draw(maps, image, model or samples.model_info(), style)


def _faithful(image, style, names=None, **options):
    given = {} if names is None else {"names": names}
    maps = samples.faithful_maps(image.geometry.grid, **given, **options)
    return draw(maps, image, samples.model_info(), style)


def _mean_scores(width, images=50):
    """Means of made-up images, as ``faithful --summary`` draws them."""
    names = ("mean", "head:3", "rollout", "relevance", "random")
    rows = samples.faithful_maps((14, 21), names).rows()
    collected = MeanScores(samples.model_info())
    rng = np.random.default_rng(1)
    for _ in range(images):
        noise = rng.normal(scale=0.05)
        collected.add([
            {k: v if v is None or k == "map" else v + noise for k, v in row.items()} for row in rows
        ])  # fmt: skip
    return draw_mean_scores(collected.rows(), images, samples.model_info(), _style(width=width))


def _contribution(image, style):
    maps = samples.relevance_maps(image.geometry.grid, like=_square(), value=0.41)
    signed = 40 * maps.relevance
    signed[:, :8] *= -0.7
    made = replace(maps, relevance=signed, method="contribution")
    return draw(made, image, samples.model_info(), style)


def _features(image, style, cells, model=None, prefix=1, **options):
    maps = samples.features_maps(image.geometry.grid, cells, prefix, **options)
    return draw(maps, image, model or samples.model_info(), style)


def _models(style, *names):
    """One image under two models with different grids and heads."""
    fine = samples.model_info(heads=4)
    coarse = samples.model_info(name="an_untrained_vit", heads=3, patch=16, random_weights=True)
    small = samples.image_of(samples.photograph(), (7, 11), patch=16)
    rows = [
        samples.compared_row(("dino_vits8",), _landscape(), fine),
        samples.compared_row(("an_untrained_vit (random)",), small, coarse, seed=4),
    ]
    return draw_comparison([samples.only(row, *names) for row in rows], style)


def _images(style, *names):
    """Images of three shapes under one model."""
    model = samples.model_info(heads=2)
    rows = [
        samples.compared_row((image.name,), image, model, seed)
        for seed, image in enumerate((_landscape(), _square(), _portrait()))
    ]
    return draw_comparison([samples.only(row, *names) for row in rows], style)


def _matrix(image, style, heads=6, model=None, prefix=1, run=1, drawn=None, **options):
    maps = samples.matrix_maps(image.geometry.grid, heads, prefix, run=run, drawn=drawn)
    return draw(maps, image, model or samples.model_info(), style, **options)


def _qkv(image, style, heads=6, model=None, prefix=1, parts=(Part.KEY,)):
    maps = samples.qkv_maps(image.geometry.grid, heads, prefix, parts=parts)
    return draw(maps, image, model or samples.model_info(), style)


def _registers(images, count=10, **style):
    maps = samples.registers_maps(images, count=count)
    return draw_registers(maps, samples.model_info(), _style(**style))


def _evolve(image, checkpoints, count, width=7.0, rows=Rows.HEADS, mask=True, **style):
    maps = samples.evolution_maps(image.geometry.grid, checkpoints, count, rows, jaccard=mask)
    return draw_evolution(
        maps,
        image,
        samples.model_info(),
        _style(width=width, **({"scale": Scale.SHARED} | style)),
        mask=_disc(image) if mask else None,
        threshold=0.6,
    )


def _disc(image):
    high, wide = image.pixels.shape[:2]
    y, x = np.mgrid[:high, :wide]
    return (y - high / 2) ** 2 + (x - wide / 2) ** 2 < (high / 3) ** 2


def _frame():
    image = _landscape()
    maps = samples.evolution_maps(image.geometry.grid, 3, 4)
    return draw_frames(maps, image, samples.model_info(), _style(scale=Scale.SHARED))


def _summary(layers, heads, width=7.0):
    """Quantiles of entropy and distance of every head, as ``--summary`` draws them."""
    rng = np.random.default_rng(0)
    pairs = [(layer, head) for layer in range(layers) for head in range(heads)]
    distributions = {
        "entropy": {pair: np.sort(3 + 2.5 * rng.random(5)).astype(np.float32) for pair in pairs},
        "distance": {pair: np.sort(60 + 50 * rng.random(5)).astype(np.float32) for pair in pairs},
    }
    model = samples.model_info(depth=max(layers, 2), heads=heads)
    return draw_distributions(distributions, 1200, 5.69, model, _style(width=width))


_GIANT = samples.model_info(name="dinov2_vitg14", depth=40, heads=24, random_weights=True)

_POOLED = samples.model_info(
    name="vit_base_patch16_siglip_224", prefix=0, has_cls=False, patch=16, pool_heads=4
)

CASES = {
    "heads": lambda: _heads(_landscape(), _style()),
    "heads-column": lambda: _heads(_portrait(), _style(width=COLUMN)),
    "heads-twelve-masks": lambda: _heads(
        _square(), _style(scale=Scale.SHARED), 12, _TWELVE, 5, threshold=0.6
    ),
    "heads-one-bilinear": lambda: _heads(
        _padded(), _style(interpolation=Interpolation.BILINEAR), 1, chosen=(4,)
    ),
    "heads-night": lambda: _heads(_night(), _style(), 8),
    "heads-names": lambda: _heads(
        _landscape("50%_$x_$y^{2}_\u0378.png"), _style(width=COLUMN, scale=Scale.SHARED), 3
    ),
    "heads-pool": lambda: draw(
        samples.pooled_maps((14, 21)), _landscape(), _POOLED, _style(), threshold=0.5
    ),
    "layers": lambda: _layers(_landscape(), _style()),
    "layers-column": lambda: _layers(_square(), _style(width=COLUMN), 4),
    "layers-each-head-column": lambda: _layers(
        _portrait(), _style(width=COLUMN), 12, 12, each_head=True
    ),
    "layers-each-head": lambda: _layers(_portrait(), _style(), 4, 6, each_head=True),
    "layers-side-by-side": lambda: _layers(
        _portrait(), _style(scale=Scale.SHARED), 6, 4, each_head=True
    ),
    "layers-giant": lambda: _layers(_square(), _style(), 40, 24, _GIANT),
    "layers-sinks": lambda: _sinks(_landscape(), _style(), 12, 6),
    "layers-sinks-column": lambda: _sinks(_portrait(), _style(width=COLUMN), 3, 6),
    "layers-sinks-giant": lambda: _sinks(_square(), _style(), 40, 24, _GIANT),
    "rollout": lambda: _rollout(_landscape(), _style()),
    "rollout-depths": lambda: _rollout(_portrait(), _style(width=COLUMN), (3, 7, 11)),
    "patch": lambda: _patch(_landscape(), _style(), _QUARTERS),
    "patch-each-head": lambda: _patch(_landscape(), _style(), [(0, 20), (13, 0)], each_head=True),
    "patch-to": lambda: draw(
        samples.columns_of(samples.patch_maps((14, 21), _QUARTERS)),
        _landscape(),
        samples.model_info(),
        _style(),
    ),
    "patch-cropped": lambda: _patch(_cropped(), _style(width=COLUMN), [(7, 3)]),
    "features": lambda: _features(_landscape(), _style(), _QUARTERS),
    "features-foreground": lambda: _features(
        _portrait(), _style(width=COLUMN), [(7, 3)], _TWELVE, 5, foreground=True, threshold=150.0
    ),
    "features-shared": lambda: _features(
        _square(),
        _style(scale=Scale.SHARED, interpolation=Interpolation.BILINEAR),
        [(0, 13), (6, 6)],
        threshold=150.0,
    ),
    "compare-models": lambda: _models(
        _style(scale=Scale.SHARED), "mean", "heads", "rollout", "pca", "cosine@1,2"
    ),
    "compare-images": lambda: _images(
        _style(width=COLUMN, scale=Scale.SHARED), "mean", "rollout", "foreground"
    ),
    "compare-vectors": lambda: _models(
        _style(scale=Scale.SHARED), "head:2", "heads", "entropy", "k-pca", "k-norm"
    ),
    "compare-own-scale": lambda: _images(_style(), "heads", "rollout", "foreground"),
    "score": lambda: _score(_landscape(), _style()),
    "score-column": lambda: _score(_portrait(), _style(width=COLUMN, scale=Scale.SHARED)),
    "score-energy": lambda: _energy(_landscape(), _style()),
    "score-pruning": lambda: _pruning(_landscape(), _style(), (0.9,) * 4 + (0.7,) * 4 + (0.5,) * 4),
    "score-pruning-column": lambda: _pruning(
        _portrait(), _style(width=COLUMN, scale=Scale.SHARED), (0.7, 0.4), lfe=False
    ),
    "discover-lost": lambda: _discover(_landscape(), _style(), "lost"),
    "discover-column": lambda: _discover(_portrait(), _style(width=COLUMN)),
    "discover-spectral": lambda: _discover(_padded(), _style(scale=Scale.SHARED), "spectral"),
    "match": lambda: _match(_landscape(), _portrait(), _style()),
    "match-all": lambda: _match(_square(), _landscape(), _style(), pairs=150),
    "match-column": lambda: _match(
        _portrait(), _square(), _style(width=COLUMN), pairs=4, asked=True
    ),
    "relevance-like": lambda: _relevance(_landscape(), _style(), _TWELVE, 5, like=_portrait()),
    "relevance-like-column": lambda: _relevance(
        _portrait(), _style(width=COLUMN), like=_square(), method="gradient-rollout"
    ),
    "relevance-class": lambda: _relevance(
        _square(), _style(scale=Scale.SHARED), value=7.31, class_index=281, probability=0.874
    ),
    "faithful": lambda: _faithful(_landscape(), _style()),
    "faithful-column": lambda: _faithful(_square(), _style(width=COLUMN), ("mean", "random")),
    "faithful-chefer": lambda: _faithful(_portrait(), _style(), chefer=True, class_index=7),
    "faithful-summary": lambda: _mean_scores(7.0),
    "faithful-summary-column": lambda: _mean_scores(COLUMN, images=1),
    "relevance-contribution": lambda: _contribution(_landscape(), _style()),
    "matrix": lambda: _matrix(_landscape(), _style()),
    "matrix-received": lambda: _received(_landscape(), _style(), heads=1),
    "matrix-registers": lambda: _matrix(
        _square(), _style(scale=Scale.SHARED), 12, _TWELVE, 5, 2, (0, 11), norm=Norm.LINEAR
    ),
    "matrix-column": lambda: _matrix(_portrait(), _style(width=COLUMN), 3),
    "matrix-tiny": lambda: _matrix(_tiny(), _style(), 1),
    "qkv": lambda: _qkv(_landscape(), _style(), parts=(Part.QUERY, Part.VALUE)),
    "qkv-registers": lambda: _qkv(_square(), _style(scale=Scale.SHARED), 12, _TWELVE, 5),
    "qkv-column": lambda: _qkv(_portrait(), _style(width=COLUMN), 2),
    "qkv-tiny": lambda: _qkv(_tiny(), _style(), 1),
    "evolve": lambda: _evolve(_square(), 7, 4),
    "evolve-few": lambda: _evolve(_landscape(), 3, 6),
    "evolve-twelve": lambda: _evolve(_landscape(), 12, 6, mask=False, scale=Scale.PANEL),
    "evolve-column": lambda: _evolve(_portrait(), 7, 6, width=COLUMN),
    "evolve-layers": lambda: _evolve(_cropped(), 7, 12, rows=Rows.LAYERS),
    "evolve-frames": _frame,
    "registers": lambda: _registers((_square(), _landscape())),
    "registers-column": lambda: _registers((_portrait(),), count=1, width=COLUMN),
    "heads-stride": lambda: _heads(
        _overlapping(), _style(), 4, samples.model_info(heads=4, patch=16, stride=4), threshold=0.6
    ),
    "features-stride": lambda: _features(
        _overlapping(),
        _style(),
        [(3, 5), (20, 15)],
        samples.model_info(patch=16, stride=4),
        foreground=True,
    ),
    "summary": lambda: _summary(12, 6),
    "summary-column": lambda: _summary(1, 6, COLUMN),
}
