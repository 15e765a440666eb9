"""Train the demo weights by DINO self-distillation, or the supervised model of the same size.

The student sees two global and a few local views, the teacher the global ones; each view shows
the same object in another pose on another background, so that the object is all they share. The
teacher is the moving average of the student and is what ships (Caron et al. 2021, algorithm 1).
Every step draws from a generator seeded with its own number, so that an interrupted run goes on
from its last checkpoint to the same end.
"""

from __future__ import annotations

import argparse
import copy
import math
import time
from dataclasses import dataclass, fields, replace
from pathlib import Path

import torch
from banks import TRAIN_TEXTURES, Banks, halve, load_banks
from distil import DinoHead, DropHead, LogitCeiling, Network, Targets, matched
from evaluate import judge, summary
from model import build_vit, save_weights
from scenes import (
    GLOBAL_VIEW,
    LOCAL_VIEW,
    compose,
    judged_scenes,
    normalise,
)
from timm.layers import PatchDropout
from torch import nn
from torch.nn import functional

CHECKPOINT_EVERY = 100
JUDGE_EVERY = 50


@dataclass(frozen=True)
class Recipe:
    """The numbers of one training run; one batch is ``batch`` objects."""

    method: str = "dino"
    steps: int = 800
    batch: int = 64
    global_side: int = 64
    local_side: int = 32
    locals: int = 3
    vivid: bool = False
    hue: float = 0.3
    learning_rate: float = 7e-4
    final_learning_rate: float = 1e-5
    warmup: int = 50
    weight_decay: float = 0.2
    clip: float = 1.0
    drop: float = 0.6
    outputs: int = 1024
    student_temperature: float = 0.1
    teacher_temperature: float = 0.04
    teacher_momentum: float = 0.992
    ceiling: float = 4.0
    ceiling_weight: float = 1.0
    drop_heads: float = 0.5
    seed: int = 0


def cosine(start: float, end: float, progress: float) -> float:
    """Go from ``start`` to ``end`` along half a cosine while ``progress`` goes from 0 to 1."""
    return end + (start - end) * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))


def learning_rate(recipe: Recipe, step: int) -> float:
    """Linear warm-up, then cosine decay."""
    if step < recipe.warmup:
        return recipe.learning_rate * (step + 1) / recipe.warmup
    progress = (step - recipe.warmup) / (recipe.steps - recipe.warmup)
    return cosine(recipe.learning_rate, recipe.final_learning_rate, progress)


class Run:
    """The state of one training run, and its steps."""

    def __init__(self, recipe: Recipe, banks: Banks) -> None:
        torch.manual_seed(recipe.seed)
        self.recipe = recipe
        small = halve(banks.glyphs)
        self.global_banks = Banks(small, banks.textures)
        self.local_banks = Banks(small, halve(banks.textures))
        self.objects = small.shape[0]
        self.wide = replace(GLOBAL_VIEW, hue=recipe.hue, vivid=recipe.vivid)
        self.near = replace(LOCAL_VIEW, hue=recipe.hue, vivid=recipe.vivid)
        width = build_vit().embed_dim
        dino = recipe.method == "dino"
        head = DinoHead(width, recipe.outputs) if dino else nn.Linear(width, self.objects)
        self.student = Network(head)
        self.teacher = copy.deepcopy(self.student).requires_grad_(requires_grad=False)
        self.dropping = PatchDropout(recipe.drop, num_prefix_tokens=1)
        decayed = [p for p in self.student.parameters() if p.ndim > 1]
        others = [p for p in self.student.parameters() if p.ndim <= 1]
        self.optimiser = torch.optim.AdamW(
            [
                {"params": decayed, "weight_decay": recipe.weight_decay},
                {"params": others, "weight_decay": 0.0},
            ]
        )
        self.targets = Targets(recipe.outputs, recipe.teacher_temperature)
        DropHead(self.student.backbone, recipe.drop_heads)
        self.ceiling = LogitCeiling(self.student.backbone, recipe.ceiling)
        self.step = 0

    def state(self) -> dict[str, object]:
        """Everything that a later process needs to go on."""
        return {
            "student": self.student.state_dict(),
            "teacher": self.teacher.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "centre": self.targets.centre,
            "step": self.step,
        }

    def restore(self, file: Path) -> None:
        """Go on from a checkpoint of the same recipe."""
        stored = torch.load(file, weights_only=True)
        self.student.load_state_dict(stored["student"])
        self.teacher.load_state_dict(stored["teacher"])
        self.optimiser.load_state_dict(stored["optimiser"])
        self.targets.centre = stored["centre"]
        self.step = stored["step"]

    def advance(self) -> dict[str, float]:
        """One step: loss, gradient, update of student and teacher. Returns what to log."""
        seed = self.recipe.seed * 1_000_003 + self.step
        generator = torch.Generator().manual_seed(seed)
        torch.manual_seed(seed)  # for the choice of dropped patches
        objects = torch.randint(self.objects, (self.recipe.batch,), generator=generator)
        loss_of = self._dino_loss if self.recipe.method == "dino" else self._supervised_loss
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(self.recipe, self.step)
        loss, log = loss_of(objects, generator)
        excess = self.ceiling.excess()
        log["excess"] = excess.item()
        loss = loss + self.recipe.ceiling_weight * excess
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.student.parameters(), self.recipe.clip)
        self.optimiser.step()
        self._follow()
        self.step += 1
        return {"loss": loss.item(), "gradient": norm.item(), **log}

    def _dino_loss(
        self, objects: torch.Tensor, generator: torch.Generator
    ) -> tuple[torch.Tensor, dict[str, float]]:
        r = self.recipe
        wide = torch.cat(
            [
                compose(self.global_banks, objects, self.wide, r.global_side, generator)[0]
                for _ in range(2)
            ]
        )  # (2B, 3, h, w)
        views = [normalise(wide)]
        if r.locals:
            near = compose(
                self.local_banks, objects.repeat(r.locals), self.near, r.local_side, generator
            )[0]
            views.append(normalise(near))  # (locals * B, 3, h, w)
        with torch.no_grad():
            seen = self.teacher(views[0])  # (2B, K)
            targets = self.targets(seen)
            log = {
                "entropy": -torch.xlogy(targets, targets).sum(dim=-1).mean().item(),
                "matched": matched(*seen.chunk(2)),
            }
        targets = targets.chunk(2)
        self.student.backbone.patch_drop = self.dropping  # of the global views, views[0]
        outputs = [self.student(views[0])]
        self.student.backbone.patch_drop = nn.Identity()
        outputs += [self.student(view) for view in views[1:]]
        logits = torch.cat(outputs).chunk(2 + r.locals)
        pairs = [
            -(targets[t] * (logits[s] / r.student_temperature).log_softmax(dim=-1)).sum(-1).mean()
            for t in range(2)
            for s in range(len(logits))
            if s != t
        ]
        return torch.stack(pairs).mean(), log

    def _supervised_loss(
        self, objects: torch.Tensor, generator: torch.Generator
    ) -> tuple[torch.Tensor, dict[str, float]]:
        view, _ = compose(self.global_banks, objects, self.wide, self.recipe.global_side, generator)
        logits = self.student(normalise(view))
        right = (logits.argmax(dim=-1) == objects).float().mean().item()
        loss = functional.cross_entropy(logits, objects, label_smoothing=0.1)
        return loss, {"right": right}

    @torch.no_grad()
    def _follow(self) -> None:
        """Move the teacher towards the student; its momentum grows to 1."""
        momentum = cosine(self.recipe.teacher_momentum, 1.0, self.step / self.recipe.steps)
        for slow, fast in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
            slow.lerp_(fast, 1 - momentum)


