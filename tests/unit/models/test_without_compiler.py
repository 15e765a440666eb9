"""The stand-in for torch's compiler, with a small package in the place of torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

from attnviz.models import without_compiler as stand_in
from attnviz.models.without_compiler import without_compiler
from tests.helpers.versions import WITHOUT_SYMPY

PACKAGE = {
    "toolbox/__init__.py": "",
    "toolbox/compiler/__init__.py": """
from toolbox.compiler import config
loads = 1
looked_into = []

def disable(function=None, recursive=True, *, reason=None):
    if function is None:
        return lambda later: disable(later, recursive, reason=reason)
    def call(*arguments):
        looked_into.append((function.__name__, recursive, reason))
        return function(*arguments)
    return call

def more(): return "more"
""",
    "toolbox/compiler/config.py": "limit = 8",
    "toolbox/compiler/deep/__init__.py": "",
    "toolbox/compiler/deep/down.py": "depth = 2",
    "toolbox/compiler/utils.py": """
counters = {}
def is_compile_supported(device): return device == "cpu"
""",
    "modest.py": """
import toolbox.compiler
from toolbox.compiler import disable
from toolbox.compiler.utils import is_compile_supported

@disable
def plain(x): return x + 1

@disable(recursive=False, reason="why")
def with_options(x): return x + 2
""",
}


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """A package with a compiler, and libraries that use it; all of them gone afterwards."""
    for name, text in PACKAGE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(stand_in, "COMPILER", "toolbox.compiler")
    monkeypatch.setattr(stand_in, "process_is_ours", lambda: True)
    before, finders = set(sys.modules), list(sys.meta_path)
    yield tmp_path
    assert sys.meta_path == finders
    for name in set(sys.modules) - before:
        del sys.modules[name]


def compilers() -> list[str]:
    return sorted(name for name in sys.modules if name.startswith("toolbox.compiler"))


def test_imports_that_touch_the_compiler_do_not_load_it(packages):
    with without_compiler():
        import modest
    import toolbox

    assert compilers() == []
    assert "compiler" not in vars(toolbox)
    assert (modest.plain(1), modest.with_options(1)) == (2, 3)
    assert modest.plain.__name__ == "plain"
    assert compilers() == []


def test_afterwards_the_compiler_is_the_real_one(packages):
    with without_compiler():
        import modest
    import toolbox.compiler

    assert toolbox.compiler.loads == 1
    assert vars(toolbox)["compiler"] is sys.modules["toolbox.compiler"]
    assert modest.is_compile_supported("cpu") is True
    assert modest.is_compile_supported("abacus") is False
    # What was to be kept from the compiler is, with the options that were given.
    assert (modest.plain(1), modest.with_options(1)) == (2, 3)
    assert toolbox.compiler.looked_into == [("plain", True, None), ("with_options", False, "why")]
    assert modest.plain._torchdynamo_disable


@pytest.mark.parametrize(
    ("statement", "value"),
    [
        ("import toolbox.compiler.config\nvalue = toolbox.compiler.config.limit", 8),
        ("from toolbox.compiler import config\nvalue = config.limit", 8),
        ("import toolbox.compiler as c\nc.config.limit = 9\nvalue = c.config.limit", 9),
        ("from toolbox.compiler.deep import down\nvalue = down.depth", 2),
        ("import toolbox.compiler.deep.down as d\nvalue = d.depth", 2),
        ("from toolbox.compiler import more\nvalue = more()", "more"),
        ("from toolbox.compiler.utils import counters as value", {}),
        ("from toolbox.compiler.utils import is_compile_supported as f\nvalue = f('cpu')", True),
        ("import toolbox.compiler as c\nclass A: __name__ = 'A'\nvalue = c.disable(A)().__name__",
         "A"),
    ],
)  # fmt: skip
def test_who_asks_for_more_gets_the_real_one(packages, statement, value):
    (packages / "greedy.py").write_text(statement)
    with without_compiler():
        import modest  # noqa: F401
        from greedy import value as got
    import toolbox.compiler
    import toolbox.compiler.config

    assert got == value
    assert toolbox.compiler.loads == 1
    assert type(toolbox.compiler) is type(sys)
    spec = toolbox.compiler.config.__spec__
    assert spec.loader is toolbox.compiler.config.__loader__
    assert spec.origin == toolbox.compiler.config.__file__
    # One module under each name: what the library changed is changed for all.
    assert toolbox.compiler.config is sys.modules["toolbox.compiler.config"]


def test_who_kept_the_stand_in_has_the_real_one_later(packages):
    (packages / "keeper.py").write_text("import toolbox.compiler as compiler")
    with without_compiler():
        import keeper
    assert compilers() == []
    assert keeper.compiler.more() == "more"
    assert "toolbox.compiler.config" in compilers()


def test_a_look_through_all_modules_loads_nothing(packages):
    with without_compiler():
        import modest  # noqa: F401

        assert not any(
            hasattr(module, "__file__")
            for name, module in list(sys.modules.items())
            if name.startswith("toolbox.compiler")
        )
    assert compilers() == []


def test_what_the_compiler_lacks_is_an_ordinary_error(packages):
    (packages / "wrong.py").write_text("from toolbox.compiler import nothing_of_that_name")
    with pytest.raises(ImportError, match="nothing_of_that_name"), without_compiler():
        import wrong  # noqa: F401
    (packages / "wrong2.py").write_text("import toolbox.compiler.no_such_module")
    with pytest.raises(ModuleNotFoundError, match="no_such_module"), without_compiler():
        import wrong2  # noqa: F401


def test_a_compiler_that_is_loaded_stays(packages):
    import toolbox.compiler

    with without_compiler():
        assert sys.modules["toolbox.compiler"] is toolbox.compiler


def test_in_somebody_elses_process_nothing_is_replaced(packages, monkeypatch):
    monkeypatch.setattr(stand_in, "process_is_ours", lambda: False)
    with without_compiler():
        import modest  # noqa: F401
    assert "toolbox.compiler" in compilers()


REAL = """
import sys
from attnviz.domain.process import claim_process
claim_process()
from attnviz.models.build import import_timm
timm = import_timm()
import torch
import torchvision
compiler = {"sympy", "torch._dynamo", "torch._inductor"}
assert not compiler & set(sys.modules), compiler & set(sys.modules)
assert "_dynamo" not in vars(torch)

sizes = dict(img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=2, num_classes=3)
model = timm.create_model("vit_tiny_patch16_224", **sizes).eval()
batch = torch.rand(2, 3, 32, 32)
with torch.inference_mode():
    plain = model(batch)
assert not compiler & set(sys.modules), compiler & set(sys.modules)
for backend in {backends}:
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    with torch.inference_mode():
        difference = float((compiled(batch) - plain).abs().max())
    assert difference <= 1e-5, (backend, difference)
assert torch._dynamo.utils.counters["stats"]["unique_graphs"] >= 1
assert torchvision.ops.roi_align.__globals__["is_compile_supported"]("cpu")
print("compiled")
"""


@WITHOUT_SYMPY
@pytest.mark.parametrize(
    "backends",
    [
        ("eager", "aot_eager"),
        pytest.param(("inductor",), marks=pytest.mark.slow(reason="compiles C++")),
    ],
)
def test_timm_works_without_the_compiler_and_torch_compile_after_it(backends):
    """In a process of its own: this one has the compiler."""
    program = REAL.replace("{backends}", repr(backends))
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=280, check=False
    )
    assert run.stdout == "compiled\n", run.stderr
