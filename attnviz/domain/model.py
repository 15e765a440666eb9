"""What is known of a loaded model."""

from __future__ import annotations

from dataclasses import dataclass, replace

from attnviz.domain.choices import Positions
from attnviz.domain.geometry import Size, grid_of


@dataclass(frozen=True)
class AddedRegisters:
    """Registers that are added to a model at test time: how many, and the neurons that feed them.

    ``neurons_sha256``: ``RegisterNeurons.digest``.
    """

    count: int
    neurons: int
    neurons_sha256: str

    def __str__(self) -> str:
        registers = (
            "1 test-time register" if self.count == 1 else f"{self.count} test-time registers"
        )
        neurons = "1 neuron" if self.neurons == 1 else f"{self.neurons} neurons"
        return f"{registers} ({neurons})"


@dataclass(frozen=True)
class ModelInfo:
    """What is known of a loaded model, read from the model itself.

    ``prefix`` = CLS token + distillation token + registers; ``registers`` counts trained ones and,
    after them, those of ``test_registers``. ``weights`` says where the weights
    came from (hub name, file name, "random weights"); ``weights_sha256`` is of the file.
    ``classes``: of the classifier that came with the weights; 0 without one. ``shape``: of which
    known size a model is that only the shapes of its weights chose ("ViT-B/16"); empty where
    something names the model. ``statistics_assumed``: nothing says which ``mean`` and ``std`` the
    model was trained with. ``arithmetic``: what a pass computes in. ``in_memory``: a module of the
    user's own, which no file names.
    ``stride``: the distance between patches that overlap, in pixels; None where they do not.
    ``checkpoint_key``: the entry of a training checkpoint that was loaded.
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
    checkpoint_key: str | None = None
    test_registers: AddedRegisters | None = None
    stride: int | None = None
    in_memory: bool = False
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

    @property
    def step(self) -> int:
        """The distance between the corners of neighbouring patches, in pixels."""
        return self.stride or self.patch

    def grid_of(self, size: Size) -> Size:
        """Rows and columns of patches of a model input."""
        return grid_of(size, self.patch, self.stride)

    @property
    def patches_text(self) -> str:
        """What the patches are: "8 px patches", or "8 px patches every 4 px"."""
        every = "" if self.stride is None else f" every {self.stride} px"
        return f"{self.patch} px patches{every}"

    @property
    def remarks(self) -> tuple[str, ...]:
        """What figures say beside the title: what was assumed, and what was added."""
        assumed = ("mean and std assumed",) if self.statistics_assumed else ()
        return assumed if self.test_registers is None else (*assumed, str(self.test_registers))

    @property
    def trained_registers(self) -> int:
        """The registers that belong to the weights."""
        return self.registers - (self.test_registers.count if self.test_registers else 0)

    def with_registers(self, added: AddedRegisters) -> ModelInfo:
        """The model with registers added at test time, behind the prefix tokens that it has."""
        return replace(
            self,
            prefix=self.prefix + added.count,
            registers=self.registers + added.count,
            test_registers=added,
        )

    def with_statistics(
        self, mean: tuple[float, float, float] | None, std: tuple[float, float, float] | None
    ) -> ModelInfo:
        """The model as it is for images that a caller's own ``mean`` and ``std`` prepared."""
        if not self.statistics_assumed or mean is None or std is None:
            return self
        return replace(self, statistics_assumed=False)
