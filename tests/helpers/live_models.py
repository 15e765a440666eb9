"""Small models as they are during training: timm's, the original DINO and DINOv2, transformers'.

Each takes images (B, 3, 32, 32) with patches of 8, has dropout, and returns one vector per image.
``attention_rows`` computes the CLS row of the last layer independently.
"""

from __future__ import annotations

import math

import timm
import torch
from torch import nn

from tests.helpers import checkpoints

WIDTH, DEPTH, HEADS, PATCH, SIDE = 32, 3, 2, 8, 32
DROP = 0.2


class Attention(nn.Module):
    """Softmax attention written out, as in the original code: (tokens, attention)."""

    def __init__(self):
        super().__init__()
        self.num_heads = HEADS
        self.scale = (WIDTH // HEADS) ** -0.5
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.attn_drop = nn.Dropout(DROP)
        self.proj = nn.Linear(WIDTH, WIDTH)
        self.proj_drop = nn.Dropout(DROP)

    def forward(self, x):
        batch, count, _ = x.shape
        q, k, v = self.qkv(x).reshape(batch, count, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        attention = (q * self.scale @ k.transpose(-2, -1)).softmax(dim=-1)
        mixed = (self.attn_drop(attention) @ v).transpose(1, 2).reshape(batch, count, WIDTH)
        return self.proj_drop(self.proj(mixed)), attention


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(WIDTH, 4 * WIDTH)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


class LayerScale(nn.Module):
    def __init__(self):
        super().__init__()
        self.gamma = nn.Parameter(torch.full((WIDTH,), 0.5))

    def forward(self, x):
        return x * self.gamma


class Block(nn.Module):
    def __init__(self, eps, *, scaled):
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH, eps=eps)
        self.attn = Attention()
        self.norm2 = nn.LayerNorm(WIDTH, eps=eps)
        self.mlp = Mlp()
        if scaled:
            self.ls1, self.ls2 = LayerScale(), LayerScale()
        self.scaled = scaled

    def forward(self, x, *, return_attention=False):
        y, attention = self.attn(self.norm1(x))
        if return_attention:
            return attention
        x = x + (self.ls1(y) if self.scaled else y)
        y = self.mlp(self.norm2(x))
        return x + (self.ls2(y) if self.scaled else y)


class PatchEmbed(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Conv2d(3, WIDTH, PATCH, PATCH)

    def forward(self, x):
        return self.proj(x).flatten(2).transpose(1, 2)


class OriginalVit(nn.Module):
    """A ViT with the module names of DINO's code, or with ``registers`` of DINOv2's."""

    def __init__(self, *, registers=None, eps=1e-6):
        super().__init__()
        count = (SIDE // PATCH) ** 2
        second = registers is not None
        self.patch_embed = PatchEmbed()
        self.cls_token = nn.Parameter(0.5 * torch.randn(1, 1, WIDTH))
        self.pos_embed = nn.Parameter(0.5 * torch.randn(1, 1 + count, WIDTH))
        self.register_tokens = None
        if second:
            self.mask_token = nn.Parameter(torch.zeros(1, WIDTH))
            if registers:
                self.register_tokens = nn.Parameter(0.5 * torch.randn(1, registers, WIDTH))
        self.blocks = nn.ModuleList(Block(eps, scaled=second) for _ in range(DEPTH))
        self.norm = nn.LayerNorm(WIDTH, eps=eps)
        for block in self.blocks:
            nn.init.normal_(block.attn.qkv.weight, std=0.4)

    def tokens(self, x):
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), self.patch_embed(x)], dim=1)
        x = x + self.pos_embed
        if self.register_tokens is None:
            return x
        registers = self.register_tokens.expand(len(x), -1, -1)
        return torch.cat([x[:, :1], registers, x[:, 1:]], dim=1)

    def forward(self, x):
        x = self.tokens(x)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)[:, 0]

    def get_last_selfattention(self, x):
        x = self.tokens(x)
        for block in self.blocks[:-1]:
            x = block(x)
        return self.blocks[-1](x, return_attention=True)


def timm_vit(**more):
    """Built by hand with timm's class: no name, no config, and one input size."""
    model = timm.models.VisionTransformer(
        **{
            "img_size": SIDE, "patch_size": PATCH, "embed_dim": WIDTH, "depth": DEPTH,
            "num_heads": HEADS, "num_classes": 0, "pos_drop_rate": DROP, "proj_drop_rate": DROP,
            "attn_drop_rate": DROP, "drop_path_rate": DROP,
        } | more
    )  # fmt: skip
    for block in model.blocks:
        nn.init.normal_(block.attn.qkv.weight, std=0.4)
    return model


class Pooled(nn.Module):
    """A transformers model in a wrapper, as people train it; returns (B, width)."""

    def __init__(self, kind):
        super().__init__()
        import transformers

        config = {
            "hidden_size": WIDTH, "num_hidden_layers": DEPTH, "num_attention_heads": HEADS,
            "image_size": SIDE, "patch_size": PATCH, "hidden_dropout_prob": DROP,
            "attention_probs_dropout_prob": DROP, "attn_implementation": "eager",
        }  # fmt: skip
        if kind == "vit":
            made = transformers.ViTConfig(intermediate_size=4 * WIDTH, **config)
            self.vit = transformers.ViTModel(made, add_pooling_layer=False)
        else:
            self.vit = transformers.Dinov2Model(transformers.Dinov2Config(**config))
        checkpoints.randomise(self.vit)

    def forward(self, x):
        return self.vit(pixel_values=x).last_hidden_state[:, 0]


KINDS = {
    "timm": timm_vit,
    "dino": OriginalVit,
    "dinov2": lambda: OriginalVit(registers=0),
    "dinov2-registers": lambda: OriginalVit(registers=2),
    "hf-vit": lambda: Pooled("vit"),
    "hf-dinov2": lambda: Pooled("dinov2"),
}


def make(kind, seed=0):
    """A model of a kind in training mode, with the same weights on every call."""
    torch.manual_seed(seed)
    return KINDS[kind]().train()


@torch.no_grad()
def attention_rows(model, batch):
    """The CLS rows of the last layer, (B, H, N), by the model's own code in eval mode."""
    if isinstance(model, OriginalVit):
        return model.get_last_selfattention(batch)[:, :, 0]
    if isinstance(model, Pooled):
        # ViT takes other sizes only on request, Dinov2 always does.
        sizes = {"interpolate_pos_encoding": True} if hasattr(model.vit, "pooler") else {}
        output = model.vit(pixel_values=batch, output_attentions=True, **sizes)
        return output.attentions[-1][:, :, 0]
    if batch.shape[-1] != SIDE:
        model.set_input_size(img_size=batch.shape[-1])
    x = model.norm_pre(model.patch_drop(model._pos_embed(model.patch_embed(batch))))
    for block in model.blocks[:-1]:
        x = block(x)
    last = model.blocks[-1]
    joined = last.attn.qkv(last.norm1(x)).reshape(*x.shape[:2], 3, HEADS, -1)
    q, k, _ = joined.permute(2, 0, 3, 1, 4)
    logits = q[:, :, :1] @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # B, H, 1, N
    return logits.softmax(dim=-1)[:, :, 0]
