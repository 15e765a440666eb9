"""Attention drawn while a model trains.

    watch = attnviz.Watch(images=["cat.jpg"], figures=("heads", "rollout"), every=500)
    for step, batch in enumerate(batches):
        ...
        watch(model, step)

``attnviz.watch.lightning`` and ``attnviz.watch.huggingface`` adapt it to their trainers; they
import these when they are imported themselves.
"""

from attnviz.watch.callback import Watch

__all__ = ["Watch"]
