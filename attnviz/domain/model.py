"""What is known of a loaded model."""

from __future__ import annotations

from dataclasses import dataclass, replace

from attnviz.domain.choices import Positions
from attnviz.domain.geometry import Size


@dataclass(frozen=True)
class ModelInfo:
    """What is known of a loaded model, read from the model itself.

    ``prefix`` = CLS token + distillation token + registers. ``weights`` says where the weights
    came from (hub name, file name, "random weights"); ``weights_sha256`` is of the file.
    ``classes``: of the classifier that came with the weights; 0 without one. ``shape``: of which
    known size a model is that only the shapes of its weights chose ("ViT-B/16"); empty where
    something names the model. ``statistics_assumed``: nothing says which ``mean`` and ``std`` the
    model was trained with. ``arithmetic``: what a pass computes in.
    ``pool_heads``: heads of its attention pooling, in which latent queries read the output tokens;
    0 without one.
    """

    name: str
    timm_name: str
    patch: int
    width: int
    depth: int
    heads: int
    prefix: int
    registers: int
    has_cls: bool
    native_size: Size
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    interpolation: str
    positions: Positions
    weights: str
    weights_sha256: str | None = None
    random_weights: bool = False
    classes: int = 0
    shape: str = ""
    statistics_assumed: bool = False
    arithmetic: str = ""
    pool_heads: int = 0

    @property
    def prefix_names(self) -> tuple[str, ...]:
        """In the order of the tokens: ``CLS``, ``dist.`` (distillation), ``R1``, ``R2``, ..."""
        others = self.prefix - self.registers - int(self.has_cls)
        registers = (f"R{number}" for number in range(1, self.registers + 1))
        return ("CLS",) * self.has_cls + ("dist.",) * max(others, 0) + tuple(registers)

    @property
    def title(self) -> str:
        """What figures call the model: its name, and its shape where that is all that chose it."""
        return f"{self.name}, shape of {self.shape}" if self.shape else self.name

    def with_statistics(
        self, mean: tuple[float, float, float] | None, std: tuple[float, float, float] | None
    ) -> ModelInfo:
        """The model as it is for images that a caller's own ``mean`` and ``std`` prepared."""
        if not self.statistics_assumed or mean is None or std is None:
            return self
        return replace(self, statistics_assumed=False)
