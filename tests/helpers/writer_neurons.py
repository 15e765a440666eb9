"""Small models with a planted register neuron, which writes a long vector into chosen patches."""

from __future__ import annotations

from dataclasses import replace

import torch

from attnviz.domain.register_neurons import Neuron, RegisterNeurons
from attnviz.models.backbone import Backbone
from tests.helpers.planted import tiny_vit

LAYER, NEURON, PATCH = 1, 21, 6
SHA256 = "ab" * 32


def batch_of(*seeds, size=32):
    """Images (B, 3, size, size)."""
    rows = [torch.randn(3, size, size, generator=torch.Generator().manual_seed(s)) for s in seeds]
    return torch.stack(rows)


def with_hash(backbone):
    """The model as one whose weights have a file."""
    info = replace(backbone.info, weights_sha256=SHA256, weights="tiny.pth", random_weights=False)
    return Backbone(backbone.module, info, offset=False)


def planted_model(batch, length=300.0, **options):
    """A model, where patch ``PATCH`` of every image of the batch becomes an outlier in ``LAYER``.

    Neuron ``NEURON`` answers to the mean of the MLP's inputs at that patch and to no other token,
    and adds a vector of about this length there.
    """
    backbone = tiny_vit(**options)
    mlp = backbone.module.blocks[LAYER].mlp
    inputs = []
    handle = mlp.fc1.register_forward_pre_hook(lambda _m, given: inputs.append(given[0]))
    backbone.run(batch)
    handle.remove()
    prefix = backbone.info.prefix
    wanted = inputs[0][:, prefix + PATCH]  # B, D
    others = inputs[0].clone()
    others[:, prefix + PATCH] = 0
    # A direction that tells these tokens from all others: ridge regression.
    tokens = torch.cat([wanted, others.flatten(0, 1)]).double()
    target = torch.zeros(len(tokens), dtype=torch.float64)
    target[: len(wanted)] = 1
    gram = tokens.T @ tokens + 1e-3 * torch.eye(tokens.shape[1], dtype=torch.float64)
    direction = torch.linalg.solve(gram, tokens.T @ target)
    along = tokens @ direction
    start = along[len(wanted) :].max()
    gain = 8 / (along[: len(wanted)].min() - start)
    write = torch.randn(backbone.info.width, generator=torch.Generator().manual_seed(9))
    hidden = mlp.fc2.in_features
    with torch.no_grad():
        mlp.fc1.weight[NEURON] = (gain * direction).float()
        mlp.fc1.bias[NEURON] = -(gain * start).float()
        if mlp.fc1.weight.shape[0] == 2 * hidden:  # gated: the other half is always open
            mlp.fc1.weight[hidden + NEURON] = 0
            mlp.fc1.bias[hidden + NEURON] = 1
        mlp.fc2.weight[:, NEURON] = length / 8 * write / write.norm()
    return with_hash(backbone)


def neuron_list(*places, **changes):
    """A list of these (layer, index) for models of ``with_hash``."""
    values = {
        "model": "tiny",
        "weights_sha256": SHA256,
        "checkpoint_key": None,
        "layer": 2,
        "threshold": 10.0,
        "max_layer": 2,
        "images": 1,
        "outliers": 1,
        "neurons": tuple(Neuron(*place, 1.0) for place in places),
    }
    return RegisterNeurons(**(values | changes))