def train(recipe: Recipe, out: Path, cache: Path, stop: int) -> None:
    """Run to step ``stop``; leave checkpoints, scores and weights along the way.

    The scores are of training objects, so that held-out ones need not choose a step.
    """
    out.mkdir(parents=True, exist_ok=True)
    banks = load_banks(held_out=False, textures=TRAIN_TEXTURES, cache=cache)
    run = Run(recipe, banks)
    images, masks = judged_scenes(banks, count=200, side=96, seed=11)
    checkpoint = out / "checkpoint.pt"
    if checkpoint.exists():
        run.restore(checkpoint)
    started, first = time.monotonic(), run.step
    last = min(stop, recipe.steps)
    while run.step < last:
        log = run.advance()
        if run.step % 20 == 0:
            pace = (time.monotonic() - started) / (run.step - first)
            numbers = "  ".join(f"{name} {value:.4f}" for name, value in log.items())
            print(f"{run.step:5d}  {numbers}  {pace:.2f} s/step", flush=True)
        if run.step % JUDGE_EVERY == 0 or run.step == last:
            backbone = run.teacher.backbone if recipe.method == "dino" else run.student.backbone
            print(f"{run.step:5d}  {summary(judge(backbone, images, masks))}", flush=True)
            save_weights(backbone, out / f"step{run.step:05d}.safetensors", source=recipe.method)
        if run.step % CHECKPOINT_EVERY == 0 or run.step == last:
            torch.save(run.state(), checkpoint.with_suffix(".part"))
            checkpoint.with_suffix(".part").replace(checkpoint)


def main() -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="folder for checkpoints and weights")
    parser.add_argument("--cache", type=Path, help="folder for rendered banks; default: OUT/cache")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--stop", type=int, help="pause after this step; default: the last")
    parser.add_argument("--vivid", action="store_true", help="loud backgrounds")
    for field in fields(Recipe):
        if field.name not in {"method", "vivid"}:
            option = f"--{field.name.replace('_', '-')}"
            parser.add_argument(option, type=type(field.default), default=field.default)
    parser.add_argument("--method", choices=("dino", "supervised"), default="dino")
    options = vars(parser.parse_args())
    out, cache, stop = (options.pop(name) for name in ("out", "cache", "stop"))
    torch.set_num_threads(options.pop("threads"))
    recipe = Recipe(**options)
    train(recipe, out, cache or out / "cache", recipe.steps if stop is None else stop)


if __name__ == "__main__":
    main()
