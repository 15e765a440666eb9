"""Importing timm without torch's compiler, which no figure needs.

``import timm`` imports torchvision, and one line there imports ``torch._dynamo`` for a function
that asks whether ``torch.compile`` works on a device; a decorator of timm does the same to keep the
compiler away from some methods. That loads the whole compiler (torch._dynamo, torch._inductor,
sympy, triton), which takes longer than torch and timm together.

So while timm is imported, a stand-in is found under the name ``torch._dynamo``. It has what these
two places touch, and becomes the real module for whoever asks for anything else. Afterwards it is
gone: ``import torch._dynamo`` and ``torch.compile`` load the compiler as ever. Only a process that
runs attnviz alone does this; see ``attnviz.domain.process``.
"""

from __future__ import annotations

import functools
import importlib
import sys
from contextlib import contextmanager
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from attnviz.domain.process import process_is_ours

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COMPILER = "torch._dynamo"


@contextmanager
def without_compiler() -> Iterator[None]:
    """The stand-in, for the imports in this block.

    Nothing is replaced where the compiler is loaded already, nor in a process of somebody else's.
    """
    if COMPILER in sys.modules or not process_is_ours():
        yield
        return
    compiler, utils = _StandIn(COMPILER), _StandIn(f"{COMPILER}.utils")
    vars(compiler).update(__path__=[], utils=utils, disable=_disable)
    vars(utils).update(is_compile_supported=_is_compile_supported)
    stand_ins = {COMPILER: compiler, utils.__name__: utils}
    finder = _Finder()
    sys.modules.update(stand_ins)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        _remove_stand_ins()


def _compiler() -> ModuleType | None:
    """The real compiler, where it is loaded."""
    module = sys.modules.get(COMPILER)
    return None if isinstance(module, _StandIn) else module


def _remove_stand_ins() -> None:
    for name in (COMPILER, f"{COMPILER}.utils"):
        if isinstance(sys.modules.get(name), _StandIn):
            del sys.modules[name]


def _load(name: str) -> ModuleType:
    """A real module of the compiler, which takes the stand-in's place for all."""
    _remove_stand_ins()
    return importlib.import_module(name)


class _StandIn(ModuleType):
    """A module that loads the real one as soon as it is asked for what it does not have."""

    def __getattr__(self, name: str) -> Any:
        # Whoever looks through all modules asks each for its file; not all have one.
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_load(self.__name__), name)


class _Finder:
    """Finds submodules of the compiler while the stand-in is there: the real ones."""

    def find_spec(self, name: str, _path: object, _target: object = None) -> ModuleSpec | None:
        if not name.startswith(f"{COMPILER}.") or _compiler() is not None:
            return None
        return ModuleSpec(name, _Loaded(_load(name)))


class _Loaded(Loader):
    """Loads a module that was loaded on the way to it."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._spec = module.__spec__

    def create_module(self, _spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec


def _disable(function: Any = None, *arguments: Any, **named: Any) -> Any:
    """As the compiler's ``disable``, which leaves a function alone until there is a compiler."""
    if function is None:
        return lambda later: _disable(later, *arguments, **named)
    if not isinstance(function, FunctionType):
        return _load(COMPILER).disable(function, *arguments, **named)

    disabled: Callable[..., Any] | None = None

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal disabled
        if disabled is None:
            compiler = _compiler()
            if compiler is None:
                return function(*args, **kwargs)
            disabled = compiler.disable(function, *arguments, **named)
        return disabled(*args, **kwargs)

    # By these the compiler knows a function that it must not look into.
    vars(call).update(_torchdynamo_disable=True, _torchdynamo_orig_callable=function)
    return call


def _is_compile_supported(device_type: Any) -> Any:
    """As the compiler's function of that name, which it takes the compiler to answer."""
    return _load(f"{COMPILER}.utils").is_compile_supported(device_type)
